"""Experiments as data: which runs make which of the paper's figures or numbers.

A few experiments are our own.

A *variant* is a flagfile of `launch/` with additional flags. It is run once for
each seed, in a directory NAME_seedN. An *experiment* is a few variants that are
compared. Experiments share variants: figure 8 draws other columns of the runs
of figure 4 (right).

On a laptop the same variants use the job and the hyperparameters of
`launch/laptop.flags` in place of the paper's. Their rho is 100 %, except in
variants that are about rho. Our own experiments have no such replica.
"""

from typing import NamedTuple


class Evaluation(NamedTuple):
  """An evaluation of the newest checkpoint of a finished run.

  Its result is written to NAME.json in the run's directory.
  """
  name: str
  flags: tuple[str, ...]  # For agile_tf.evaluate.


class Variant(NamedTuple):
  """What is run for each seed.

  Attributes:
    label: Its name in figures.
    flagfile: The name of a flagfile in launch/, without '.flags'.
    flags: Additional flags.
    laptop: Additional flags on a laptop.
    about_rho: Whether it keeps its own rho on a laptop.
    after: Another variant that must be run first; '{after}' in the flags stands
      for the directory of its run with the same seed.
    laptop_after: Replaces `after` on a laptop, if not empty.
    evaluations: The evaluations of a finished run.
    laptop_evaluations: Replaces `evaluations` on a laptop, if not empty.
  """
  label: str
  flagfile: str
  flags: tuple[str, ...] = ()
  laptop: tuple[str, ...] = ()
  about_rho: bool = False
  after: str = ''
  laptop_after: str = ''
  evaluations: tuple[Evaluation, ...] = (Evaluation('evaluation', ()),)
  laptop_evaluations: tuple[Evaluation, ...] = ()


class Experiment(NamedTuple):
  """Settings that are compared.

  Attributes:
    title: What the experiment shows.
    variants: The names of its variants.
    seeds: How many seeds the paper ran; in our own experiments, how many we do.
    laptop: Replaces `variants` on a laptop, if not empty.
    replica: Whether it can be made on a laptop.
  """
  title: str
  variants: tuple[str, ...]
  seeds: int = 5
  laptop: tuple[str, ...] = ()
  replica: bool = True

  def names(self, laptop: bool) -> tuple[str, ...]:
    """Returns the names of the variants, on a laptop or not."""
    return self.laptop if laptop and self.laptop else self.variants


# The numbers of goal examples in figure 7, and in its laptop replica, which has
# 3 instructions instead of 990.
DATA_SIZES = tuple(2**n for n in range(9, 20))
LAPTOP_DATA_SIZES = (8, 32, 128, 512, 2048)

_INSTRUCTIONS = '--instructions='
_RED_RECT = r"Color\('red', Shape\('rect', SCENE\)\)"
# --instructions of the paper's jobs: all, and those of figure 5's fine-tuning.
PAPERS_INSTRUCTIONS = ('', _RED_RECT)

# Figure 5's replica: an instruction that a policy learns to follow by carrying
# a red rect, but that it can also follow without. Training has a second
# instruction, to go to a red rect, because the first alone is hard to learn.
_GO_TO_RED_RECT = (
    r"^SameLocation\(AGENT, Color\('red', Shape\('rect', SCENE\)\)")
_CARRY_RED_RECT = (
    r"^NorthFrom\(Color\('red', Shape\('rect', SCENE\)\), "
    r"Color\('blue', SCENE\)\)")
# The replica of held-out instructions: 15 meanings, each in both orders.
_GO_TO = _INSTRUCTIONS + r'^SameLocation\('


def _around_fine_tuning(only: str) -> tuple[Evaluation, ...]:
  """Returns the evaluations of figure 5's three bars.

  Args:
    only: A regular expression for the instructions that name a red rect.
  """
  only = _INSTRUCTIONS + only
  return (
      Evaluation('before', ('--run_dir={after}', only, '--physics=normal')),
      Evaluation('changed', (
          '--run_dir={after}', only, '--physics=immovable_red_rects')),
      Evaluation('tuned', (only,)))


