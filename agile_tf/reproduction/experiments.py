"""Experiments as data: which runs make which of the paper's figures or numbers.

A *variant* is a flagfile of `launch/` with additional flags. It is run once for
each seed, in a directory NAME_seedN. An *experiment* is a few variants that are
compared. Experiments share variants: figure 8 draws other columns of the runs
of figure 4 (right).

The *recipe* is what we add to the paper, the settings of
`launch/relations_evening.flags`. With it, a variant's flagfile follows the
recipe's: the run has the recipe with the variant's own settings on top.
"""

from collections.abc import Mapping, Sequence
import os
from typing import NamedTuple


class Variant(NamedTuple):
  """What is run for each seed."""
  label: str  # Its name in figures.
  flagfile: str  # The name of a flagfile in launch/, without '.flags'.
  flags: tuple[str, ...] = ()  # They follow those of the flagfile.
  # Flags that turn off parts of the recipe.
  not_of_recipe: tuple[str, ...] = ()
  # Another variant that must be run first; '{after}' in the flags stands for
  # the directory of its run with the same seed.
  after: str = ''
  # The flags with which agile_tf.evaluate measures a finished run, by the name
  # of the JSON file in the run's directory that gets the report.
  evaluations: Mapping[str, tuple[str, ...]] = {'evaluation': ()}


class Experiment(NamedTuple):
  """Settings that are compared."""
  title: str  # What it shows.
  variants: tuple[str, ...]  # The names of its variants.
  # The names of its variants with the recipe; None if they are the same.
  recipe_variants: tuple[str, ...] | None = None
  seeds: int = 5  # How many are run without the recipe. The paper has five.
  # The first of them. It is `FIRST_RECIPE_SEED` where the settings of the
  # variants themselves were chosen with earlier seeds.
  first_seed: int = 0
  # With the recipe so many seeds are run, from `FIRST_RECIPE_SEED` up.
  recipe_seeds: int = 2

  def names(self, recipe: bool) -> tuple[str, ...]:
    """Returns the names of the variants, without or with the recipe."""
    if recipe and self.recipe_variants is not None:
      return self.recipe_variants
    return self.variants


RECIPE = 'relations_evening'
# The recipe's settings were chosen by what seeds 0 and 1 learned. Only its norm
# limit was chosen by what seed 2 learned, so seed 2 is independent of the other
# choices, and later seeds are independent of all of them.
FIRST_RECIPE_SEED = 2

# The first turns off the part of the recipe that needs a discriminator in
# training, the second the part that needs goal examples.
_WITHOUT_DISCRIMINATOR = ('--discriminator_head_start=0',)
_WITHOUT_PREDICTED_GOALS = ('--reward_prediction_goals=0',)

# Figure 7 has these numbers of goal examples.
DATA_SIZES = tuple(2**n for n in range(9, 20))

_RED_RECT = r"Color\('red', Shape\('rect', SCENE\)\)"
# The paper's jobs have one of these --instructions: '', which selects all, or,
# in figure 5's fine-tuning, those that name a red rect.
PAPERS_INSTRUCTIONS = ('', _RED_RECT)

_ONLY_RED_RECT = f'--instructions={_RED_RECT}'
# Each of these evaluations is a bar of figure 5.
_AROUND_FINE_TUNING = {
    'before': ('--run_dir={after}', _ONLY_RED_RECT, '--physics=normal'),
    'changed': ('--run_dir={after}', _ONLY_RED_RECT,
                '--physics=immovable_red_rects'),
    'tuned': (_ONLY_RED_RECT,)}
_SEEN_AND_HELD_OUT: dict[str, tuple[str, ...]] = {
    'seen': (), 'held_out': ('--held_out',)}

VARIANTS: dict[str, Variant] = {
    'relations_a3c': Variant(
        'A3C', 'relations_a3c',
        not_of_recipe=_WITHOUT_DISCRIMINATOR + _WITHOUT_PREDICTED_GOALS),
    'relations_a3c_rp': Variant(
        'A3C-RP', 'relations_a3c_rp', not_of_recipe=_WITHOUT_DISCRIMINATOR),
    'relations': Variant(
        'AGILE, rho 25 %', 'relations',
        evaluations={'evaluation': (), 'crowded': ('--world=crowded',)}),
    'crowded': Variant(
        '0 to 3 distractors', 'relations', ('--world=crowded',), evaluations={
            'evaluation': (), 'relations': ('--world=relations',)}),
    'relations_rho50': Variant('AGILE, rho 50 %', 'relations_rho50'),
    'relations_rho75': Variant('AGILE, rho 75 %', 'relations_rho75'),
    'relations_rho100': Variant('AGILE, rho 100 %', 'relations_rho100'),
    'relations_lstm': Variant('AGILE, LSTM', 'relations_lstm'),
    'relations_lstm_a3c_rp': Variant(
        'A3C-RP, LSTM', 'relations_lstm_a3c_rp',
        not_of_recipe=_WITHOUT_DISCRIMINATOR),
    **{f'data_{size}': Variant(
        f'{size} goal examples', 'data_efficiency', (f'--dataset_size={size}',))
       for size in DATA_SIZES},
    'held_out_strings': Variant(
        'held-out strings', 'held_out_strings',
        evaluations=_SEEN_AND_HELD_OUT),
    'held_out_meanings': Variant(
        'held-out meanings', 'held_out_meanings',
        evaluations=_SEEN_AND_HELD_OUT),
    'immovable': Variant(
        'immovable red rects', 'immovable',
        ('--reward_model={after}', '--initial_policy={after}'),
        # Fine-tuning needs no goal example.
        not_of_recipe=_WITHOUT_DISCRIMINATOR + _WITHOUT_PREDICTED_GOALS,
        after='relations', evaluations=_AROUND_FINE_TUNING),
    'arrangements': Variant('Arrangements', 'arrangements'),
    'remark_all_workers': Variant('all workers write', 'remark_all_workers'),
    'remark_no_column_norms': Variant(
        'no column norms', 'remark_no_column_norms'),
    'remark_probability': Variant('reward D', 'remark_probability'),
    'remark_log': Variant('reward log D', 'remark_log'),
    'remark_gail': Variant('reward -log(1 - D)', 'remark_gail'),
    'relations_evening': Variant('all 990 instructions', 'relations_evening'),
    'arrangements_evening': Variant('Arrangements', 'arrangements_evening'),
}


