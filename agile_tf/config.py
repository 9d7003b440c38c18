"""Every hyperparameter once: name, default, help, and what the paper says.

Flags, a run's `config.json` and the comparison with the paper's table all
derive from `Config`. Defaults are the paper's values for GridLU-Relations with
AGILE. Flags are defined by `define_flags` and read by `from_flags` alone.
"""

from collections.abc import Callable, Iterable
import dataclasses
import json
import math
from typing import Any

from absl import flags
import numpy as np

from gridlu import files
from gridlu import program

# Flags count as those of the program that defines them, for its --help.
flags.disclaim_key_flags()


class ConfigError(program.UserError):
  """A setting that cannot be: names the value, what was expected, the fix."""


class MissingError(ConfigError):
  """There is no file with the settings of a run."""


def _setting(default: Any, text: str, *, low: float | None = None,
             high: float | None = None, above: float | None = None,
             choices: tuple[str, ...] = (), of_run: bool = False,
             double: bool = False) -> Any:
  """Declares a setting.

  Args:
    default: Its value and with it its type.
    text: The flag's help.
    low: The smallest value allowed.
    high: The largest value allowed.
    above: A bound that the value must exceed.
    choices: The values allowed.
    of_run: Whether it only says how a run is carried out, so that a resumed
      run may change it.
    double: Of a float, whether Python alone computes with it. All others end
      in TensorFlow, in float32.
  """
  return dataclasses.field(default=default, metadata={
      'text': text, 'low': low, 'high': high, 'above': above,
      'choices': choices, 'of_run': of_run, 'double': double})


