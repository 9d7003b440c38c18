"""The settings of a run: the name, default, help and limits of each.

The defaults are the paper's values for AGILE on GridLU-Relations. Where the
paper states none, they are our choices. Two defaults differ from its text:
lambda, on which the text is unclear, and solved_starts, where we follow its
curves instead. docs/differences.md lists all of these.
"""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
import json
import operator
import os
import re
import sys
import types
from typing import Any

from absl import flags

import agile_tf
from agile_tf import records
from gridlu import files
from gridlu import program
from gridlu import schema
from gridlu import splits
from gridlu import tasks
from gridlu import world as world_lib


class ConfigError(program.UserError):
  """An invalid setting. The message names it, what was expected and the fix."""


class MissingError(ConfigError):
  """The file with a run's settings does not exist."""


def setting(default: Any, text: str, *, low: float | None = None,
             high: float | None = None, above: float | None = None,
             choices: tuple[str, ...] = (), of_run: bool = False,
             of_gridlu: bool = False, path: bool = False, late: bool = False
            ) -> Any:
  """Declares a setting of the default's type, and the help of its flag.

  Args:
    default: Its default, which also says its type.
    text: The help of its flag.
    low: The least value.
    high: The largest value.
    above: A value that it must exceed.
    choices: The values that it may have; () stands for any.
    of_run: It only affects how a run is carried out, so that a resumed run may
      change it.
    of_gridlu: It has a meaning for GridLU alone.
    path: It is the path of a file or a directory.
    late: It was added later. A run whose config.json lacks it has the default.

  The marks `of_run`, `of_gridlu`, `path` and `late` have an effect in `Config`
  alone.
  """
  return dataclasses.field(default=default, metadata={
      'text': text, 'low': low, 'high': high, 'above': above,
      'choices': choices, 'of_run': of_run, 'of_gridlu': of_gridlu,
      'path': path, 'late': late})


MODELS = ('nmn', 'lstm')


