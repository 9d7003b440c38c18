"""Tests for agile_tf.watch, without a terminal and in one."""

import dataclasses
from unittest import mock

import numpy as np

import agile_tf
from agile_tf import config as config_lib
from agile_tf import watch
from agile_tf.evaluation import trained as trained_lib
import gridlu
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
    actions = agile_tf.load_policy(self.run_dir)(images, texts)
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
    self.assertIn(f'D(c, s)  {steps[-1].probability:.3f}, '
                  f'{"ac" if steps[-1].probability > .5 else "re"}', text)
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

  def test_playing(self):
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
    with mock.patch.object(show, '_policy', wraps=show._policy) as policy:
      show.press('space')  # A single step pauses.
    self.assertIs(policy.call_args.args[2], show._rng)  # Actions are sampled.
    self.assertIsNotNone(show._rng)
    self.assertIsNone(show.delay)
    self.assertLen(show.steps, 2)
    show.press('n')
    self.assertLen(show.steps, 1)
    self.assertFalse(show.press('q'))

  def test_a_run_without_a_reward_model(self):
    show = watch.Show(self.trained._replace(
        phi=None, steps=500_000_000), 'a run', 1)
    show.press('space')
    self.assertIn('no reward model in this run', self._text(show))
    self.assertEqual(screen.size(show.lines()), (76, 23))
    self.assertIsNone(show.steps[-1].probability)

  def test_at_a_terminal(self):
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
        dataclasses.asdict(config_lib.Config(world='no.such:world')),
        f'{other}/config.json')
    for flag, message in (
        ('--run_dir=/no/run', 'There is no /no/run'),
        (f'--run_dir={other}', 'world=no.such:world; expected a run of relati'),
        ('--checkpoint=7', 'no checkpoint of step 7; it has'),
        ('--instructions=Norh', 'Norh matches none of the')):
      with (mock.patch.object(screen, 'check_terminal') as check,
            mock.patch.object(watch.options.machine, 'prepare')):
        result = programs.call(watch, f'--run_dir={self.run_dir}', flag)
      self.assertRegex(result.stderr, f'^Error: .*{message}')
      # A wrong directory is named whether there is a terminal or not.
      self.assertEqual(check.called, flag[2] in 'ci')