@dataclasses.dataclass(frozen=True)
class Config:
  """What a run is made of; every field is a flag of the same name."""

  # The task.
  world: str = _setting(
      'relations', 'What to train on: "relations" or "arrangements" (GridLU), '
      'or "package.module:function" of a function that returns an '
      'agile_tf.worlds.World of your own.')
  instructions: str = _setting(
      '', "Which of GridLU's instructions occur: those in whose text this "
      'regular expression is found. "AGENT" leaves the 150 go-to instructions, '
      '"SameLocation.*AGENT" 30 of these.')
  held_out: str = _setting(
      'none', 'What is held out of episodes and goal examples, for evaluation: '
      "a share of GridLU's instructions as strings (the paper's way) or as "
      'meanings, together with the other string that means the same.',
      choices=('none', 'strings', 'meanings'))
  held_out_share: float = _setting(
      0.1, 'The share that --held_out holds out.', above=0, high=1,
      double=True)
  held_out_seed: int = _setting(
      0, 'Decides which ones.', low=0)
  physics: str = _setting(
      'normal', "GridLU's physics: every block can be carried, or red rects "
      'cannot (figure 5).', choices=('normal', 'immovable_red_rects'))
  episode_length: int = _setting(
      30, 'Steps in a GridLU episode.', low=1, high=2**31 - 1)
  truncate: bool = _setting(
      False, "Whether a GridLU episode's end is a truncation (returns "
      'bootstrap there) and not a termination.')
  noop: bool = _setting(
      False, 'Whether the policy in GridLU may also do nothing, as a sixth '
      'action.')

  # The networks.
  model: str = _setting(
      'nmn', 'The networks: "nmn" follows the tree of the instruction '
      '(FiLM-NMN), "lstm" reads it as a sequence (FiLM-LSTM).',
      choices=('nmn', 'lstm'))
  discriminator_model: str = _setting(
      'same', 'The network of the discriminator; "same" is that of --model.',
      choices=('same', 'nmn', 'lstm'))

  # The reward.
  reward: str = _setting(
      'discriminator', "The policy's reward: the decision of a discriminator "
      "that is trained at the same time (AGILE), the environment's ground "
      'truth (the A3C baselines), or the decision of the frozen discriminator '
      'of another run (--reward_model).',
      choices=('discriminator', 'environment', 'frozen'))
  reward_model: str = _setting(
      '', 'The run directory whose discriminator --reward=frozen takes.')
  reward_form: str = _setting(
      'decision', "The discriminator's reward: its decision D > 0.5, the "
      'probability D, "log" D (at least -10), or "gail", -log(1 - D) (at most '
      '10).',
      choices=('decision', 'probability', 'log', 'gail'))
  reward_scale: float = _setting(
      0.1, 'The reward of a goal state.', above=0)
  reward_prediction: bool = _setting(
      False, 'Whether the policy also learns to predict rewards (A3C-RP; with '
      '--reward=discriminator it predicts the modelled reward, which the paper '
      'does not do).')
  reward_prediction_cost: float = _setting(
      1.0, "The weight of reward prediction's loss.", above=0)
  reward_prediction_batch_size: int = _setting(
      4, 'Replayed states for each rollout.', low=2)
  reward_prediction_replay_size: int = _setting(
      30_000, "States in reward prediction's replay buffer, for all workers "
      'together.', low=1)

  # The policy.
  initial_policy: str = _setting(
      '', 'The run directory whose policy this run begins with, with fresh '
      'optimiser slots.')
  policy_learning_rate: float = _setting(
      3e-4, "RMSProp's learning rate for the policy.", above=0)
  policy_decay: float = _setting(
      0.99, "RMSProp's decay of the mean square, for the policy.", low=0,
      high=1)
  policy_epsilon: float = _setting(
      0.1, "RMSProp's epsilon, inside the square root, for the policy.",
      above=0)
  policy_gradient_norm: float = _setting(
      40.0, "The norm to which a worker's policy gradient is clipped.",
      above=0)
  rollout_length: int = _setting(
      15, 'Steps from one update to the next; a rollout ends with its episode.',
      low=1, high=10_000)
  discount: float = _setting(0.99, 'gamma.', low=0, high=1)
  td_lambda: float = _setting(
      1.0, 'lambda of the returns; 1 is the n-step returns of A3C.', low=0,
      high=1)
  baseline_cost: float = _setting(
      1.0, "The weight of the baseline's loss.", low=0)
  entropy_weight: float = _setting(
      0.01, "alpha, the weight of the policy's entropy.", low=0)
  policy_workers: int = _setting(
      15, 'Workers that train the policy.', low=1, high=10_000)
  policy_threads: int = _setting(
      15, 'Threads over which these workers are dealt; they divide the '
      "workers. 1 plays all workers in lockstep, the discriminator's too, and "
      'makes a run on a CPU repeatable.', low=1, high=1000)

  # The discriminator.
  discriminator_learning_rate: float = _setting(
      5e-4, "RMSProp's learning rate for the discriminator.", above=0)
  discriminator_decay: float = _setting(
      0.9, "RMSProp's decay of the mean square, for the discriminator.", low=0,
      high=1)
  discriminator_epsilon: float = _setting(
      1e-10, "RMSProp's epsilon, inside the square root, for the "
      'discriminator.', above=0)
  discriminator_gradient_norm: float = _setting(
      25.0, "The norm to which the discriminator's gradient is clipped.",
      above=0)
  batch_size: int = _setting(
      256, 'Examples in a batch of the discriminator, half of them goals.',
      low=2)
  anticipated_negative_rate: float = _setting(
      0.25, 'rho: the share of a draw from B that is taken for true negatives; '
      '1 takes all.', above=0, high=1, double=True)
  max_column_norm: float = _setting(
      1.0, "The L2 norm to which the incoming weights of each of the "
      "discriminator's units are clipped; 0 clips none.", low=0)
  replay_size: int = _setting(
      100_000, 'Pairs in the replay buffer B.', low=1)
  all_workers_write: bool = _setting(
      False, "Whether the policy workers' states enter B too.")
  steps_per_discriminator_update: int = _setting(
      225, "Policy steps for each iteration of the discriminator's worker, "
      'held whatever the machine: whoever is ahead waits. 225 is 16 workers '
      'that iterate equally often; 0 lets the threads run free.', low=0)
  dataset: str = _setting(
      '', 'A file of goal examples (see gridlu.goal_dataset); by default '
      '--dataset_size of them are generated.')
  strict_dataset: bool = _setting(
      False, 'Refuse a --dataset for GridLU if any of its states does not '
      'satisfy its instruction, and do not only warn of it.', of_run=True)
  dataset_size: int = _setting(
      131_072, 'Pairs in the data set D.', low=1)
  dataset_seed: int = _setting(
      0, 'The seed from which D is generated.', low=0)
  dataset_carrying: float = _setting(
      0.0, "The share of D's goal states with the agent on a block in which it "
      'carries that block.', low=0, high=1, double=True)

  # The run.
  steps: int = _setting(
      500_000_000, 'Policy steps to train for, over all workers.', low=1,
      high=900_000_000_000, of_run=True)  # Checkpoints have twelve digits.
  seed: int = _setting(0, 'The seed of everything but D.', low=0)
  rollouts: str = _setting(
      'auto', 'How episodes are played: "compiled" whole rollouts in one '
      'program, where the world has its rules in TensorFlow; "environment" '
      'steps a dm_env environment in Python. "auto" compiles where it can.',
      choices=('auto', 'compiled', 'environment'))
  run_dir: str = _setting(
      '', "Where the run's files go. A directory that has a run in it is "
      'resumed.', of_run=True)
  intra_op_threads: int = _setting(
      0, 'Threads within one TensorFlow operation or compiled program; 0 is '
      'one for each CPU core that the process may use.', low=0, high=4096,
      of_run=True)
  inter_op_threads: int = _setting(
      0, 'Threads that run several operations at a time; 0 as above.', low=0,
      high=4096, of_run=True)
  log_steps: int = _setting(
      10_000, 'Steps between two rows of metrics.', low=1, of_run=True)
  image_steps: int = _setting(
      500_000, 'Steps between two episodes as images in TensorBoard.', low=1,
      of_run=True)
  checkpoint_minutes: float = _setting(
      10.0, 'Minutes between two checkpoints.', above=0, of_run=True,
      double=True)
  stall_minutes: float = _setting(
      10.0, 'After how many minutes in one iteration a worker is reported, '
      'with the place where it is. If the run has to be saved or stopped and '
      'the worker does not come within as many, the run ends with an error.',
      above=0, of_run=True, double=True)
  checkpoints_kept: int = _setting(
      3, 'How many checkpoints are kept, the newest ones.', low=1, of_run=True)
  why: str = _setting(
      '', "Why the run's hyperparameters are not the paper's; shown beside "
      'them.', of_run=True)

  def __post_init__(self):
    for field in dataclasses.fields(self):
      _check(field, getattr(self, field.name))
    if self.policy_workers % self.policy_threads:
      raise ConfigError(
          f'--policy_threads={self.policy_threads} does not divide '
          f'--policy_workers={self.policy_workers}; use one of '
          f'{", ".join(map(str, _divisors(self.policy_workers)))}.')
    if self.batch_size % 2:
      raise ConfigError(
          f'--batch_size={self.batch_size} is odd; half of a batch are goals, '
          'so use an even number.')
    draw = self.batch_size / (2 * self.anticipated_negative_rate)
    if not math.isfinite(draw) or round(draw) > self.replay_size:
      raise ConfigError(
          f'--replay_size={self.replay_size} is less than one draw from B '
          f'({draw:.15g} pairs = batch_size / (2 anticipated_negative_rate)); '
          'make it, or --anticipated_negative_rate, larger.')
    if (self.reward == 'frozen') != bool(self.reward_model):
      raise ConfigError(
          f'--reward={self.reward} with --reward_model={self.reward_model!r}: '
          'a frozen reward needs the directory of the run that it comes from, '
          'and no other reward takes one.')

  @property
  def trains_discriminator(self) -> bool:
    """Whether the run has a discriminator worker."""
    return self.reward == 'discriminator'