@dataclasses.dataclass(frozen=True)
class Config:
  """The settings of a run. Every field is a flag of the same name."""

  # The task.
  world: str = setting(
      'relations', 'What to train on: a GridLU task ('
      f'{", ".join(tasks.TASKS)}), or your own world as '
      '"package.module:function", a function that returns what '
      'agile_tf.worlds.from_environment or from_gymnasium makes.')
  instructions: str = setting(
      '', 'Restricts GridLU to the instructions that contain a match of this '
      'regular expression. "AGENT" selects the 150 go-to instructions.',
      of_gridlu=True)
  held_out: str = setting(
      'none', 'Which GridLU instructions to keep out of training, for '
      'evaluation: "none"; a share of all "strings" (as in the paper); or a '
      'share of all "meanings", each with every string that has it.',
      choices=('none', *splits.WAYS), of_gridlu=True)
  held_out_share: float = setting(
      0.1, 'The share that --held_out keeps out of training.', above=0, high=1,
      of_gridlu=True)
  held_out_seed: int = setting(
      0, 'The seed that selects what --held_out keeps out.', low=0,
      of_gridlu=True)
  physics: str = setting(
      'normal', "GridLU's physics: the agent can carry every block, or every "
      'block but red rects (figure 5).',
      choices=tuple(world_lib.PHYSICS), of_gridlu=True)
  episode_length: int = setting(
      30, 'Steps in a GridLU episode.', low=1, high=2**31 - 1, of_gridlu=True)
  solved_starts: bool = setting(
      False, 'Whether an episode of a GridLU task with a ground truth may '
      "begin in a goal state; the paper's curves suggest that none does.",
      of_gridlu=True)
  truncate: bool = setting(
      False, 'Whether the end of a GridLU episode is a truncation, where '
      'returns bootstrap, instead of a termination.', of_gridlu=True)

  # The networks.
  model: str = setting(
      'nmn', 'Both networks: "nmn" (FiLM-NMN) follows the tree of the '
      'instruction, "lstm" (FiLM-LSTM) reads it as a sequence. Or your own '
      'networks as "package.module:function", a function of a World that '
      'returns an agile_tf.agent.networks.Pair.')

  # The reward.
  reward: str = setting(
      'discriminator', "Where the policy's reward comes from: "
      '"discriminator", which is trained at the same time (AGILE); '
      '"environment", the ground truth (A3C); or "frozen", the discriminator '
      'of another run (--reward_model), not trained further.',
      choices=('discriminator', 'environment', 'frozen'))
  reward_model: str = setting(
      '', 'The directory of the run, or of the reward model alone, whose '
      'discriminator --reward=frozen uses.',
      path=True)
  reward_form: str = setting(
      'decision', "The reward as a function of the discriminator's output D: "
      '"decision" (1 if D accepts the state, else 0), "probability" (D), "log" '
      '(log D, at least -10) or "gail" (-log(1 - D), at most 10).',
      choices=('decision', 'probability', 'log', 'gail'))
  reward_threshold: float = setting(
      0.5, 'The probability D that a state must exceed to be accepted as a '
      'goal state, by the reward and in all metrics.', low=1e-6,
      high=1 - 1e-6, late=True)
  reward_scale: float = setting(
      0.1, 'The factor of all rewards.', above=0)
  reward_prediction: bool = setting(
      False, "Whether the policy also learns to predict rewards: the ground "
      "truth's (A3C-RP), or the discriminator's decisions, which the paper "
      'does not do.')
  reward_prediction_cost: float = setting(
      1.0, 'The weight of the reward prediction loss.', above=0)
  reward_prediction_batch_size: int = setting(
      4, 'Replayed states for each rollout of a worker.', low=2)
  reward_prediction_replay_size: int = setting(
      30_000, 'The capacity of the replay buffer of reward prediction, which '
      'all workers share, in states.', low=1)

  # The run that this one branches from.
  branch_from: str = setting(
      '', 'Begins a new run with what another run had learned, as "RUN@STEP": '
      'both networks, their optimiser states, the replay buffers and the '
      'count of steps are those of its checkpoint of that step. Settings may '
      'differ from that run, and episodes and random numbers are new, from '
      '--seed.')

  # The policy.
  initial_policy: str = setting(
      '', 'The run directory whose policy this run begins with. The optimiser '
      'starts anew.', path=True)
  policy_learning_rate: float = setting(
      3e-4, "The learning rate of the policy's optimiser.", above=0)
  policy_decay: float = setting(
      0.99, "The decay of the mean square in the policy's optimiser.", low=0,
      high=1)
  policy_epsilon: float = setting(
      0.1, "The epsilon of the policy's optimiser: inside the square root of "
      "RMSProp, outside that of Adam.", above=0)
  policy_gradient_norm: float = setting(
      40.0, "The norm to which each worker's policy gradient is clipped.",
      above=0)
  rollout_length: int = setting(
      15, 'Steps of a rollout, after which the policy is updated. A rollout '
      'also ends with its episode.', low=1, high=10_000)
  discount: float = setting(0.99, 'gamma, the discount.', low=0, high=1)
  td_lambda: float = setting(
      1.0, "lambda of the returns; 1 gives A3C's n-step returns.", low=0,
      high=1)
  baseline_cost: float = setting(
      1.0, 'The weight of the baseline loss.', low=0)
  entropy_weight: float = setting(
      0.01, "alpha, the weight of the policy's entropy.", low=0)
  policy_workers: int = setting(
      15, 'Workers that train the policy.', low=1, high=10_000)
  policy_threads: int = setting(
      15, 'Threads that share the policy workers equally; the number must '
      "divide --policy_workers. With 1, these workers and the discriminator's "
      'iterate in lockstep, and a run on a CPU is repeatable. A run may go on '
      'with another number, unless --policy_update=averaged.', low=1,
      high=1000)

  # The discriminator.
  discriminator_learning_rate: float = setting(
      5e-4, "The learning rate of the discriminator's optimiser.", above=0)
  discriminator_decay: float = setting(
      0.9, "The decay of the mean square in the discriminator's optimiser.",
      low=0, high=1)
  discriminator_epsilon: float = setting(
      1e-10, "The epsilon of the discriminator's optimiser: inside the square "
      'root of RMSProp, outside that of Adam.', above=0)
  discriminator_gradient_norm: float = setting(
      25.0, "The norm to which the discriminator's gradient is clipped.",
      above=0)
  batch_size: int = setting(
      256, 'Examples in a batch of the discriminator; half of them are goal '
      'examples.', low=2, high=10**6)
  anticipated_negative_rate: float = setting(
      0.25, 'rho: the share of the pairs drawn from the replay buffer B that '
      'the discriminator is trained on, as negatives. The rest, which it rates '
      'highest, is dropped. 1 drops none.', low=1e-6, high=1)
  max_column_norm: float = setting(
      1.0, 'The L2 norm to which the incoming weights of each unit of the '
      'discriminator are clipped; 0 turns this off.', low=0)
  limit_film_tables: bool = setting(
      False, "Whether --max_column_norm also limits the FiLM-NMN's gamma and "
      'beta, tables with a row for each token. The matrices from which the '
      'FiLM-LSTM computes gamma and beta are always limited.')
  replay_size: int = setting(
      100_000, "The capacity of the discriminator's replay buffer B, in pairs "
      'of an instruction and a state.', low=1, high=10**15)
  all_workers_write: bool = setting(
      False, "Whether the policy workers add their states to B, as the "
      "discriminator's worker does.")
  first_states_in_buffer: bool = setting(
      False, "Whether the discriminator's worker also adds to B the state in "
      'which a rollout begins, as a literal reading of line 6 of Algorithm 1 '
      'has it: R + 1 states of a rollout of R steps.')
  steps_per_discriminator_update: int = setting(
      225, "Policy steps for each iteration of the discriminator's worker. "
      'Workers that are ahead of this ratio wait. 0 sets no ratio: threads run '
      'free, and one thread alone iterates all workers equally often.', low=0)
  dataset: str = setting(
      '', 'A file of goal examples (see gridlu/goal_dataset.py). By default '
      '--dataset_size of them are generated.', path=True)
  dataset_size: int = setting(
      131_072, 'The number of goal examples to generate.', low=1,
      of_gridlu=True)
  dataset_seed: int = setting(
      0, 'The seed of the generated goal examples.', low=0, of_gridlu=True)
  held_out_goals: float = setting(
      0.0, 'The share of the goal examples that nothing is trained on. The '
      'metrics and agile_tf.evaluate say how many of them the discriminator '
      'accepts, which shows how good it is where nobody knows the truth. 0.02 '
      'is a good choice.', low=0, high=0.5, late=True)

  # The run.
  steps: int = setting(
      500_000_000, 'Policy steps to train for, summed over all workers.',
      low=1, high=900_000_000_000,  # A checkpoint's name has twelve digits.
      of_run=True)
  seed: int = setting(
      0, 'The seed of everything but the goal examples and the held-out '
      'instructions.', low=0)
  run_dir: str = setting(
      '', "The directory of the run's files. If it contains a run, that run is "
      'resumed.', of_run=True, path=True)
  devices: str = setting(
      'auto', 'The devices that policy threads are dealt over: "auto" (every '
      'GPU of the machine, or its CPU), or a list such as GPU:0,GPU:2, or '
      'CPU:0. The first also keeps the parameters and trains the '
      'discriminator.',
      of_run=True)
  log_steps: int = setting(
      10_000, 'Steps from one row of metrics to the next.', low=1, of_run=True)
  checkpoint_minutes: float = setting(
      10.0, 'Minutes from one checkpoint to the next.', above=0, of_run=True)
  checkpoints_kept: int = setting(
      3, 'How many of the newest checkpoints are kept.', low=1, of_run=True)

  def __post_init__(self):
    check(self)
    for name in marked('path'):
      object.__setattr__(self, name, program.clean_path(getattr(self, name)))
    if self.model not in MODELS and ':' not in self.model:
      raise ConfigError(
          f'--model={self.model}: expected one of {", ".join(MODELS)}, or '
          '"package.module:function".')
    if self.policy_workers % self.policy_threads:
      divisors = [str(i) for i in range(1, self.policy_workers + 1)
                  if not self.policy_workers % i]
      raise ConfigError(
          f'--policy_threads={self.policy_threads} does not divide '
          f'--policy_workers={self.policy_workers}; use one of '
          f'{", ".join(divisors)}.')
    if self.batch_size % 2:
      raise ConfigError(
          f'--batch_size={self.batch_size} is odd; half of a batch are goal '
          'examples, so use an even number.')
    if self.branch_from:
      run, at, step = self.branch_from.rpartition('@')
      if not (run and at and re.fullmatch('[0-9]{1,12}', step)):
        raise ConfigError(
            f'--branch_from={self.branch_from}: expected the directory of a '
            'run and a step of one of its checkpoints, such as '
            'runs/relations@63700000.')
      object.__setattr__(
          self, 'branch_from', f'{program.clean_path(run)}@{int(step)}')
      for name in 'initial_policy', 'reward_model':
        if getattr(self, name):
          raise ConfigError(
              f'--{name}={getattr(self, name)} with --branch_from: a branch '
              'has the networks of the other run, so leave one of the flags '
              'out.')
    if self.held_out_goals and not self.trains_discriminator:
      raise ConfigError(
          f'--held_out_goals={self.held_out_goals} with '
          f'--reward={self.reward}: only a run that trains a discriminator '
          'tests it on goal examples. Leave one of the flags out.')
    if (self.reward == 'frozen') != bool(self.reward_model):
      raise ConfigError(
          f'--reward={self.reward} with --reward_model={self.reward_model!r}: '
          'a frozen reward needs the directory of the run whose discriminator '
          'it uses, and the other rewards need an empty --reward_model.')

  @property
  def branch(self) -> tuple[str, int] | None:
    """The run and the step that --branch_from names."""
    run, _, step = self.branch_from.rpartition('@')
    return (run, int(step)) if run else None

  @property
  def trains_discriminator(self) -> bool:
    return self.reward == 'discriminator'


