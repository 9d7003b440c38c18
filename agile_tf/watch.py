"""Shows a trained policy in the terminal, step by step.

  python -m agile_tf.watch --run_dir=runs/relations

Each state is shown with D(c, s), the reward model's probability that it is a
goal state. Above 0.5 the policy would be rewarded. Space or the right arrow
makes a step, p plays and pauses, + and - change the speed, n starts the next
episode and q quits. `gridlu.screen` explains how to read the board.
"""

import os
from typing import NamedTuple, TYPE_CHECKING

from absl import flags
import numpy as np

from agile_tf import config as config_lib
from agile_tf.evaluation import options
import gridlu
from gridlu import program
from gridlu import rendering
from gridlu import screen
from gridlu import tasks
from gridlu import world as board

# What needs TensorFlow is imported after the flags are read.
if TYPE_CHECKING:
  from agile_tf.evaluation import trained as trained_lib

_SPEEDS = (.5, 1., 2., 4., 8., 16.)  # Steps a second.
_FIRST_SPEED = 2
_END_SECONDS = 1.  # An episode's last state is shown at least this long.
_KEYS = ('space or right: next step   p play or pause   + - speed   n next '
         'episode', '(r) red circle   [g] green rect   /b\\ blue triangle   '
         '           q quit')
_LOG_LINES = 6
_BAR = 20  # Width of the bar for a probability of 1, in characters.


class Step(NamedTuple):
  """A state of the episode, and the action that led to it."""
  action: str  # 'start' for the first state.
  state: board.State
  probability: float | None  # D(c, s); None without a reward model
  reached: bool  # whether it is a goal state, by ground truth or checker


class Show:
  """A policy's episodes, one after another: a `screen.View`."""

  def __init__(self, trained: 'trained_lib.Trained', name: str,
               seed: int | None = None, greedy: bool = False):
    """Starts the first episode of a GridLU run of this name, paused."""
    seeds = np.random.SeedSequence(seed).spawn(2)
    environment = trained.world.make_environment(
        int(seeds[0].generate_state(1)[0]))
    assert isinstance(environment, gridlu.GridLU)
    self._environment = environment
    self._rng = None if greedy else np.random.default_rng(seeds[1])
    self._policy = trained.as_policy()
    self._reward_model = (
        None if trained.phi is None else trained.as_reward_model())
    if len(name) > screen.PANEL_WIDTH:
      name = '...' + name[3 - screen.PANEL_WIDTH:]
    self._title = (name, f'{trained.steps:,} training steps, '
                   f'{"greedy" if greedy else "sampled"}')
    self._playing = False
    self._speed = _FIRST_SPEED
    self._begin()
    self._policy(*self._inputs())  # Compiles it before the screen opens.

  def _begin(self) -> None:
    self._environment.reset()
    self.steps: list[Step] = []  # The episode so far.
    self._keep('start')

  def _inputs(self) -> tuple[np.ndarray, list[str]]:
    """Returns the inputs of the networks for the current state."""
    return (rendering.render(self._environment.state)[None],
            [str(self._environment.instruction)])

  def _keep(self, action: str) -> None:
    """Computes D for the current state and appends it to the episode."""
    environment = self._environment
    probability = None
    if self._reward_model is not None:
      probability = float(self._reward_model(*self._inputs())[0])
    self.steps.append(Step(
        action, environment.state, probability, environment.success))

  @property
  def over(self) -> bool:
    return len(self.steps) > self._environment.episode_length

  @property
  def delay(self) -> float | None:
    """Seconds until the next step; None while paused."""
    if not self._playing:
      return None
    seconds = 1 / _SPEEDS[self._speed]
    return max(seconds, _END_SECONDS) if self.over else seconds

  def tick(self) -> None:
    """Makes a step; after the last one, starts the next episode."""
    if self.over:
      self._begin()
      return
    action, = self._policy(*self._inputs(), self._rng)
    self._environment.step(int(action))
    self._keep(board.Action(action).name)

  def press(self, key: str) -> bool:
    """Returns False if the key quits; otherwise does what the key asks."""
    if key == 'q':
      return False
    if key in ('space', 'right'):
      self._playing = False
      self.tick()
    elif key == 'p':
      self._playing = not self._playing
    elif key in ('+', '='):  # Also without Shift.
      self._speed = min(self._speed + 1, len(_SPEEDS) - 1)
    elif key in ('-', '_'):
      self._speed = max(self._speed - 1, 0)
    elif key == 'n':
      self._begin()
    return True

  def lines(self) -> list[screen.Line]:
    now = self.steps[-1]
    length = self._environment.episode_length
    reward_model, bar = 'no reward model in this run', ''
    if now.probability is not None:
      verdict = 'accepted' if now.probability > .5 else 'rejected'
      reward_model = f'{now.probability:.3f}, {verdict}'
      filled = round(_BAR * now.probability)
      bar = '[' + '#' * filled + '.' * (_BAR - filled) + ']'
    speed = f'{_SPEEDS[self._speed]:g} steps a second'
    panel = [
        *map(screen.line, self._title),
        screen.line(''),
        screen.line(f'Step     {len(self.steps) - 1} of {length}' +
                    (', the last' if self.over else '')),
        screen.line(f'Agent    {screen.agent_text(now.state)}'),
        screen.line(f'D(c, s)  {reward_model}', bold=True),
        screen.line(f'         {bar}'),
        screen.line(f'Goal     {"reached" if now.reached else "not reached"}',
                    bold=now.reached),
        screen.line(f'Speed    {speed if self._playing else "paused"}'),
        screen.line(''),
        screen.line('step  action    D(c, s)  goal')]
    first = max(0, len(self.steps) - _LOG_LINES)
    for i, step in enumerate(self.steps[first:], first):
      probability = (
          '-' if step.probability is None else f'{step.probability:.3f}')
      panel.append(screen.line(
          f'{i:4}  {step.action:8}  {probability:>7}  '
          f'{"reached" if step.reached else "-"}'))
    return screen.compose(
        str(self._environment.instruction), now.state, panel, _KEYS)


def _define_flags() -> None:
  options.define_run()
  options.define_seed(None)
  options.define_play()


@program.main(_define_flags)
def main() -> None:
  """Shows the policy of a run."""
  values = flags.FLAGS
  config = config_lib.load(os.path.join(values.run_dir, 'config.json'))
  if config.world not in tasks.TASKS:
    raise program.UserError(
        f'{values.run_dir} was trained on --world={config.world}; expected a '
        f'run of {" or ".join(tasks.TASKS)}, because the terminal can show '
        'only the boards of GridLU. agile_tf.evaluate --picture draws final '
        'states of any world.')
  screen.check_terminal()
  screen.show(Show(
      options.load(values), values.run_dir, values.seed, values.greedy))


if __name__ == '__main__':
  main()