def _divisors(number: int) -> list[int]:
  return [i for i in range(1, number + 1) if number % i == 0]


# What float32 holds with all its digits; less than the smallest becomes 0.
_SMALLEST, _LARGEST = (
    float(limit)
    for limit in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))


# The largest whole number that NumPy and TensorFlow hold.
_MOST = 2**63 - 1


def _shown(value: Any) -> str:
  """Returns a value as an error may show it, however large it is."""
  if isinstance(value, int) and value.bit_length() > 400:
    return f'(a number of {value.bit_length()} bits)'
  text = value if isinstance(value, str) and value.isprintable() else (
      repr(value))
  return text if len(text) <= 200 else f'{text[:200]}...'


def _check(field: dataclasses.Field, value: Any) -> None:
  """Raises ConfigError if a value is of another type or out of its range."""
  kinds = (int, float) if isinstance(field.default, float) else (
      type(field.default),)
  if type(value) not in kinds:
    raise ConfigError(
        f'--{field.name}={_shown(value)}: expected {kinds[-1].__name__}.')
  problem = (
      _text_problem(field, value) if isinstance(value, str) else
      _number_problem(field, value))
  if problem:
    raise ConfigError(f'--{field.name}={_shown(value)}: expected {problem}.')


def _text_problem(field: dataclasses.Field, value: str) -> str:
  """Returns what was expected in place of a text, '' if it is good."""
  choices = field.metadata['choices']
  if choices and value not in choices:
    return 'one of ' + ', '.join(choices)
  try:
    value.encode()
  except UnicodeEncodeError:  # What Python makes of other bytes.
    return 'text in UTF-8'
  return 'text without a null character' if '\0' in value else ''


