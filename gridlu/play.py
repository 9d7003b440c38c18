"""Program: play GridLU in the terminal, or record optimal solutions.

  python -m gridlu.play --task=arrangements
  python -m gridlu.play --demonstrate=3 --record=expert.gif

The arrow keys move, space lifts a block or puts it down, `.` or w waits, r
starts a new instance and q quits. `gridlu.screen` explains how to read the
board. With --demonstrate no terminal is needed.
"""

from collections.abc import Iterator

from absl import flags

from gridlu import environment as environment_lib
from gridlu import files
from gridlu import flagfiles
from gridlu import program
from gridlu import recording as recording_lib
from gridlu import screen
from gridlu import solver
from gridlu import tasks
from gridlu import world

ACTIONS = {  # `screen.key_name` returns these names.
    'up': world.Action.UP, 'down': world.Action.DOWN,
    'left': world.Action.LEFT, 'right': world.Action.RIGHT,
    'space': world.Action.INTERACT, '.': world.Action.NOOP,
    'w': world.Action.NOOP}

_KEYS = ('arrows move   space lifts or puts down   . waits',
         'r new instance   q quits')
_LEGEND = ('(r)   a red circle', '[g]   a green rect',
           '/b\\   a blue triangle', '.--.  the agent, free',
           '****  the agent with its block')


class Game:
  """A `screen.View` of the episodes that a person plays."""

  delay = None

  def __init__(self, environment: environment_lib.GridLU,
               recording: recording_lib.Recording | None = None):
    """Starts the first episode; every state is added to the recording."""
    self._environment = environment
    self._recording = recording
    self._begin()

  def _begin(self) -> None:
    self._environment.reset()
    self._num_steps = 0
    if self._recording is not None:
      self._recording.begin()
    self._record('start')

  def _record(self, what: str) -> None:
    if self._recording is not None:
      reached = ', goal reached' if self._environment.success else ''
      self._recording.add(
          self._environment.state, f'{self._environment.instruction}: step '
          f'{self._num_steps}, {what}{reached}')

  @property
  def _left(self) -> int:
    """The steps left in the episode."""
    return self._environment.episode_length - self._num_steps

  def press(self, key: str) -> bool:
    """Acts on a key; returns False to quit."""
    if key == 'r':
      self._begin()
    elif key in ACTIONS and self._left:
      self._environment.step(ACTIONS[key])
      self._num_steps += 1
      self._record(ACTIONS[key].name)
    return key != 'q'

  def tick(self) -> None:
    """Does nothing: only keys change the game."""

  def lines(self) -> list[screen.Line]:
    environment = self._environment
    state = environment.state
    reached = 'reached' if environment.success else 'not reached'
    panel = [
        screen.line(environment.task.title),
        screen.line(''),
        screen.line(f'Steps  {self._num_steps} taken, {self._left} left'),
        screen.line(f'Agent  {screen.agent_text(state)}'),
        screen.line(f'Goal   {reached}', bold=environment.success),
        screen.line('')]
    if not self._left:
      panel += [screen.line(f'The episode is over: {reached}.', bold=True),
                screen.line('Press r for a new instance.')]
    else:
      panel += [screen.line('')] * 2
    panel += [screen.line('')] + [screen.line(text) for text in _LEGEND]
    return screen.compose(
        str(environment.instruction), screen.board(state), panel, _KEYS)


_KEY_OF = {action: key for key, action in ACTIONS.items()}


def demonstrate(environment: environment_lib.GridLU, episodes: int,
                recording: recording_lib.Recording | None) -> Iterator[str]:
  """Plays and records shortest solutions; yields a sentence about each."""
  game = Game(environment, recording)
  for i in range(episodes):
    if i:
      game.press('r')
    solution = solver.solve(
        environment.instruction, environment.state, environment.physics,
        max_steps=environment.episode_length)
    for action in solution.actions or ():
      game.press(_KEY_OF[action])
    result = {
        solver.UNSOLVABLE: 'no solution within an episode',
        solver.UNKNOWN: 'no solution was found'}.get(
            solution.steps, f'solved in {solution.steps} steps')
    # The solver takes a carried block for one that has arrived.
    if solution.actions is not None and not environment.success:
      result = 'not solved, because a carried block does not count here'
    yield f'{environment.instruction}: {result}'


def _define_flags() -> None:
  flags.DEFINE_enum(
      'task', 'relations', tuple(tasks.TASKS), 'The task to play.')
  flags.DEFINE_string(
      'instruction', None, 'The instruction of every episode; default: drawn '
      "from the task's. Example: --instruction=\"NorthFrom(AGENT, Color('red', "
      'SCENE))".')
  flags.DEFINE_integer(
      'seed', None, 'Determines the instances; default: a random seed.',
      lower_bound=0, upper_bound=2**63 - 1)
  program.define_path(
      'record', None, 'A GIF file that shows the last '
      f'{recording_lib.RECORDED_EPISODES} episodes with at least one step. It '
      'is written at the end and replaces an existing file.')
  flags.DEFINE_integer(
      'demonstrate', 0, 'Instead of playing, solve this many instances: print '
      'the length of a shortest solution of each, and record the last '
      f'{recording_lib.RECORDED_EPISODES} to --record.', lower_bound=0,
      upper_bound=10**6)


@program.main(_define_flags, expand=flagfiles.expand)
def main() -> None:
  """Lets a person play, or solves instances."""
  values = flags.FLAGS
  recording = None
  if values.record is not None:
    files.check_output('record', values.record, '.gif')
    recording = recording_lib.Recording()
  chosen = None if values.instruction is None else [values.instruction]
  try:
    environment = environment_lib.GridLU(
        values.task, values.seed, instructions=chosen)
  except ValueError as error:
    raise program.UserError(
        f'--instruction does not fit --task={values.task}: {error}') from error
  if not values.demonstrate:
    screen.check_terminal()
  try:
    if values.demonstrate:
      for text in demonstrate(environment, values.demonstrate, recording):
        print(program.printable(text), flush=True)
    else:
      screen.show(Game(environment, recording))
  finally:
    if recording is not None:
      print(program.printable(recording.save(values.record)))


if __name__ == '__main__':
  main()
