"""Tests for gridlu.play, without a terminal and at one."""

import os
import re
import signal
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from PIL import Image

import gridlu
from gridlu import play
from gridlu import recording as recording_lib
from gridlu import screen
from gridlu import solver
from gridlu import world
from tests.gridlu import boards
from tests.gridlu import programs
from tests.gridlu import terminal

# What terminals send for the arrow keys in the mode that curses sets.
_UP, _RIGHT = '\x1bOA', '\x1bOC'


def _text(game):
  return '\n'.join(screen.plain(game.lines()))


class DemonstrationTest(absltest.TestCase):

  def test_demonstrations_are_shortest_solutions(self):
    environment = gridlu.GridLU(seed=3)
    recording = mock.create_autospec(recording_lib.Recording, instance=True)
    sentences = list(play.demonstrate(environment, 5, recording))
    again = gridlu.GridLU(seed=3)
    calls = [call.args[1] for call in recording.add.call_args_list]
    for sentence in sentences:
      again.reset()
      steps = solver.shortest(
          [again.instruction], world.unpack(world.pack(again.state)[None]))[0]
      self.assertEqual(
          sentence, f'{again.instruction}: solved in {steps} steps')
      own, calls = calls[:steps + 1], calls[steps + 1:]
      self.assertTrue(own[-1].endswith('goal reached'), own)
      self.assertFalse(any('reached' in text for text in own[:-1]))
    self.assertEmpty(calls)

  def test_an_instance_without_a_solution_is_reported(self):
    environment = gridlu.GridLU(
        seed=0, episode_length=1,
        instructions=["SameLocation(AGENT, Shape('rect', SCENE))"])
    sentences = play.demonstrate(
        environment, 10, mock.create_autospec(recording_lib.Recording))
    self.assertIn('no solution within an episode', '\n'.join(sentences))

  def test_no_goal_is_claimed_that_was_not_reached(self):
    environment = gridlu.GridLU('put_down', seed=0)
    game = play.demonstrate(
        environment, 20, mock.create_autospec(recording_lib.Recording))
    claims = [(': solved in' in sentence) == environment.success
              for sentence in game]
    self.assertLen(claims, 20)
    self.assertTrue(all(claims))

  def test_the_program_demonstrates_and_records(self):
    path = os.path.join(self.create_tempdir().full_path, 'expert.gif')
    arguments = ['--demonstrate=2', '--seed=3']
    run = programs.call(play, *arguments)
    self.assertEqual(run.stdout.count(': solved in'), 2)
    run = programs.call(
        play, *arguments, f'--record={path}', '--task=arrangements',
        '--instruction=Square(AGENT, SCENE)')
    self.assertEqual(run.stdout.count('Square(AGENT, SCENE): solved in'), 2)
    with Image.open(path) as image:
      self.assertGreater(image.n_frames, 1)


class GameTest(absltest.TestCase):

  def test_keys_act_by_the_rules(self):
    actions = {'up': 0, 'down': 1, 'left': 2, 'right': 3, 'space': 4, '.': 5,
               'w': 5, 'x': None}
    environment = gridlu.GridLU(
        seed=1, episode_length=200,
        instructions=["SameLocation(AGENT, Color('red', SCENE))"])
    game = play.Game(environment)
    rng = np.random.default_rng(0)
    taken, said = 0, set()
    for key in rng.choice([*actions], 200):
      expected = environment.state
      self.assertTrue(game.press(key))
      if actions[key] is not None:
        taken += 1
        expected = boards.scalar_step(expected, actions[key])
      boards.assert_equal(environment.state, expected)
      self.assertIn(f'{taken} taken, {200 - taken} left', _text(game))
      reached = boards.scalar_satisfied(environment.instruction, expected)
      self.assertIn(f'Goal   {"" if reached else "not "}reached', _text(game))
      said.add(reached)
    self.assertLen(said, 2)
    self.assertFalse(game.press('q'))

  def test_an_episode_ends_and_another_begins(self):
    environment = gridlu.GridLU(seed=1, episode_length=2)
    game = play.Game(environment)
    for key in ('left', 'up'):
      self.assertNotIn('The episode is over', _text(game))
      game.press(key)
    end = environment.state
    game.press('down')  # Not a step any more, nor the start of an episode.
    np.testing.assert_array_equal(environment.state.agent, end.agent)
    self.assertIn('The episode is over', _text(game))
    self.assertIn('2 taken, 0 left', _text(game))
    game.press('r')
    self.assertIn('0 taken, 2 left', _text(game))
    # The next instance of the environment, and none left out.
    other = gridlu.GridLU(seed=1)
    other.reset()
    other.reset()
    np.testing.assert_array_equal(
        environment.state.blocks, other.state.blocks)


