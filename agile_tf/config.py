"""The settings of a run: the name, default, help and limits of each.

Flags, a run's `config.json` and the comparison with the paper's table are all
made from `Config`. Where the paper states a value for AGILE on
GridLU-Relations, that is the default (lambda is the exception). The other
defaults are our choices; launch/README.md lists them. Only `define_flags`
defines these flags, and only `from_flags` reads them.
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
from gridlu import tasks

# Flags count as those of the program that defines them, for its --help.
flags.disclaim_key_flags()


class ConfigError(program.UserError):
  """An invalid setting. The message names it, what was expected and the fix."""


class MissingError(ConfigError):
  """The file with a run's settings does not exist."""


def _setting(default: Any, text: str, *, low: float | None = None,
             high: float | None = None, above: float | None = None,
             choices: tuple[str, ...] = (), of_run: bool = False,
             of_gridlu: bool = False, double: bool = False) -> Any:
  """Declares a setting.

  Args:
    default: The default value. Its type is the setting's type.
    text: The flag's help.
    low: The smallest allowed value.
    high: The largest allowed value.
    above: A bound that the value must exceed.
    choices: The allowed values; empty allows all.
    of_run: Whether the setting only affects how a run is carried out, so that
      a resumed run may change it.
    of_gridlu: Whether only GridLU has the setting, and no other world.
    double: For a float, whether only Python computes with it, in double
      precision. TensorFlow uses all others in float32, and they must fit.
  """
  return dataclasses.field(default=default, metadata={
      'text': text, 'low': low, 'high': high, 'above': above,
      'choices': choices, 'of_run': of_run, 'of_gridlu': of_gridlu,
      'double': double})