def check(settings: Any) -> None:
  """Raises ConfigError for a setting of another type or out of its range."""
  for field in dataclasses.fields(settings):
    value, limits = getattr(settings, field.name), field.metadata
    kind, choices = type(field.default), limits['choices']
    bounds = [bound for bound in (
        ('at least', limits['low'], operator.ge),
        ('more than', limits['above'], operator.gt),
        ('at most', limits['high'], operator.le)) if bound[1] is not None]
    # A bool is no int here, but an int may stand for a float.
    kinds = (float, int) if kind is float else (kind,)
    expected = ''
    if type(value) not in kinds:
      expected = f'{kind.__name__}, not {type(value).__name__}'
    elif choices and value not in choices:
      expected = f'one of {", ".join(choices)}'
    elif kind is str and '\0' in value:
      expected = 'a text without the character NUL'
    elif kind is str and not value.isascii() and (
        value.encode(errors='ignore').decode() != value):
      expected = 'a text that UTF-8 can encode'
    elif field.name == 'run_dir' and '://' in value:
      expected = 'a directory of this machine, not an address'
    elif kind is float and not abs(value) <= sys.float_info.max:
      expected = 'a finite number'
    elif not all(compare(value, limit) for _, limit, compare in bounds):
      expected = ' and '.join(f'{words} {limit}' for words, limit, _ in bounds)
    if expected:
      raise ConfigError(f'--{field.name}={value!s:.100}: expected {expected}.')