_BOTH_SIDES = (
    Evaluation('seen', ()), Evaluation('held_out', ('--held_out',)))

# A flag for every laptop variant that is not about rho. It restores
# laptop.flags' value, which the variant's flagfile replaces.
LAPTOP_RHO = '--anticipated_negative_rate=1.0'
_OTHER_RHO = ("--why=The laptop's job with another rho.",)

# For each setting of relations_evening.flags, the flags that give it the
# paper's value, or leave out what the paper does not have.
EVENING_SETTINGS: dict[str, tuple[str, ...]] = {
    'solved_starts': ('--solved_starts=false',),
    'repeated_share': ('--repeated_share=0',),
    'truncate': ('--truncate=false',),
    'discount': ('--discount=0.99',),
    'td_lambda': ('--td_lambda=1',),
    'reward_scale': ('--reward_scale=0.1',),
    'baseline_cost': ('--baseline_cost=1',),
    'entropy_weight': ('--first_entropy_weight=0.01', '--entropy_weight=0.01'),
    'reward_prediction': (
        '--reward_prediction=false', '--reward_prediction_goals=0'),
    'reward_prediction_goals': ('--reward_prediction_goals=0',),
    'reward_prediction_cost': ('--reward_prediction_cost=1',),
    'policy_features': ('--policy_features=own',),
    'policy_update': ('--policy_update=worker',),
    'policy_optimizer': (
        '--policy_optimizer=rmsprop', '--policy_update=worker',
        '--policy_decay=0.99', '--policy_epsilon=0.1',
        '--policy_learning_rate=0.0003', '--policy_learning_rate_steps=0'),
    'first_steps': ('--first_steps=0', '--first_distance=0'),
    'initialization': ('--initialization=paper',),
    'anticipated_negative_rate_steps': ('--anticipated_negative_rate_steps=0',),
    'mismatched_share': ('--mismatched_share=0',),
    'discriminator_head_start': (
        '--discriminator_head_start=0', '--policy_features=own'),
    'discriminator_actors': ('--discriminator_actors=1',),
    'discriminator_optimizer': (
        '--discriminator_optimizer=rmsprop', '--discriminator_decay=0.9',
        '--discriminator_epsilon=1e-10',
        '--discriminator_learning_rate=0.0005'),
    'dataset_carrying': ('--dataset_carrying=0',),
    'max_column_norm': ('--max_column_norm=1',),
    'steps_per_discriminator_update': ('--steps_per_discriminator_update=225',),
}
_SHORT = '--steps=800000'

# Other readings of what the paper says or leaves open: first of what both
# agents have in common, then of what A3C-RP or AGILE has alone. The loss is the
# sum over a rollout. A mean divides the gradient by 15: the same as these three
# settings 15 (epsilon: 225) times as large.
_READINGS: dict[str, tuple[str, ...]] = {
    'solved_starts': ('--solved_starts=true',),
    'td_lambda': ('--td_lambda=0',),
    # The default of Sonnet's embedding layer changed in the paper's year.
    'unit_tokens': ('--initialization=unit_tokens',),
    # Where RMSProp starts in Sonnet 2.
    'zero_mean_square': ('--first_mean_square=0',),
}
A3C_RP_READINGS: dict[str, tuple[str, ...]] = {
    **_READINGS,
    'next_state': ('--reward_prediction_of=next_state',),
    # The paper does not repeat how UNREAL draws the states that it replays.
    'uniform_replay': ('--reward_prediction_balanced=false',),
    'mean_loss': ('--policy_epsilon=22.5', '--policy_gradient_norm=600',
                  '--reward_prediction_cost=15'),
    # Our loss of the baseline has a factor of 1/2.
    'whole_baseline': ('--baseline_cost=2',),
}
RHO50_READINGS: dict[str, tuple[str, ...]] = {
    **_READINGS,
    # With free threads the discriminator's worker is the slowest: it has 512
    # states to read for each update.
    'slow_discriminator': ('--steps_per_discriminator_update=675',),
    # The agent carries half of the blocks that it stands on.
    'dataset_carrying': ('--dataset_carrying=0.5',),
}
_OTHER_READING = '--why=Another reading of the paper.'