def variant(name: str) -> Variant:
  """Returns the variant of this name, or one for runs of the user's own."""
  return VARIANTS.get(name, Variant(name, ''))


EXPERIMENTS: dict[str, Experiment] = {
    'figure4_left': Experiment(
        'A3C, A3C-RP and AGILE on GridLU-Relations',
        ('relations_a3c', 'relations_a3c_rp', 'relations', 'relations_rho50',
         'relations_rho100'), recipe_seeds=3),
    'figure4_middle': Experiment(
        'FiLM-NMN and FiLM-LSTM',
        ('relations', 'relations_a3c_rp', 'relations_lstm',
         'relations_lstm_a3c_rp')),
    'figure4_right': Experiment(
        "The reward model's accuracy, and figure 8: its errors",
        ('relations', 'relations_rho50', 'relations_rho75',
         'relations_rho100')),
    'figure5': Experiment(
        'Red rects become immovable', ('relations', 'immovable')),
    'figure7': Experiment(
        'How many goal examples are needed',
        tuple(f'data_{size}' for size in DATA_SIZES),
        tuple(f'data_{size}' for size in DATA_SIZES[2::2])),
    'held_out': Experiment(
        'Held-out instructions', ('held_out_strings', 'held_out_meanings')),
    'arrangements': Experiment(
        'GridLU-Arrangements', ('arrangements',), (), seeds=10),
    'remarks': Experiment(
        "The paper's side remarks, and other rewards from D",
        ('relations', 'remark_all_workers', 'remark_no_column_norms',
         'remark_probability', 'remark_log', 'remark_gail')),
    'crowded': Experiment(
        'Ours: goal examples and episodes with 0 to 3 distractors',
        ('relations', 'crowded')),
    'evening': Experiment(
        'Ours: all 990 instructions in an evening', ('relations_evening',), (),
        seeds=2, first_seed=FIRST_RECIPE_SEED),
    'arrangements_evening': Experiment(
        'Ours: GridLU-Arrangements in an evening', ('arrangements_evening',),
        (), seeds=3, first_seed=FIRST_RECIPE_SEED),
}


class Job(NamedTuple):
  """A run of a variant with a seed, and its evaluations."""
  name: str
  seed: int
  run_dir: str
  launch: list[str]  # Arguments of agile_tf.launch.
  # Arguments of agile_tf.evaluate, by the path of the report that it writes.
  evaluations: dict[str, list[str]]
  after: str = ''  # The directory of a run that must finish first.


def jobs(experiment: str, runs: str, seeds: Sequence[int], recipe: bool,
         extra: Sequence[str] = ()) -> list[Job]:
  """Returns the runs of an experiment, in an order in which they can be made.

  `runs` will contain their directories, and all have the `extra` flags.
  """
  return [_job(name, seed, runs, recipe, extra) for seed in seeds
          for name in EXPERIMENTS[experiment].names(recipe)]


def _job(name: str, seed: int, runs: str, recipe: bool, extra: Sequence[str]
        ) -> Job:
  made = VARIANTS[name]
  run_dir = os.path.join(runs, f'{name}_seed{seed}')
  after = made.after and os.path.join(runs, f'{made.after}_seed{seed}')
  launch = [f'--preset={made.flagfile}', *made.flags]
  evaluate = [f'--run_dir={run_dir}']
  if recipe:
    # With the recipe an episode of training may begin solved. No episode of an
    # evaluation does.
    launch = [f'--preset={RECIPE}', *launch, *made.not_of_recipe]
    evaluate.append('--nosolved_starts')

  def filled(*arguments: str) -> list[str]:
    return [argument.replace('{after}', after) for argument in arguments]

  reports = {os.path.join(run_dir, f'{evaluation}.json'): own
             for evaluation, own in made.evaluations.items()}
  return Job(
      name, seed, run_dir,
      filled(*launch, *extra, f'--run_dir={run_dir}', f'--seed={seed}'),
      {path: filled(*evaluate, *own, f'--output={path}')
       for path, own in reports.items()}, after)