def define_flags(kind: type = Config,
                 flag_values: flags.FlagValues = flags.FLAGS) -> None:
  """Defines a flag for each setting of a dataclass."""
  define: dict[type, Callable[..., Any]] = {
      bool: flags.DEFINE_bool, int: flags.DEFINE_integer,
      float: flags.DEFINE_float, str: flags.DEFINE_string}
  for field in dataclasses.fields(kind):
    options = dict(name=field.name, default=field.default,
                   help=field.metadata['text'], flag_values=flag_values)
    if choices := field.metadata['choices']:
      flags.DEFINE_enum(enum_values=choices, **options)
    else:
      define[type(field.default)](**options)


def from_flags(values: flags.FlagValues, kind: type = Config) -> Any:
  """Reads the settings of a dataclass from parsed flags, or ConfigError."""
  return kind(**{
      field.name: getattr(values, field.name)
      for field in dataclasses.fields(kind)})


def save(settings: dict[str, Any], path: str) -> None:
  """Writes a run's settings by name as JSON, or raises ConfigError."""
  try:
    with files.replacing(path) as file:
      json.dump(settings, file, indent=2)
      file.write('\n')
  except OSError as error:
    raise ConfigError(
        f'{path} cannot be written ({error}). Free some disk space, or make '
        'the directory writable.') from error


# A run's settings may have these two names besides those of `Config` and of the
# recipe. The first has the SHA-256 of the file that --dataset names, the second
# has a list of the instructions that match --instructions.
DATASET_SHA256 = 'dataset_sha256'
SELECTED = 'selected_instructions'