@dataclasses.dataclass(frozen=True)
class Config:
  """The settings of a run. Every field is a flag of the same name."""

  # The task.
  world: str = _setting(
      'relations', 'What to train on: a GridLU task ('
      f'{", ".join(tasks.TASKS)}), or your own world as '
      '"package.module:function", a function that returns an '
      'agile_tf.worlds.World.')
  instructions: str = _setting(
      '', 'Restricts GridLU to the instructions that contain a match of this '
      'regular expression. "AGENT" selects the 150 go-to instructions, '
      '"SameLocation.*AGENT" 30 of them.', of_gridlu=True)
  held_out: str = _setting(
      'none', 'Which GridLU instructions to keep out of the episodes and goal '
      'examples of training, for evaluation: "none"; a share of all "strings" '
      '(as in the paper); or a share of all "meanings", each with every string '
      'that has this meaning.',
      choices=('none', 'strings', 'meanings'), of_gridlu=True)
  held_out_share: float = _setting(
      0.1, 'The share that --held_out keeps out of training.', above=0, high=1,
      double=True, of_gridlu=True)
  held_out_seed: int = _setting(
      0, 'The seed that selects what --held_out keeps out.', low=0,
      of_gridlu=True)
  physics: str = _setting(
      'normal', "GridLU's physics: the agent can carry every block, or every "
      'block but red rects (figure 5).',
      choices=('normal', 'immovable_red_rects'), of_gridlu=True)
  episode_length: int = _setting(
      30, 'Steps in a GridLU episode.', low=1, high=2**31 - 1, of_gridlu=True)
  solved_starts: bool = _setting(
      False, 'Whether an episode of a GridLU task with a ground truth may '
      "begin in a goal state. If not, as the paper's curves suggest, such "
      'instances are drawn again, but not those of --first_distance.',
      of_gridlu=True)
  truncate: bool = _setting(
      False, 'Whether the end of a GridLU episode is a truncation, where '
      'returns bootstrap, instead of a termination.', of_gridlu=True)
  noop: bool = _setting(
      False, 'Whether the policy in GridLU has a sixth action, which does '
      'nothing.', of_gridlu=True)

  # The networks.
  model: str = _setting(
      'nmn', "The policy's network and, unless --discriminator_model names "
      'another, the discriminator\'s. "nmn" (FiLM-NMN) follows the tree of the '
      'instruction, "lstm" (FiLM-LSTM) reads it as a sequence.',
      choices=('nmn', 'lstm'))
  discriminator_model: str = _setting(
      'same', 'The discriminator\'s network: "nmn" or "lstm", as for --model, '
      'or "same" to use the value of --model.',
      choices=('same', 'nmn', 'lstm'))

  initialization: str = _setting(
      'paper', 'How the weights of both networks start. "paper": truncated '
      'normal with sigma = 1 / sqrt(fan_in). "he": with the variance '
      '2 / fan_in before a ReLU, 64 input channels of a module counted in '
      'place of 128, and a policy that is uniform at first. "unit_tokens": as '
      '"paper", but gamma, beta and embeddings have a sigma of 1 in place of '
      '1 / sqrt(number of tokens).',
      choices=('paper', 'he', 'unit_tokens'))

  # The reward.
  reward: str = _setting(
      'discriminator', "Where the policy's reward comes from: "
      '"discriminator", which is trained at the same time (AGILE); '
      '"environment", the ground truth (the A3C baselines); or "frozen", the '
      'discriminator of another run (--reward_model), which is not trained '
      'further.',
      choices=('discriminator', 'environment', 'frozen'))
  reward_model: str = _setting(
      '', 'The run directory whose discriminator --reward=frozen uses.')
  reward_form: str = _setting(
      'decision', "The reward as a function of the discriminator's output D: "
      '"decision" (1 if D > 0.5, else 0), "probability" (D), "log" (log D, at '
      'least -10) or "gail" (-log(1 - D), at most 10). --reward_scale '
      'multiplies it.',
      choices=('decision', 'probability', 'log', 'gail'))
  reward_scale: float = _setting(
      0.1, 'The factor of all rewards. With a reward of 0 or 1, this is the '
      'reward of a goal state.', above=0)
  reward_prediction: bool = _setting(
      False, 'Whether the policy also learns to predict rewards (A3C-RP). With '
      "--reward=discriminator it predicts the discriminator's decisions, which "
      'the paper does not do.')
  reward_prediction_cost: float = _setting(
      1.0, 'The weight of the reward prediction loss.', above=0)
  reward_prediction_batch_size: int = _setting(
      4, 'Replayed states for each rollout of a worker.', low=2)
  reward_prediction_replay_size: int = _setting(
      30_000, 'The capacity of the replay buffer of reward prediction, in '
      'states. All workers share it.', low=1)
  reward_prediction_of: str = _setting(
      'this_state', 'The reward to predict from a replayed state: that of '
      '"this_state", or of the "next_state", to which the action led, as the '
      "paper's words can be read.", choices=('this_state', 'next_state'))
  reward_prediction_balanced: bool = _setting(
      True, 'Whether half of the replayed states were rewarded, as soon as '
      'there are any (as in UNREAL). Otherwise they are drawn uniformly: the '
      'paper does not say.')
  reward_prediction_goals: int = _setting(
      0, 'Goal examples that reward prediction also learns from, for each '
      'rollout of a worker, as rewarded states, and as many with the '
      'instruction of another example, as states without reward. Not in the '
      'paper.', low=0)

  # The policy.
  initial_policy: str = _setting(
      '', 'The run directory whose policy this run begins with. The optimiser '
      'starts anew.')
  policy_features: str = _setting(
      'own', "What the policy's stem and FiLM-NMN (or FiLM-LSTM) start with: "
      'their "own" initialisation, or the parameters that the "discriminator" '
      'has at the end of its head start. Not in the paper.',
      choices=('own', 'discriminator'))
  first_steps: int = _setting(
      0, 'A curriculum for GridLU: the policy steps, summed over all workers, '
      'in which the policy workers play the --first_instructions too. Their '
      'share of the episodes falls linearly from 1 to 0. The '
      "discriminator's worker plays all instructions from the start. Not in "
      'the paper.', low=0, of_gridlu=True)
  first_instructions: str = _setting(
      'AGENT', 'With --first_steps, the instructions that contain a match of '
      'this regular expression. "AGENT" selects the 150 go-to instructions.',
      of_gridlu=True)
  first_distance: int = _setting(
      0, 'With --first_steps, its episodes begin at most this number of '
      'random actions from a goal example; where the instruction names only '
      'blocks, with the agent carrying one. 0: they begin as all others. Not '
      'in the paper.', low=0, high=1000, of_gridlu=True)
  repeated_share: float = _setting(
      0.0, 'The share of failed episodes that the policy workers begin again, '
      'with the same instruction and first state: of those whose last state '
      'was not rewarded. GridLU only. Not in the paper.', low=0, high=0.99,
      of_gridlu=True)
  first_mean_square: float = _setting(
      1.0, "RMSProp's mean square before the first update, for both networks: "
      '1 as in TensorFlow 1, or 0 as in Sonnet 2. Adam has none.', low=0)
  policy_optimizer: str = _setting(
      'rmsprop', "The policy's optimiser: the paper's RMSProp, or Adam, whose "
      'beta_1 is 0.9 and whose beta_2 is --policy_decay.',
      choices=('rmsprop', 'adam'))
  policy_update: str = _setting(
      'worker', 'Whether the gradient of each "worker" updates the policy, as '
      'in A3C, or the "averaged" gradient of all workers of a thread.',
      choices=('worker', 'averaged'))
  policy_learning_rate: float = _setting(
      3e-4, "The learning rate of the policy's optimiser.", above=0)
  first_policy_learning_rate: float = _setting(
      1e-3, 'The same at the first step, if --policy_learning_rate_steps lets '
      'it change.', above=0)
  policy_learning_rate_steps: int = _setting(
      0, 'Policy steps in which the learning rate changes linearly from '
      '--first_policy_learning_rate to --policy_learning_rate. 0 keeps it '
      'constant, as in the paper.', low=0)
  policy_decay: float = _setting(
      0.99, "The decay of the mean square in the policy's optimiser.", low=0,
      high=1)
  policy_epsilon: float = _setting(
      0.1, "The epsilon of the policy's optimiser: inside the square root of "
      "RMSProp, outside that of Adam.", above=0)
  policy_gradient_norm: float = _setting(
      40.0, "The norm to which each worker's policy gradient is clipped.",
      above=0)
  rollout_length: int = _setting(
      15, 'Steps of a rollout, after which the policy is updated. A rollout '
      'also ends with its episode.', low=1, high=10_000)
  discount: float = _setting(0.99, 'gamma, the discount.', low=0, high=1)
  td_lambda: float = _setting(
      1.0, "lambda of the returns; 1 gives A3C's n-step returns.", low=0,
      high=1)
  baseline_cost: float = _setting(
      1.0, 'The weight of the baseline loss.', low=0)
  entropy_weight: float = _setting(
      0.01, "alpha, the weight of the policy's entropy.", low=0)
  first_entropy_weight: float = _setting(
      0.1, 'alpha at the first step, if --entropy_weight_steps lets it change.',
      low=0)
  entropy_weight_steps: int = _setting(
      0, 'Policy steps in which alpha changes linearly from '
      '--first_entropy_weight to --entropy_weight. 0 keeps it constant, as in '
      'the paper.', low=0)
  policy_workers: int = _setting(
      15, 'Workers that train the policy.', low=1, high=10_000)
  policy_threads: int = _setting(
      15, 'Threads that share the policy workers equally; the number must '
      "divide --policy_workers. With 1, these workers and the discriminator's "
      'take turns in one thread, and a run on a CPU is repeatable.', low=1,
      high=1000)

  # The discriminator.
  discriminator_optimizer: str = _setting(
      'rmsprop', "The discriminator's optimiser: the paper's RMSProp, or Adam, "
      'whose beta_1 is 0.9 and whose beta_2 is --discriminator_decay.',
      choices=('rmsprop', 'adam'))
  discriminator_learning_rate: float = _setting(
      5e-4, "The learning rate of the discriminator's optimiser.", above=0)
  discriminator_decay: float = _setting(
      0.9, "The decay of the mean square in the discriminator's optimiser.",
      low=0, high=1)
  discriminator_epsilon: float = _setting(
      1e-10, "The epsilon of the discriminator's optimiser: inside the square "
      'root of RMSProp, outside that of Adam.', above=0)
  discriminator_gradient_norm: float = _setting(
      25.0, "The norm to which the discriminator's gradient is clipped.",
      above=0)
  batch_size: int = _setting(
      256, 'Examples in a batch of the discriminator; half of them are goal '
      'examples.', low=2)
  anticipated_negative_rate: float = _setting(
      0.25, 'rho: the share of the pairs drawn from the replay buffer B that '
      'the discriminator is trained on, as negatives. The rest, which it rates '
      'highest, is rejected. 1 rejects none.', above=0, high=1, double=True)
  first_anticipated_negative_rate: float = _setting(
      1.0, 'rho at the first step, if --anticipated_negative_rate_steps lets '
      'it change.', above=0, high=1, double=True)
  anticipated_negative_rate_steps: int = _setting(
      0, 'Policy steps in which rho changes linearly from '
      '--first_anticipated_negative_rate to --anticipated_negative_rate. 0 '
      'keeps it constant, as in the paper.', low=0)
  mismatched_share: float = _setting(
      0.0, "The share of the discriminator's negatives that are not drawn from "
      'B, but are goal examples with the instruction of another one. Not in '
      'the paper.', low=0, high=0.9, double=True)
  max_column_norm: float = _setting(
      1.0, 'The L2 norm to which the incoming weights of each unit of the '
      'discriminator are clipped; 0 turns this off.', low=0)
  replay_size: int = _setting(
      100_000, "The capacity of the discriminator's replay buffer B, in pairs "
      'of an instruction and a state.', low=1)
  discriminator_actors: int = _setting(
      1, "Episodes that the discriminator's worker plays at the same time. All "
      'their states go to B.', low=1, high=10_000)
  all_workers_write: bool = _setting(
      False, "Whether the policy workers add their states to B, as the "
      "discriminator's worker does.")
  steps_per_discriminator_update: int = _setting(
      225, "Policy steps for each iteration of the discriminator's worker. "
      'Workers that are ahead of this ratio wait. With the default, the 15 '
      "policy workers and the discriminator's iterate equally often. 0 sets no "
      'ratio: threads run free, and one thread alone iterates all workers '
      'equally often.', low=0)
  discriminator_head_start: int = _setting(
      0, "Iterations of the discriminator's worker before the first policy "
      'step. Not in the paper.', low=0)
  dataset: str = _setting(
      '', 'A file of goal examples (see gridlu/goal_dataset.py). By default '
      '--dataset_size of them are generated.')
  strict_dataset: bool = _setting(
      False, 'Whether to refuse a GridLU --dataset with states that do not '
      'satisfy their instruction, instead of only warning.', of_run=True)
  dataset_size: int = _setting(
      131_072, 'The number of goal examples to generate.', low=1,
      of_gridlu=True)
  dataset_seed: int = _setting(
      0, 'The seed of the generated goal examples.', low=0, of_gridlu=True)
  dataset_carrying: float = _setting(
      0.0, 'The share of generated goal examples in which the agent carries '
      'the block under it, among those with the agent on a block.', low=0,
      high=1, double=True, of_gridlu=True)

  # The run.
  steps: int = _setting(
      500_000_000, 'Policy steps to train for, summed over all workers.',
      low=1, high=900_000_000_000,  # A checkpoint's name has twelve digits.
      of_run=True)
  seed: int = _setting(
      0, 'The seed of everything but the goal examples and the held-out '
      'instructions.', low=0)
  rollouts: str = _setting(
      'auto', 'How episodes are played: "compiled" plays whole rollouts in one '
      'program and needs a world with its rules in TensorFlow; "environment" '
      'steps a dm_env environment in Python; "auto" compiles where it can.',
      choices=('auto', 'compiled', 'environment'))
  run_dir: str = _setting(
      '', "The directory of the run's files. If it contains a run, that run is "
      'resumed.', of_run=True)
  devices: str = _setting(
      'auto', 'The devices that policy threads are dealt over: "auto" (every '
      'GPU of the machine, or its CPU), or a list such as GPU:0,GPU:2. The '
      'first also keeps the parameters and trains the discriminator.',
      of_run=True)
  intra_op_threads: int = _setting(
      0, 'Threads that TensorFlow uses within one operation or compiled '
      'program; 0 means one for each CPU core that the process may use.',
      low=0, high=4096, of_run=True)
  inter_op_threads: int = _setting(
      0, 'Operations that TensorFlow runs at the same time; 0 means one for '
      'each CPU core that the process may use.', low=0, high=4096, of_run=True)
  compilation_cache: bool = _setting(
      True, 'Whether to keep compiled programs for later processes, in the '
      "user's cache directory (~/.cache/agile_tf, or as XDG_CACHE_HOME says). "
      'They are the same with and without.', of_run=True)
  log_steps: int = _setting(
      10_000, 'Steps from one row of metrics to the next.', low=1, of_run=True)
  image_minutes: float = _setting(
      5.0, 'Minutes from one episode shown in TensorBoard to the next. The '
      'first is shown as soon as it is finished.', above=0, of_run=True,
      double=True)
  checkpoint_minutes: float = _setting(
      10.0, 'Minutes from one checkpoint to the next.', above=0, of_run=True,
      double=True)
  stall_minutes: float = _setting(
      10.0, 'Minutes in one iteration after which a worker is reported, with '
      'its stack trace. If the run must save or stop and has to wait this long '
      'for a worker, it ends with an error.',
      above=0, of_run=True, double=True)
  checkpoints_kept: int = _setting(
      3, 'How many of the newest checkpoints are kept.', low=1, of_run=True)
  why: str = _setting(
      '', "Why the run's hyperparameters differ from the paper's. "
      'agile_tf.hparams and TensorBoard show it.', of_run=True)

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
          f'--batch_size={self.batch_size} is odd; half of a batch are goal '
          'examples, so use an even number.')
    if not self.num_from_b:
      raise ConfigError(
          f'--mismatched_share={self.mismatched_share} leaves none of the '
          f'{self.batch_size // 2} negatives of a batch for states from B; '
          'make it smaller.')
    draw = self._draw
    if not math.isfinite(draw) or round(draw) > self.replay_size:
      raise ConfigError(
          f'--replay_size={self.replay_size} is less than one draw from B '
          f'({draw:.15g} pairs = batch_size / (2 * anticipated_negative_rate)'
          '); make it or --anticipated_negative_rate larger.')
    if self.reward_prediction_goals and not self.reward_prediction:
      raise ConfigError(
          f'--reward_prediction_goals={self.reward_prediction_goals} needs '
          '--reward_prediction.')
    if self.reward_prediction_goals and (
        self.reward_prediction_of != 'this_state'):
      raise ConfigError(
          f'--reward_prediction_goals={self.reward_prediction_goals} with '
          f'--reward_prediction_of={self.reward_prediction_of}: a goal example '
          'has no next state. Use --reward_prediction_of=this_state.')
    if self.first_distance and not self.first_steps:
      raise ConfigError(
          f'--first_distance={self.first_distance} needs --first_steps.')
    if self.discriminator_head_start and not self.trains_discriminator:
      raise ConfigError(
          f'--discriminator_head_start={self.discriminator_head_start} needs '
          f'--reward=discriminator; it is --reward={self.reward}.')
    if self.policy_features != 'own':
      if self.initial_policy:
        raise ConfigError(
            f'--policy_features={self.policy_features} would replace a part of '
            f'--initial_policy={self.initial_policy}: leave one of them out.')
      if not self.discriminator_head_start:
        raise ConfigError(
            f'--policy_features={self.policy_features} needs a '
            '--discriminator_head_start.')
      if self.discriminator_model not in ('same', self.model):
        raise ConfigError(
            f'--policy_features={self.policy_features} needs two networks of '
            f'one kind; they are --model={self.model} and '
            f'--discriminator_model={self.discriminator_model}.')
    if (self.reward == 'frozen') != bool(self.reward_model):
      raise ConfigError(
          f'--reward={self.reward} with --reward_model={self.reward_model!r}: '
          'a frozen reward needs the directory of the run whose discriminator '
          'it uses, and the other rewards need an empty --reward_model.')

  @property
  def num_mismatched(self) -> int:
    """The discriminator's negatives that are mismatched goal examples."""
    return round(self.mismatched_share * self.batch_size / 2)

  @property
  def num_from_b(self) -> int:
    """The discriminator's negatives that are from B."""
    return self.batch_size // 2 - self.num_mismatched

  @property
  def _draw(self) -> float:
    """`num_candidates` before rounding; inf if rho is almost 0."""
    rho = self.anticipated_negative_rate
    if self.anticipated_negative_rate_steps:
      rho = min(rho, self.first_anticipated_negative_rate)
    return self.num_from_b / rho

  @property
  def num_candidates(self) -> int:
    """The most states that one update of the discriminator draws from B."""
    return round(self._draw)

  @property
  def trains_discriminator(self) -> bool:
    """Whether the run trains a discriminator."""
    return self.reward == 'discriminator'

  @property
  def needs_goal_examples(self) -> bool:
    """Whether the run needs goal examples."""
    return bool(self.trains_discriminator or self.reward_prediction_goals or
                self.first_distance)


