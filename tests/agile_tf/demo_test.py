"""Tests for the page that runs networks in a browser, with Node.

The files of the page are compared with GridLU's rules in Python and with the
oracle of the networks.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from agile_tf import demo
from agile_tf.training import checkpoints
from gridlu import language
from gridlu import program
from gridlu import rendering
from gridlu import tasks
from gridlu import world
from tests.agile_tf import tiny
from tests.agile_tf.agent import network_oracles
from tests.gridlu import programs

_ROOT = pathlib.Path(__file__).parent.parent.parent
_RUNS = [str(_ROOT / 'launch/results' / name)
         for name in ('trained', 'trained_arrangements')]
_TASKS = 'crowded', 'arrangements'  # Of these runs.
_PAGE = _ROOT / 'docs/demo/index.html'
_NODE = shutil.which('node')

needs_node = pytest.mark.skipif(not _NODE, reason='There is no Node.')


def _ask(function, arguments, page=_PAGE):
  """Returns what the page's code answers to each of `arguments`."""
  result = subprocess.run(
      [_NODE, str(pathlib.Path(__file__).with_name('demo_driver.js')),
       str(page)],
      input=json.dumps({'function': function, 'arguments': arguments}),
      capture_output=True, text=True, check=False)
  assert not result.returncode, result.stderr
  return json.loads(result.stdout)


def _random_states(rng, count, blocks=8):
  """Draws boards of any blocks with the agent anywhere, packed [N, 27]."""
  board = rng.integers(1, world.NUM_BLOCK_CODES, size=(count, world.NUM_CELLS))
  order = rng.random((count, world.NUM_CELLS)).argsort(axis=1).argsort(axis=1)
  board *= order < rng.integers(1, blocks + 1, size=(count, 1))
  cell = rng.integers(world.NUM_CELLS, size=count)
  # An agent on a block carries it in half of the boards.
  carrying = (np.take_along_axis(board, cell[:, None], axis=1)[:, 0] > 0) & (
      rng.random(count) < .5)
  return np.concatenate(
      [board, cell[:, None], carrying[:, None]], axis=1).astype(np.uint8)


