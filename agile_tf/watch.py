"""Shows a trained policy in the terminal, step by step.

  python -m agile_tf.watch --run_dir=runs/relations

Each state is shown with D(c, s), the reward model's probability that it is a
goal state. The reward model accepts a state if D is above the run's
--reward_threshold. Space or the right arrow makes a step, p plays and pauses, +
and - change the speed, n starts the next episode and q quits. `gridlu.screen`
explains how to read the board. Another world is shown by its images, the more
finely the larger the terminal is.
"""

import shutil
from typing import Any, NamedTuple, Protocol, TYPE_CHECKING

from absl import flags
import dm_env
import numpy as np

from agile_tf.evaluation import options
from agile_tf.training import progress
import gridlu
from gridlu import flagfiles
from gridlu import program
from gridlu import rendering
from gridlu import screen
from gridlu import world as world_lib

# What needs TensorFlow is imported after the flags are read.
if TYPE_CHECKING:
  from agile_tf.agent import worlds
  from agile_tf.evaluation import trained as trained_lib

_SPEEDS = (.5, 1., 2., 4., 8., 16.)  # Each is a number of steps a second.
_FIRST_SPEED = 2  # An index of `_SPEEDS`.
_END_SECONDS = 1.  # An episode's last state is shown at least this long.
_KEYS = ('space or right: next step   p play or pause   + - speed   n next '
         'episode')
_SIGNS = '(r) red circle   [g] green rect   /b\\ blue triangle'
_LOG_LINES = 6
_GOALS = {None: 'unknown', True: 'reached', False: 'not reached'}
_BAR = 20  # How many characters the bar for a probability of 1 has.


def _last_line(text: str = '') -> str:
  """Returns the last line of the keys, with a text on its left."""
  return f'{text:{screen.WIDTH - 7}}q quit'


class Step(NamedTuple):
  """A state of the episode, and the action that led to it."""
  action: str  # 'start' at the first state.
  state: Any  # A GridLU state, or an image.
  probability: float | None  # D(c, s); None without a reward model.
  # Whether it is a goal state; None without a ground truth or checker.
  reached: bool | None


class _Game(Protocol):
  """The episodes of an environment, one after another, and how they look.

  Attributes:
    keys: Lines that explain the screen.
    instruction: That of the episode.
    state: The last state, as `Step` has it.
    image: What the networks see of it, uint8 [H, W, 3].
    reached: As `Step` has it.
    over: Whether the episode has ended.
    length: The steps of the episode, such as ' of 30'; '' if it is unknown.
  """
  keys: tuple[str, ...]

  @property
  def instruction(self) -> str: ...

  @property
  def state(self) -> Any: ...

  @property
  def image(self) -> np.ndarray: ...

  @property
  def reached(self) -> bool | None: ...

  @property
  def over(self) -> bool: ...

  @property
  def length(self) -> str: ...

  def begin(self) -> None:
    """Begins an episode."""

  def step(self, action: int) -> str:
    """Takes an action; returns its name."""

  def lines(self, state: Any) -> list[screen.Line]:
    """Returns how a state looks."""

  def notes(self, state: Any) -> list[screen.Line]:
    """Returns lines that the panel has about a state."""


class _GridLU:
  """A `_Game` of GridLU."""
  keys: tuple[str, ...] = (_KEYS, _last_line(_SIGNS))

  def __init__(self, environment: gridlu.GridLU):
    self._environment = environment
    self._steps = 0

  @property
  def instruction(self) -> str:
    return str(self._environment.instruction)

  @property
  def state(self) -> world_lib.State:
    return self._environment.state

  @property
  def image(self) -> np.ndarray:
    return rendering.render(self.state)

  @property
  def reached(self) -> bool:
    return self._environment.success

  @property
  def over(self) -> bool:
    return self._steps == self._environment.episode_length

  @property
  def length(self) -> str:
    return f' of {self._environment.episode_length}'

  def begin(self) -> None:
    self._environment.reset()
    self._steps = 0

  def step(self, action: int) -> str:
    self._environment.step(action)
    self._steps += 1
    return world_lib.Action(action).name

  def lines(self, state: world_lib.State) -> list[screen.Line]:
    return screen.board(state)

  def notes(self, state: world_lib.State) -> list[screen.Line]:
    return [screen.line(f'Agent    {screen.agent_text(state)}')]