def _divisors(number: int) -> list[int]:
  return [i for i in range(1, number + 1) if number % i == 0]


# The range of float32 at full precision. Smaller numbers may become 0.
_SMALLEST, _LARGEST = (
    float(limit)
    for limit in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))


# The largest integer of NumPy and TensorFlow.
_MOST = 2**63 - 1


def _shown(value: Any) -> str:
  """Returns a value as an error message shows it, shortened if it is long."""
  if isinstance(value, int) and value.bit_length() > 400:
    return f'(a number of {value.bit_length()} bits)'
  text = value if isinstance(value, str) and value.isprintable() else (
      repr(value))
  return text if len(text) <= 200 else f'{text[:200]}...'


def _check(field: dataclasses.Field, value: Any) -> None:
  """Raises ConfigError if a value has another type or is out of range."""
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
  """Returns what was expected instead of this text; '' if it is valid."""
  choices = field.metadata['choices']
  if choices and value not in choices:
    return 'one of ' + ', '.join(choices)
  try:
    value.encode()
  except UnicodeEncodeError:  # Python decodes invalid bytes to such text.
    return 'text in UTF-8'
  if field.name == 'run_dir' and '://' in value:
    return 'a directory of this machine, not an address'
  return 'text without a null character' if '\0' in value else ''