def read(path: str) -> dict[str, Any]:
  """Reads the settings by name that `save` wrote, and completes them.

  Raises:
    MissingError: if there is no such file.
    ConfigError: if the file cannot be read or has something else.
  """
  try:
    return complete(records.json_file(path, schema.named({}, {
        DATASET_SHA256: schema.TEXT, SELECTED: schema.each(schema.TEXT)})))
  except FileNotFoundError:
    raise MissingError(
        f'There is no {path}: expected a directory that agile_tf.launch '
        'wrote. The trained agent that comes with the package is in '
        f'{agile_tf.TRAINED}.') from None
  except (OSError, MemoryError) as error:
    raise ConfigError(f'{path} cannot be read: {error}.') from error
  except ValueError as error:
    raise ConfigError(f'{path} is not a configuration ({error}).') from error


def complete(settings: Mapping[str, Any],
             defaults: Mapping[str, Any] = types.MappingProxyType({})
            ) -> dict[str, Any]:
  """Adds the `late` settings that those of an earlier run lack.

  It also adds `defaults`, those of settings beyond `Config`.
  """
  return dict(defaults) | {
      name: getattr(Config, name) for name in marked('late')} | dict(settings)


def check_names(found: Iterable[str], known: Iterable[str], path: str) -> None:
  """Raises ConfigError unless the settings at a path are those of a run.

  `found` are the names that `read` found there, `known` are those of all
  settings.
  """
  found, known = (
      set(names) - {DATASET_SHA256, SELECTED} for names in (found, known))
  if unknown := sorted(found - known):
    raise ConfigError(
        f'{path}: This version has no setting {", ".join(unknown)}: the run is '
        'of another version. Commit ad1cf9b reads those of release 0.1.0, and '
        'of all commits up to itself; CHANGELOG.md says how to convert those '
        'of release 0.2.0. If the file is of no run, choose another '
        '--run_dir.')
  if missing := sorted(known - found):
    raise ConfigError(
        f'{path} lacks the settings {", ".join(missing)}. A checkpoint of the '
        "run has all of them, as 'config' in its state.json. If the run is of "
        'an earlier version, that version can resume it. To play or evaluate '
        'it with this version, add them with the defaults that '
        '`agile_tf.launch --help` names: they change nothing.')


def marked(mark: str) -> list[str]:
  """Returns the settings of `Config` that have a mark, such as 'path'.

  Those of the recipe, which have no marks, are not among them.
  """
  return [field.name for field in dataclasses.fields(Config)
          if field.metadata[mark]]


def differences(old: Mapping[str, Any], new: Mapping[str, Any],
                defaults: Mapping[str, Any] = types.MappingProxyType({})
               ) -> list[str]:
  """Returns a line for each setting in which two runs differ.

  Settings that only affect how a run is carried out are left out; so is the
  number of policy threads, unless their workers' gradients are averaged. Two
  paths that lead to the same place, and two files of goal examples with the
  same content, are no difference. The list `SELECTED` is not compared, because
  --instructions is.

  Args:
    old: The settings of the run that exists, by name.
    new: The settings of a run that is to start, by name.
    defaults: What settings beyond `Config` have in a run that was begun before
      they existed.
  """
  old, new = (complete(each, defaults) for each in (old, new))
  ignored = {SELECTED, *marked('of_run'), *(
      name for name in marked('path') if old.get(name) and new.get(name) and
      os.path.realpath(old[name]) == os.path.realpath(new[name]))}
  if new.get('policy_update') != 'averaged':
    ignored.add('policy_threads')
  if DATASET_SHA256 not in old or DATASET_SHA256 not in new:
    ignored.add(DATASET_SHA256)
  elif old[DATASET_SHA256] == new[DATASET_SHA256]:
    ignored.add('dataset')
  labels = {DATASET_SHA256: 'the SHA-256 of the goal examples'}

  def shown(values: dict[str, Any], name: str) -> str:
    return repr(values[name]) if name in values else 'not set'

  return [
      f'{labels.get(name, f"--{name}")}: {shown(old, name)} there, '
      f'{shown(new, name)} here'
      for name in dict.fromkeys([*old, *new])
      if name not in ignored and old.get(name) != new.get(name)]