class _Pictures:
  """A `_Game` of a world whose images are shown."""
  keys: tuple[str, ...] = (_KEYS, _last_line())
  length = ''

  def __init__(self, world: 'worlds.World', environment: dm_env.Environment):
    self._environment = environment
    self._has_ground_truth = world.has_ground_truth
    # The picture gets the room that the panel, the instruction and the keys
    # leave, at least that of a GridLU board. A character is twice as high as
    # wide, and shows at least one column of the image's pixels.
    columns, rows = shutil.get_terminal_size()
    height, width, _ = world.image_shape
    widest = max(screen.BOARD_WIDTH, columns - screen.PANEL_WIDTH - 4)
    highest = max(screen.BOARD_HEIGHT, rows - 7)
    self._width = min(widest, 2 * highest * width // height, width)

  def begin(self) -> None:
    self._timestep = self._environment.reset()

  def step(self, action: int) -> str:
    self._timestep = self._environment.step(action)
    return f'action {action}'

  @property
  def instruction(self) -> str:
    return str(self._timestep.observation['instruction'])

  @property
  def state(self) -> np.ndarray:
    return self.image

  @property
  def image(self) -> np.ndarray:
    return self._timestep.observation['image']

  @property
  def reached(self) -> bool | None:
    if not self._has_ground_truth or self._timestep.first():
      return None
    return bool(self._timestep.reward)

  @property
  def over(self) -> bool:
    return self._timestep.last()

  def lines(self, state: np.ndarray) -> list[screen.Line]:
    return screen.picture(state, self._width)

  def notes(self, state: np.ndarray) -> list[screen.Line]:
    del state
    return []


class Show:
  """A policy's episodes, one after another: a `screen.View`."""

  def __init__(self, trained: 'trained_lib.Trained', name: str,
               seed: int | None = None, greedy: bool = False):
    """Starts the first episode of a run of this name, paused."""
    seeds = np.random.SeedSequence(seed).spawn(2)
    environment = trained.world.make_environment(
        int(seeds[0].generate_state(1)[0]))
    self._game: _Game = (
        _GridLU(environment) if isinstance(environment, gridlu.GridLU) else
        _Pictures(trained.world, environment))
    self._policy = trained.as_policy(seeds[1], greedy)
    self._reward_model = (
        None if trained.phi is None else trained.as_reward_model())
    self._threshold = trained.config.reward_threshold
    if len(name) > screen.PANEL_WIDTH:
      name = '...' + name[3 - screen.PANEL_WIDTH:]
    world = trained.config.world
    if isinstance(environment, gridlu.GridLU):
      texts = progress.counted(len(environment.instructions), 'instruction')
      world = f'{world}, {texts}'
    self._title = (
        name, f'{trained.steps:,} training steps, '
        f'{"greedy" if greedy else "sampled"}', world[-screen.PANEL_WIDTH:])
    self._playing = False
    self._speed = _FIRST_SPEED
    self._begin()
    self._policy(*self._inputs())  # So it is compiled before the screen opens.

  def _begin(self) -> None:
    self._game.begin()
    self.steps: list[Step] = []  # The episode so far.
    self._keep('start')

  def _inputs(self) -> tuple[np.ndarray, list[str]]:
    """Returns the inputs of the networks for the current state."""
    return self._game.image[None], [self._game.instruction]

  def _keep(self, action: str) -> None:
    """Computes D for the current state and appends it to the episode."""
    probability = None
    if self._reward_model is not None:
      probability = float(self._reward_model(*self._inputs())[0])
    self.steps.append(Step(
        action, self._game.state, probability, self._game.reached))

  @property
  def over(self) -> bool:
    return self._game.over

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
    action, = self._policy(*self._inputs())
    self._keep(self._game.step(int(action)))

  def press(self, key: str) -> bool:
    """Returns False if the key quits; otherwise does what the key asks."""
    if key == 'q':
      return False
    if key in ('space', 'right'):
      self._playing = False
      self.tick()
    elif key == 'p':
      self._playing = not self._playing
    elif key in ('+', '='):  # Many keyboards have both on one key.
      self._speed = min(self._speed + 1, len(_SPEEDS) - 1)
    elif key in ('-', '_'):
      self._speed = max(self._speed - 1, 0)
    elif key == 'n':
      self._begin()
    return True

  def lines(self) -> list[screen.Line]:
    now = self.steps[-1]
    reward_model, bar = 'no reward model in this run', ''
    if now.probability is not None:
      verdict = (
          f'> {self._threshold:g}, accepted'
          if now.probability > self._threshold else
          f'<= {self._threshold:g}, rejected')
      reward_model = f'{now.probability:.3f} {verdict}'
      filled = round(_BAR * now.probability)
      bar = '[' + '#' * filled + '.' * (_BAR - filled) + ']'
    speed = f'{_SPEEDS[self._speed]:g} steps a second'
    panel = [
        *map(screen.line, self._title),
        screen.line(f'Step     {len(self.steps) - 1}{self._game.length}' +
                    (', the last' if self.over else '')),
        *self._game.notes(now.state),
        screen.line(f'D(c, s)  {reward_model}', bold=True),
        screen.line(f'         {bar}'),
        screen.line('Goal     ' + _GOALS[now.reached], bold=bool(now.reached)),
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
        self._game.instruction, self._game.lines(now.state), panel,
        self._game.keys)


def _define_flags() -> None:
  options.define_run()
  options.define_seed(None)
  options.define_play()


@program.main(_define_flags, expand=flagfiles.expand)
def main() -> None:
  """Shows the policy of a run."""
  values = flags.FLAGS
  options.check(values.run_dir, values.checkpoint, values.world, values.model,
                values.instructions)
  screen.check_terminal()
  screen.show(Show(
      options.load(values), values.run_dir, values.seed, values.greedy))


if __name__ == '__main__':
  main()