def _number_problem(field: dataclasses.Field, value: float) -> str:
  """Returns what was expected instead of this number; '' if it is valid."""
  limits = field.metadata
  low, above, high = limits['low'], limits['above'], limits['high']
  if high is None and isinstance(value, int):
    high = _MOST
  is_finite = not isinstance(value, float) or math.isfinite(value)
  if (not is_finite or
      low is not None and value < low or
      above is not None and value <= above or
      high is not None and value > high):
    wanted = [f'{words} {limit}'
              for words, limit in (('at least', low), ('more than', above),
                                   ('at most', limits['high']))
              if limit is not None]
    if limits['high'] is None and high is not None and value > high:
      wanted.append(f'at most {high}')
    if not is_finite:
      wanted.insert(0, 'a finite number')
    return ' and '.join(wanted)
  if isinstance(field.default, float) and not limits['double'] and value and (
      not _SMALLEST <= abs(value) <= _LARGEST):
    return (f'a float32, from {_SMALLEST:.2g} to {_LARGEST:.2g}'
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
    ConfigError: if a value is out of range or contradicts another.
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
        f'{path} cannot be written ({error}). Free some disk space, or make '
        'the directory writable.') from error


# Settings of earlier versions that are gone. None changed a result.
_GONE = ('image_steps', 'cluster', 'task')