class ProgramTest(parameterized.TestCase):

  def test_a_person_can_play_at_a_terminal(self):
    path = os.path.join(self.create_tempdir().full_path, 'game.gif')
    # Of the test's own: where this seed begins and where its steps lead.
    environment = gridlu.GridLU(seed=7)
    images = [environment.reset().observation['image']]
    for action in (world.Action.RIGHT, world.Action.UP, world.Action.INTERACT):
      images.append(environment.step(action).observation['image'])
    with terminal.Terminal(
        'gridlu.play', '--seed=7', f'--record={path}') as program:
      program.expect('q quits')
      self.assertIn('30 left', program.output)
      self.assertIn('\x1b[47m', program.output)  # The wall's white.
      for keys in (_RIGHT, _UP, ' '):
        program.press(keys)
      program.press('q')
      self.assertEqual(program.wait(), 0, program.output)
      self.assertTrue(program.restored)
      self.assertIn('4 states of 1 episode', program.output)
    with Image.open(path) as gif:
      self.assertEqual(gif.n_frames, 4)
      for i, image in enumerate(images):
        gif.seek(i)
        frame = np.asarray(gif.convert('RGB'))
        np.testing.assert_array_equal(frame[8:232:4, 8:232:4], image)

  def test_a_terminal_without_colours_gets_none(self):
    with terminal.Terminal('gridlu.play', '--seed=7', term='vt100') as program:
      program.expect('q quits')
      self.assertIsNone(
          re.search(r'\x1b\[[0-9;]*[34][0-8][;m]', program.output))
      program.press('q')
      self.assertEqual(program.wait(), 0, program.output)

  def test_a_small_terminal_says_what_it_needs(self):
    with terminal.Terminal(
        'gridlu.play', '--seed=7', columns=50, rows=10) as program:
      program.expect('76 columns and 23 rows')
      self.assertIn('50 columns', program.output)
      program.press('')
      program.resize(80, 24)
      program.expect('30 left')  # It goes on as soon as it can.
      program.resize(50, 10)
      program.expect('too small')
      program.press('q')
      self.assertEqual(program.wait(), 0, program.output)

  def test_interrupts_leave_the_terminal_sane(self):
    for stop, status in (('\x03', 0), (signal.SIGTERM, 143),
                         (signal.SIGQUIT, 131), (signal.SIGUSR1, 138)):
      with terminal.Terminal('gridlu.play', '--seed=7') as program:
        program.expect('q quits')
        self.assertFalse(program.restored)
        if isinstance(stop, str):
          program.press(stop)
        else:
          program.kill(stop)
        self.assertEqual(program.wait(), status, program.output)
        self.assertTrue(program.restored)
        self.assertIn('\x1b[?25h', program.output)  # The cursor is back.
        self.assertNotIn('Traceback', program.output)

  @parameterized.parameters('dumb', 'no-such-terminal', '')
  def test_unusable_terminals_are_named(self, term):
    with terminal.Terminal('gridlu.play', term=term) as program:
      self.assertEqual(program.wait(), 1)
      self.assertIn(f'Error: TERM={term!r} is', program.output)

  @parameterized.named_parameters(
      ('no_terminal', [], 'standard input is not a terminal'),
      ('no_instruction', ['--instruction=NorthFrom(AGENT, yellow)'],
       'at the caret:\n  NorthFrom(AGENT, yellow)\n' + ' ' * 19 + '^'),
      ('empty_instruction', ['--instruction='], 'an instruction such as'),
      ('other_task', ['--instruction=Snake(AGENT, SCENE)'],
       'does not fit --task=relations'),
      ('no_gif', ['--record=game.png'], 'expected the name of a .gif file'),
      ('no_folder', ['--record=/no/such/game.gif'],
       'there is no folder /no/such'),
      ('argument', ['arrangements'], 'Unknown arguments'))
  def test_bad_input_is_named(self, arguments, message):
    with mock.patch.object(os, 'isatty', return_value=False):
      run = programs.call(play, *arguments)
    self.assertEqual(run.returncode, 1)
    self.assertIn(message, run.stderr)