def _pairs(rng, task, count):
  """Draws texts of instructions, and boards of which half are goal states."""
  task = tasks.find(task)
  texts = [str(each) for each in task.instructions()]
  drawn = [task.instances(rng, count // 2),
           task.goal_states(rng, count - count // 2)]
  return ([texts[i] for each in drawn for i in each.instruction],
          np.concatenate([world.pack(each.state) for each in drawn]))


class RulesTest(parameterized.TestCase):

  @needs_node
  def test_steps_are_those_of_gridlu(self):
    rng = np.random.default_rng(0)
    states = _random_states(rng, 10_000)
    actions = rng.integers(len(world.Action), size=len(states))
    for immovable in (), (world.block('rect', 'red'),):
      physics = world.Physics(immovable)
      expected = world.pack(world.step(world.unpack(states), actions, physics))
      changed = np.any(expected != states, axis=1)
      self.assertBetween(changed.mean(), .3, .9)
      np.testing.assert_array_equal(_ask('step', [
          [state, action, immovable] for state, action in zip(
              states.tolist(), actions.tolist())]), expected)

  @parameterized.parameters('relations', 'put_down', 'arrangements')
  @needs_node
  def test_truth_is_that_of_gridlu(self, task):
    rng = np.random.default_rng(1)
    texts, states = _pairs(rng, task, 5000)
    more = _random_states(rng, 5000)
    texts += list(rng.choice(texts, size=5000))
    states = np.concatenate([states, more])
    found = tasks.find(task)
    expected = found.satisfied(
        found.encode([language.parse(text) for text in texts]),
        world.unpack(states))
    self.assertBetween(expected.mean(), .2, .8)
    np.testing.assert_array_equal(
        _ask('satisfied', [
            [task, text, state] for text, state in zip(texts, states.tolist())
        ]), expected)

  @needs_node
  def test_pictures_are_those_of_gridlu(self):
    states = _random_states(np.random.default_rng(2), 100)
    np.testing.assert_array_equal(
        np.reshape(_ask('render', [[state] for state in states.tolist()]),
                   [100, 56, 56, 3]),
        rendering.render(world.unpack(states)))

  @parameterized.parameters('relations', 'put_down', 'crowded', 'arrangements')
  @needs_node
  def test_drawn_boards_are_like_those_of_gridlu(self, task):
    found = tasks.find(task)
    rng = np.random.default_rng(3)
    chosen = rng.choice(len(found.instructions()), size=500)
    parsed = [found.instructions()[i] for i in chosen]
    drawn = np.array(_ask('draw', [[task, str(each)] for each in parsed]))
    codes = found.encode(parsed)
    for pair, expected in enumerate((False, True)):
      states = world.unpack(drawn[:, pair])
      np.testing.assert_array_equal(
          found.satisfied(codes, states), np.full(500, expected))
      self.assertFalse(states.carrying.any())
    numbers = np.count_nonzero(drawn[..., :world.NUM_CELLS], axis=-1)
    like = np.count_nonzero(
        found.instances(rng, 2000).state.blocks, axis=(1, 2))
    self.assertEqual(set(numbers.ravel()), set(like))

  @needs_node
  def test_edits_leave_whole_states(self):
    rng = np.random.default_rng(4)
    states = _random_states(rng, 3000)
    edits = []
    for state in states.tolist():
      full = [cell for cell in range(world.NUM_CELLS)
              if state[cell] or cell == state[world.NUM_CELLS]]
      cell, code = (int(rng.integers(n)) for n in (world.NUM_CELLS, 10))
      edits.append([state, *[
          ['withBlock', cell, code], ['withAgent', cell],
          ['moved', int(rng.choice(full)), cell]][int(rng.integers(3))]])
    after = np.array(_ask('edit', edits))
    blocks = after[:, :world.NUM_CELLS]
    agent, carrying = after[:, world.NUM_CELLS], after[:, -1] > 0
    # Only a block can be carried.
    self.assertTrue(blocks[np.arange(len(after)), agent][carrying].all())
    self.assertGreater(carrying.sum(), 100)
    for (before, name, *values), state in zip(edits, after.tolist()):
      if name == 'moved':  # Nothing is lost.
        self.assertEqual(sorted(before[:25]), sorted(state[:25]))
        self.assertEqual(before[26], state[26])
      elif name == 'withBlock':
        self.assertEqual(state[values[0]], values[1])
        self.assertEqual(state[25], before[25])
      else:
        self.assertEqual(state[25], values[0])
        self.assertEqual(state[:25], before[:25])


class LanguageTest(parameterized.TestCase):

  @needs_node
  def test_reads_the_grammar_and_its_own_english(self):
    parsed = [*language.relations_instructions(),
              *language.arrangements_instructions()]
    answers = _ask('language', [[str(each)] for each in parsed])
    for each, (text, tree, again) in zip(parsed, answers):
      self.assertEqual(text, str(each))
      self.assertEqual(again, str(each))
      self.assertEqual(tree, json.loads(json.dumps(each.tree)))

  @parameterized.parameters(
      ('go to the red circle',
       "SameLocation(AGENT, Color('red', Shape('circle', SCENE)))"),
      ('Go north of the blue square!',
       "NorthFrom(AGENT, Color('blue', Shape('rect', SCENE)))"),
      ('Put the red circle to the left of a blue block.',
       "WestFrom(Color('red', Shape('circle', SCENE)), Color('blue', SCENE))"),
      ('move green right above the triangle',
       "NorthFrom(Color('green', SCENE), Shape('triangle', SCENE))"),
      ('the ball is under you', "SouthFrom(Shape('circle', SCENE), AGENT)"),
      ('bring the triangle to the agent',
       "SameLocation(Shape('triangle', SCENE), AGENT)"),
      ('eastfrom(agent', 'expected'),
      ('EastFrom(AGENT, Color(“red”, SCENE))',
       "EastFrom(AGENT, Color('red', SCENE))"),
      ('NorthFrom(Shape(square,SCENE),AGENT)',
       "NorthFrom(Shape('rect', SCENE), AGENT)"),
      ('Make a diagonal line of the green blocks',
       "Dline(AGENT, Color('green', SCENE))"),
      ('arrange all squares in a line', 'Line(AGENT, SCENE)'),
      ('a disconnected form', 'Disconnected(AGENT, SCENE)'),
      ('go to the purple circle', '“purple” is a word'),
      ('do not go to the red circle', '“do” is a word'),
      ('put the red circle on the blue square', 'cannot share a cell'),
      ('red above red', 'two different things'),
      ('red and blue above green', 'names two things'),
      ('me circle above the blue block', 'names two things'),
      ('the circle is above the blue agent', 'names two things'),
      ('you and me above the blue block', 'names two things'),
      ('above', 'expected at the end'),
      ('red above green above blue', 'two directions'),
      ('', 'Type an instruction'),
      ('Square(AGENT, AGENT)', 'of one colour'),
      ('Square(AGENT, SCENE) now', 'after the end'),
      ('Fly(AGENT, SCENE)', '“Fly” came where'))
  @needs_node
  def test_the_page_reads_plain_english(self, text, expected):
    answer, = _ask('read', [[text, ['relations', 'arrangements']]])
    self.assertIn(expected, answer)
    if expected.endswith(')'):
      self.assertEqual(expected, answer)

  @needs_node
  def test_reads_only_what_the_page_has_learned(self):
    for text in 'make a square', 'Square(AGENT, SCENE)':
      answer, = _ask('read', [[text, ['relations']]])
      self.assertNotIn('SCENE)', answer)


class NetworksTest(parameterized.TestCase):

  @staticmethod
  def _oracle(run_dir, texts, states, model, tokens, dtype, whole=True):
    """Returns D and the probabilities of actions, in float64."""
    checkpoint = checkpoints.load(run_dir)
    images = rendering.render(world.unpack(states)).astype(np.float64) / 255
    trees = [language.parse(text).tree for text in texts]
    outputs = []
    for group, oracle in (('discriminator', network_oracles.discriminator),
                          ('policy', network_oracles.policy)):
      parameters = {
          name.partition('/')[2]: tf.constant(
              value.astype(dtype).astype(np.float64))
          for name, value in checkpoint.group(group).items()}
      outputs.append(network_oracles.apply(
          oracle, model, images, trees, tokens, parameters))
    logit, (logits, *_) = outputs
    return tf.sigmoid(logit).numpy(), tf.nn.softmax(logits).numpy()

  def _compare(self, number, count):
    """Compares the page with the oracle; returns decisions that differ."""
    rng = np.random.default_rng(number)
    texts, states = _pairs(rng, _TASKS[number], count)
    # And boards as only a user makes them.
    states[::4] = _random_states(rng, count)[::4]
    answers = _ask('networks', [
        [number, text, state] for text, state in zip(texts, states.tolist())])
    accepted = np.array([answer[0] for answer in answers])
    actions = np.array([answer[1] for answer in answers])
    how = _RUNS[number], texts, states, 'nmn', tasks.find(_TASKS[number]).tokens
    expected = self._oracle(*how, np.float16)
    np.testing.assert_allclose(accepted, expected[0], rtol=0, atol=1e-4)
    np.testing.assert_allclose(actions, expected[1], rtol=0, atol=1e-4)
    self.assertBetween(np.mean(accepted > .5), .2, .8)
    exact = self._oracle(*how, np.float32)
    return (np.sum((accepted > .5) != (exact[0] > .5)),
            np.sum(actions.argmax(1) != exact[1].argmax(1)))

  @parameterized.parameters(0, 1)
  @needs_node
  def test_networks_are_those_of_python(self, number):
    differ = self._compare(number, 60)
    self.assertLessEqual(max(differ), 1)

  @parameterized.parameters(0, 1)
  @needs_node
  @pytest.mark.slow
  def test_networks_are_those_of_python_on_many_boards(self, number):
    decisions, actions = self._compare(number, 1000)
    print(f'{_RUNS[number]}: with float16 {decisions} decisions of D and '
          f'{actions} likeliest actions in 1,000 differ')
    self.assertLessEqual(decisions, 5)
    self.assertLessEqual(actions, 10)


class PageTest(parameterized.TestCase):

  def test_is_what_the_program_makes_of_its_sources(self):
    self.assertEqual(
        _PAGE.read_text('utf-8'), demo.make(_RUNS),
        'Make it again: python -m agile_tf.demo --output=docs/demo/index.html '
        '--run_dir=launch/results/trained,launch/results/trained_arrangements')

  def test_the_page_needs_no_other_file(self):
    text = _PAGE.read_text('utf-8')
    self.assertLess(len(text), 1.6e6)
    self.assertNotRegex(text, r'(src|href)="(?!data:)')
    self.assertNotRegex(text, r'url\(|@import|https?://|/\*[\w.]+\*/')


class ProgramTest(tiny.SavedRunTest):
  changes = {'model': 'lstm', 'world': 'relations'}

  def _page(self, *run_dirs):
    path = pathlib.Path(self.create_tempdir().full_path, 'demo.html')
    result = programs.call(
        demo, f'--run_dir={",".join(run_dirs)}', f'--output={path}')
    self.assertEqual(result.returncode, 0, result.stderr)
    return path

  @needs_node
  def test_a_page_can_have_an_lstm(self):
    path = self._page(self.run_dir)
    rng = np.random.default_rng(0)
    texts, states = _pairs(rng, 'relations', 20)
    answers = _ask('networks', [
        [0, text, state] for text, state in zip(texts, states.tolist())], path)
    expected = NetworksTest._oracle(
        self.run_dir, texts, states, 'lstm', tasks.find('relations').tokens,
        np.float16)
    np.testing.assert_allclose(
        [answer[0] for answer in answers], expected[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        [answer[1] for answer in answers], expected[1], rtol=0, atol=1e-6)

  def _copy(self, change, **values):
    """Returns a copy of the run whose checkpoint is changed."""
    folder = tempfile.mkdtemp(dir=self.create_tempdir().full_path)
    shutil.copytree(self.run_dir, folder, dirs_exist_ok=True)
    saved = checkpoints.load(folder)
    arrays = dict(saved.arrays)
    change(arrays)
    checkpoints.save(folder, 0, saved._replace(
        arrays=arrays, values=saved.values | values), keep=1)
    return folder

  def test_a_page_can_lack_a_reward_model(self):
    def remove(arrays):
      for name in [*arrays]:
        if name.startswith('discriminator:'):
          del arrays[name]

    data = re.search(
        r'id="data">(.*?)</script>', demo.make([self._copy(remove)]))
    assert data is not None
    agent, = json.loads(data[1])
    self.assertIsNone(agent['discriminator'])
    self.assertEqual(agent['threshold'], 0.5)

  def test_checkpoints_that_do_not_fit_are_named(self):
    def large(arrays):
      arrays['policy:policy/hidden/w'] = np.full([64, 100], 1e6, np.float32)

    def other(arrays):
      name = 'discriminator:discriminator/features/gamma/w'
      arrays[name] = arrays[name].T

    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'policy/hidden/w that float16 cannot'):
      demo.make([self._copy(large)])
    with self.assertRaisesRegex(
        checkpoints.CheckpointError,
        r'does not fit .*gamma/w is float32 \[240, 100\]; expected float32 '
        r'\[100, 240\]'):
      demo.make([self._copy(other)])
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'no discriminator/logit/w; .*model=lstm'):
      demo.make([self._copy(
          lambda arrays: arrays.pop('discriminator:discriminator/logit/w'))])

    with self.assertRaisesRegex(
        checkpoints.CheckpointError, r"a world with the tokens \['red'\];"):
      demo.make([self._copy(lambda arrays: None, tokens=['red'])])

  def test_no_run_at_all_is_refused(self):
    path = os.path.join(self.create_tempdir().full_path, 'page.html')
    result = programs.call(demo, '--run_dir=', f'--output={path}')
    self.assertEqual(result.returncode, 1)
    self.assertRegex(result.stderr, '--run_dir is empty: expected the direct')
    self.assertFalse(os.path.exists(path))

  def test_two_runs_of_one_name_are_refused(self):
    with self.assertRaisesRegex(program.UserError, 'different names'):
      demo.make([self.run_dir, self.run_dir])

  def test_another_world_is_refused(self):
    folder = pathlib.Path(self._copy(lambda arrays: None))
    config = json.loads((folder / 'config.json').read_text('utf-8'))
    (folder / 'config.json').write_text(
        json.dumps(config | {'world': 'agile_tf.own_world:make'}), 'utf-8')
    with self.assertRaisesRegex(
        program.UserError, 'own_world.*put_down, crowded or arrangements'):
      demo.make([str(folder)])


if __name__ == '__main__':
  absltest.main()