VARIANTS: dict[str, Variant] = {
    'relations_a3c': Variant('A3C', 'relations_a3c'),
    'relations_a3c_rp': Variant('A3C-RP', 'relations_a3c_rp'),
    'relations': Variant(
        'AGILE, rho 25 %', 'relations', laptop=_OTHER_RHO, about_rho=True),
    'relations_rho50': Variant(
        'AGILE, rho 50 %', 'relations_rho50', laptop=_OTHER_RHO,
        about_rho=True),
    'relations_rho75': Variant(
        'AGILE, rho 75 %', 'relations_rho75', laptop=_OTHER_RHO,
        about_rho=True),
    'relations_rho100': Variant('AGILE, rho 100 %', 'relations_rho100'),
    'relations_no_prediction': Variant(
        'AGILE, rho 100 %', 'relations_rho100',
        laptop=('--reward_prediction=false',)),
    **{f'threads_{count}': Variant(
        f'AGILE, rho 100 %, {count} + 1 threads', 'relations_rho100',
        (f'--policy_threads={count}',)) for count in (3, 15)},
    'relations_lstm': Variant('AGILE, LSTM', 'relations_lstm'),
    'relations_lstm_a3c_rp': Variant('A3C-RP, LSTM', 'relations_lstm_a3c_rp'),
    **{f'data_{size}': Variant(
        f'{size} goal examples', 'data_efficiency', (f'--dataset_size={size}',))
       for size in sorted({*DATA_SIZES, *LAPTOP_DATA_SIZES})},
    'held_out_strings': Variant(
        'held-out strings', 'held_out_strings',
        laptop=(_GO_TO, '--held_out_share=0.2'),
        evaluations=_BOTH_SIDES),
    'held_out_meanings': Variant(
        'held-out meanings', 'held_out_meanings',
        laptop=(_GO_TO, '--held_out_share=0.2'),
        evaluations=_BOTH_SIDES),
    'immovable': Variant(
        'immovable red rects', 'immovable',
        ('--reward_model={after}', '--initial_policy={after}'),
        laptop=(_INSTRUCTIONS + _CARRY_RED_RECT,), after='relations',
        laptop_after='carry_red_rect',
        evaluations=_around_fine_tuning(_RED_RECT),
        laptop_evaluations=_around_fine_tuning(_CARRY_RED_RECT)),
    'carry_red_rect': Variant(
        'red rects carried', 'relations_rho100',
        laptop=(f'{_INSTRUCTIONS}{_GO_TO_RED_RECT}|{_CARRY_RED_RECT}',
                '--steps=1000000')),
    'arrangements': Variant(
        'Arrangements', 'arrangements',
        laptop=(_INSTRUCTIONS + 'AGENT, SCENE', '--steps=1000000',
                '--solved_starts=false')),  # It has no effect there.
    'remark_all_workers': Variant('all workers write', 'remark_all_workers'),
    'remark_no_column_norms': Variant(
        'no column norms', 'remark_no_column_norms'),
    'remark_probability': Variant('reward D', 'remark_probability'),
    'remark_log': Variant('reward log D', 'remark_log'),
    'remark_gail': Variant('reward -log(1 - D)', 'remark_gail'),
    **{f'a3c_rp_{name}': Variant(
        f'A3C-RP {" ".join(changes)}', 'relations_a3c_rp',
        (*changes, _OTHER_READING))
       for name, changes in A3C_RP_READINGS.items()},
    **{f'rho50_{name}': Variant(
        f'AGILE, rho 50 % {" ".join(changes)}', 'relations_rho50',
        (*changes, _OTHER_READING))
       for name, changes in RHO50_READINGS.items()},
    'relations_evening': Variant('all 990 instructions', 'relations_evening'),
    'evening_with_all': Variant('all settings', 'relations_evening', (_SHORT,)),
    **{f'evening_without_{name}': Variant(
        ' '.join(changes), 'relations_evening', (*changes, _SHORT))
       for name, changes in EVENING_SETTINGS.items()},
    **{f'quickstart_rho{rho}': Variant(
        f'quickstart, rho {rho} %', 'quickstart',
        (f'--anticipated_negative_rate={rho / 100}',))
       for rho in (25, 50, 100)},
    **{f'quickstart_threads_{count}': Variant(
        f'quickstart, {count} + 1 threads', 'quickstart',
        (f'--policy_threads={count}',))
       for count in (3, 15)},
}