def _number_problem(field: dataclasses.Field, value: float) -> str:
  """Returns what was expected in place of a number, '' if it is good."""
  limits = field.metadata
  low, above, high = limits['low'], limits['above'], limits['high']
  if high is None and isinstance(value, int):
    high = _MOST
  if (isinstance(value, float) and not math.isfinite(value) or
      low is not None and value < low or
      above is not None and value <= above or
      high is not None and value > high):
    wanted = [f'{words} {limit}'
              for words, limit in (('at least', low), ('more than', above),
                                   ('at most', limits['high']))
              if limit is not None]
    if limits['high'] is None and high is not None and value > high:
      wanted.append(f'at most {high}')
    return ' and '.join(wanted) or 'a finite number'
  if isinstance(field.default, float) and not limits['double'] and value and (
      not _SMALLEST <= abs(value) <= _LARGEST):
    return (f'what float32 can hold, from {_SMALLEST:.2g} to {_LARGEST:.2g}'
            f'{"" if above == 0 else ", or 0"}')
  return ''


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
  """Defines a flag for each setting."""
  define: dict[type, Callable[..., Any]] = {
      bool: flags.DEFINE_bool, int: flags.DEFINE_integer,
      float: flags.DEFINE_float, str: flags.DEFINE_string}
  for field in dataclasses.fields(Config):
    choices = field.metadata['choices']
    if choices:
      flags.DEFINE_enum(
          field.name, str(field.default), choices, field.metadata['text'],
          flag_values=flag_values)
    else:
      define[type(field.default)](
          field.name, field.default, field.metadata['text'],
          flag_values=flag_values)


def from_flags(values: flags.FlagValues) -> Config:
  """Reads the settings from parsed flags.

  Raises:
    ConfigError: if a value is out of its range or does not fit another.
  """
  return Config(**{
      field.name: getattr(values, field.name)
      for field in dataclasses.fields(Config)})


def save(config: Config, path: str) -> None:
  """Writes a configuration as JSON.

  Raises:
    ConfigError: if it cannot be written.
  """
  try:
    with files.replacing(path) as file:
      json.dump(dataclasses.asdict(config), file, indent=2)
      file.write('\n')
  except OSError as error:
    raise ConfigError(
        f'{path} cannot be written ({error}). Make space, or let the '
        'directory be written.') from error


def load(path: str) -> Config:
  """Reads what `save` wrote.

  Raises:
    MissingError: if there is no such file.
    ConfigError: if it cannot be read, or is not a configuration.
  """
  try:
    with open(path, encoding='utf-8') as file:
      text = file.read()
    return Config(**files.parse_json(text))
  except FileNotFoundError:
    raise MissingError(
        f'There is no {path}: expected a directory that agile_tf.launch '
        'wrote.') from None
  except OSError as error:
    raise ConfigError(f'{path} cannot be read: {error}.') from error
  except (ValueError, TypeError) as error:  # Not JSON, or not our settings.
    raise ConfigError(
        f'{path} is not a configuration of this version ({error}).') from error


def differences(old: Config, new: Config) -> Iterable[str]:
  """Lists the settings that make two runs different, one a line.

  Settings that only say how a run is carried out are left out.
  """
  return [
      f'--{field.name}: {getattr(old, field.name)!r} there, '
      f'{getattr(new, field.name)!r} here'
      for field in dataclasses.fields(Config)
      if not field.metadata['of_run'] and
      getattr(old, field.name) != getattr(new, field.name)]