# What earlier versions did in GridLU tasks with a ground truth, where the
# default is another now.
_BEFORE = {'solved_starts': True}


def restored(values: Any) -> Config:
  """Returns the settings that a run of this or an earlier version saved.

  Args:
    values: The settings by name.

  Raises:
    ConfigError: if a value is out of range or contradicts another.
    TypeError: if this is no dict, or no version has such a setting.
  """
  if not isinstance(values, dict):
    raise TypeError('expected settings by name')
  task = tasks.TASKS.get(values.get('world', 'relations'))
  before = _BEFORE if task is not None and task.has_ground_truth else {}
  return Config(**before | {
      name: value for name, value in values.items() if name not in _GONE})


def load(path: str) -> Config:
  """Reads what `save` wrote.

  Raises:
    MissingError: if there is no such file.
    ConfigError: if the file cannot be read or is not a configuration.
  """
  try:
    with open(path, encoding='utf-8') as file:
      text = file.read()
    return restored(files.parse_json(text))
  except FileNotFoundError:
    raise MissingError(
        f'There is no {path}: expected a directory that agile_tf.launch '
        'wrote.') from None
  except OSError as error:
    raise ConfigError(f'{path} cannot be read: {error}.') from error
  except (ValueError, TypeError) as error:  # Not JSON, or unknown settings.
    raise ConfigError(
        f'{path} is not a configuration of this version ({error}).') from error


def of_gridlu() -> list[str]:
  """Returns the names of the settings that only GridLU has."""
  return [field.name for field in dataclasses.fields(Config)
          if field.metadata['of_gridlu']]


def differences(old: Config, new: Config) -> Iterable[str]:
  """Returns a line for each setting in which two runs differ.

  Settings that only affect how a run is carried out are left out.
  """
  return [
      f'--{field.name}: {getattr(old, field.name)!r} there, '
      f'{getattr(new, field.name)!r} here'
      for field in dataclasses.fields(Config)
      if not field.metadata['of_run'] and
      getattr(old, field.name) != getattr(new, field.name)]