def variant(name: str) -> Variant:
  """Returns the variant of this name, or one for runs of the user's own."""
  return VARIANTS.get(name, Variant(name, ''))


EXPERIMENTS: dict[str, Experiment] = {
    'figure4_left': Experiment(
        'A3C, A3C-RP and AGILE on GridLU-Relations',
        ('relations_a3c', 'relations_a3c_rp', 'relations', 'relations_rho50',
         'relations_rho100'),
        laptop=('relations_a3c', 'relations_a3c_rp', 'relations',
                'relations_rho50', 'relations_rho100',
                'relations_no_prediction')),
    'figure4_middle': Experiment(
        'FiLM-NMN and FiLM-LSTM',
        ('relations', 'relations_a3c_rp', 'relations_lstm',
         'relations_lstm_a3c_rp'),
        laptop=('relations_rho100', 'relations_a3c_rp', 'relations_lstm',
                'relations_lstm_a3c_rp')),
    'figure4_right': Experiment(
        "The reward model's accuracy, and figure 8: its errors",
        ('relations', 'relations_rho50', 'relations_rho75',
         'relations_rho100')),
    'figure5': Experiment(
        'Red rects become immovable', ('relations', 'immovable'),
        laptop=('carry_red_rect', 'immovable')),
    'figure7': Experiment(
        'How many goal examples are needed',
        tuple(f'data_{size}' for size in DATA_SIZES),
        laptop=tuple(f'data_{size}' for size in LAPTOP_DATA_SIZES)),
    'held_out': Experiment(
        'Held-out instructions',
        ('held_out_strings', 'held_out_meanings')),
    'arrangements': Experiment(
        'GridLU-Arrangements', ('arrangements',), seeds=10),
    'threads': Experiment(
        'The same agent with different numbers of threads',
        # The first has 15 + 1 threads; on a laptop it has one.
        ('relations_rho100', 'threads_3'),
        laptop=('relations_rho100', 'threads_3', 'threads_15')),
    'remarks': Experiment(
        "The paper's side remarks, and other rewards from D",
        ('relations', 'remark_all_workers', 'remark_no_column_norms',
         'remark_probability', 'remark_log', 'remark_gail'),
        laptop=('relations_rho100', 'remark_all_workers',
                'remark_no_column_norms', 'remark_probability', 'remark_log',
                'remark_gail')),
    'evening': Experiment(
        'Ours: all 990 instructions in an evening', ('relations_evening',),
        seeds=2, replica=False),
    'evening_settings': Experiment(
        "Ours: its beginning, without one of the evening's settings each",
        ('evening_with_all', *(
            f'evening_without_{name}' for name in EVENING_SETTINGS)),
        seeds=1, replica=False),
    'a3c_rp_readings': Experiment(
        'Ours: A3C-RP with other readings of the paper, one at a time',
        ('relations_a3c_rp', *(f'a3c_rp_{name}' for name in A3C_RP_READINGS)),
        seeds=1, replica=False),
    'rho50_readings': Experiment(
        'Ours: AGILE with other readings of the paper, one at a time',
        ('relations_rho50', *(f'rho50_{name}' for name in RHO50_READINGS)),
        seeds=1, replica=False),
    'quickstart_rho': Experiment(
        'Ours: the quickstart with other rho',
        ('quickstart_rho25', 'quickstart_rho50', 'quickstart_rho100'),
        seeds=3, replica=False),
    'quickstart_threads': Experiment(
        'Ours: the quickstart with other numbers of threads',
        # The first has one thread.
        ('quickstart_rho25', 'quickstart_threads_3', 'quickstart_threads_15'),
        seeds=3, replica=False),
}
