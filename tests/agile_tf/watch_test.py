"""Tests for agile_tf.watch, without a terminal and in one."""

import os
import tempfile
from unittest import mock

from absl.testing import absltest
import numpy as np

import agile_tf
from agile_tf import config as config_lib
from agile_tf import own_world
from agile_tf import watch
from agile_tf.evaluation import trained as trained_lib
from agile_tf.recipe import settings
import gridlu
from gridlu import goal_dataset
from gridlu import rendering
from gridlu import screen
from tests.agile_tf import tiny
from tests.gridlu import boards
from tests.gridlu import programs
from tests.gridlu import terminal


class WatchTest(tiny.SavedRunTest):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.trained = trained_lib.load(cls.run_dir)

  def _show(self, **kwargs):
    return watch.Show(self.trained, 'a run', **({'seed': 1} | kwargs))

  def _text(self, show):
    return '\n'.join(screen.plain(show.lines()))

  def test_shows_what_the_networks_say(self):
    # The top of the screen shows the episode's instruction.
    show = self._show(greedy=True)
    instruction = screen.plain(show.lines())[0]
    for _ in range(4):
      self.assertTrue(show.press('space'))
    steps = show.steps
    self.assertLen(steps, 5)
    again, other = (self._show(seed=seed, greedy=True) for seed in (1, 2))
    self.assertEqual(screen.plain(again.lines())[0], instruction)
    self.assertNotEqual(self._text(again), self._text(other))
    images = np.stack([rendering.render(step.state) for step in steps])
    texts = [instruction] * 5
    np.testing.assert_allclose(
        [step.probability for step in steps],
        agile_tf.load_reward_model(self.run_dir)(images, texts), rtol=1e-4)
    actions = agile_tf.load_policy(self.run_dir, greedy=True)(images, texts)
    for i, step in enumerate(steps[1:]):
      self.assertEqual(
          step.action, gridlu.world.Action(int(actions[i])).name)
      expected = boards.scalar_step(steps[i].state, actions[i])
      for a, b in zip(step.state, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    with mock.patch.object(gridlu.GridLU, 'success', True):
      self.assertTrue(self._show().steps[0].reached)
    for step in steps:
      self.assertEqual(step.reached, boards.scalar_satisfied(
          gridlu.language.parse(instruction), step.state))
    text = self._text(show)
    self.assertIn('Step     4 of 4, the last', text)
    self.assertIn(f'D(c, s)  {steps[-1].probability:.3f} '
                  f'{">" if steps[-1].probability > .5 else "<="} 0.5', text)
    self.assertIn(f'relations, {len(self.trained.world.texts)} instr', text)
    for i, step in enumerate(steps):
      self.assertRegex(
          text, rf'{i}  {step.action} +{step.probability:.3f}')

  def test_fits_a_common_terminal(self):
    name = 'runs/' + 'a/long/name/' * 10 + 'relations_seed3'
    show = watch.Show(self.trained, name, seed=1)
    for _ in range(11):
      self.assertEqual(screen.size(show.lines()), (76, 23))
      show.press('space')
    # The end of a long name tells which run it is.
    self.assertIn('...' + name[3 - screen.PANEL_WIDTH:], self._text(show))

  def test_keys_start_and_pace_the_show(self):
    show = self._show()
    self.assertIsNone(show.delay)
    show.press('p')
    self.assertEqual(show.delay, .5)
    show.press('=')  # + without Shift.
    self.assertEqual(show.delay, .25)
    self.assertTrue(show.press('unknown'))
    self.assertEqual(show.delay, .25)
    for _ in range(9):
      show.press('-')
    self.assertEqual(show.delay, 2)
    for _ in range(9):
      show.press('+')
    self.assertEqual(show.delay, 1 / 16)
    self.assertIn('16 steps a second', self._text(show))
    for _ in range(4):
      show.tick()
    self.assertTrue(show.over)
    self.assertEqual(show.delay, 1)  # The end is shown for a second.
    show.tick()
    self.assertLen(show.steps, 1)  # The next episode.
    show.press('space')  # A single step pauses.
    self.assertIsNone(show.delay)
    self.assertLen(show.steps, 2)
    show.press('n')
    self.assertLen(show.steps, 1)
    self.assertFalse(show.press('q'))

  def test_actions_are_samples_unless_greedy(self):
    with mock.patch.object(
        trained_lib.Trained, 'as_policy',
        return_value=lambda *_: np.zeros(1, np.int32)) as made:
      for greedy in False, True:
        self._show(greedy=greedy)
        self.assertEqual(made.call_args.args[1], greedy)

  def test_a_run_without_a_reward_model_can_be_watched(self):
    show = watch.Show(self.trained._replace(
        phi=None, steps=500_000_000), 'a run', 1)
    show.press('space')
    self.assertIn('no reward model in this run', self._text(show))
    self.assertEqual(screen.size(show.lines()), (76, 23))
    self.assertIsNone(show.steps[-1].probability)

  def test_a_person_can_watch_at_a_terminal(self):
    with terminal.Terminal(
        'agile_tf.watch', f'--run_dir={self.run_dir}', '--seed=1') as program:
      program.expect('q quit')
      self.assertIn('D(c, s)', program.output)
      for keys in (' ', '\x1bOC'):
        program.press(keys)
      program.press('++++p')
      program.expect('the last')  # It plays this step without a key.
      program.press('\x03')
      self.assertEqual(program.wait(), 0, program.output)
      self.assertTrue(program.restored)
      self.assertNotIn('Traceback', program.output)

  def test_bad_input_is_named(self):
    other = self.create_tempdir().full_path
    config_lib.save(
        settings.saved(
            config_lib.Config(world='no.such:world'), settings.Recipe()),
        f'{other}/config.json')
    for flag, message in (
        ('--run_dir=/no/run', 'There is no /no/run'),
        (f'--run_dir={other}', "was trained on the world 'no.such:world', a"),
        ('--checkpoint=7', 'no checkpoint of step 7; it has'),
        ('--instructions=Norh', 'Norh matches none of the')):
      with (mock.patch.object(screen, 'check_terminal') as check,
            mock.patch.object(watch.options.machine, 'prepare')):
        result = programs.call(watch, f'--run_dir={self.run_dir}', flag)
      self.assertRegex(result.stderr, f'^Error: .*{message}')
      # Bad input is named whether there is a terminal or not.
      check.assert_not_called()


class WatchPicturesTest(absltest.TestCase):
  """A world of one's own is shown by its images."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    name = 'agile_tf.own_world:make_world'
    with tempfile.TemporaryDirectory() as folder:
      goals = os.path.join(folder, 'goals.npz')
      goal_dataset.save(goals, own_world.goal_examples(count=8))
      with mock.patch.object(own_world, 'GOALS', goals):
        run_dir = tiny.save_for(
            cls, world=name, instructions='', episode_length=30,
            dataset_size=131072)
    cls.trained = trained_lib.load(run_dir, world=name)

  def _show(self, columns=80, rows=24):
    with mock.patch.object(
        watch.shutil, 'get_terminal_size', return_value=(columns, rows)):
      return watch.Show(self.trained, 'a run', seed=1)

  def test_an_episode_is_shown_to_its_end(self):
    show = self._show()
    instruction = screen.plain(show.lines())[0]
    self.assertIn(instruction, own_world.INSTRUCTIONS)
    self.assertIn(
        'Goal     unknown', '\n'.join(screen.plain(show.lines())))
    for _ in range(10):
      self.assertFalse(show.over)
      show.press('space')
      width, height = screen.size(show.lines())
      self.assertLessEqual(width, 80)
      self.assertLessEqual(height, 24)
    self.assertTrue(show.over)
    text = '\n'.join(screen.plain(show.lines()))
    self.assertIn('Step     10, the last', text)
    images = np.stack([step.state for step in show.steps])
    np.testing.assert_allclose(
        [step.probability for step in show.steps],
        self.trained.as_reward_model()(images, [instruction] * 11), rtol=1e-4)
    _, corner = own_world.CORNERS[instruction.split()[3]]
    for step in show.steps[1:]:
      row, column = 8 * np.array(corner) + 4
      self.assertEqual(
          step.reached, tuple(step.state[row, column]) == (255, 255, 255))
      self.assertRegex(step.action, 'action [0-3]')
    self.assertIn(
        f'Goal     {"reached" if step.reached else "not reached"}', text)
    show.press('space')
    self.assertLen(show.steps, 1)  # The next episode.

  def test_a_large_terminal_shows_each_column_of_pixels(self):
    for size, columns, rows in (((80, 24), 20, 10), ((120, 60), 40, 20)):
      show = self._show(*size)
      picture = [row for row in show.lines()
                 if row[0].style.foreground and '#' in row[0].style.foreground]
      self.assertLen(picture, rows)
      colors = [segment.style.background for segment in picture[0][:columns]]
      self.assertEqual(colors[0][:3], '#ff')  # The red corner.
      self.assertNotIn(None, colors)
      self.assertIsNone(picture[0][columns].style.background)
