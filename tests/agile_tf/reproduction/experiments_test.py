"""Tests for experiments: that their runs can be made, and their settings."""

import dataclasses
import glob
import os
from typing import Any

from absl.testing import parameterized

from agile_tf import config as config_lib
from agile_tf.reproduction import experiments
from agile_tf.training import building
from tests.agile_tf import tiny

# Flagfiles of no experiment.
_OTHERS = {'babyai_goto', 'babyai_goto_a3c_rp', 'own_world', 'quickstart',
           'small_world'}
# The paper's experiments: all others have flagfiles of our own.
_PAPERS = [
    name for name in experiments.EXPERIMENTS if 'evening' not in name]
_WITH_RECIPE = [name for name, experiment in experiments.EXPERIMENTS.items()
                if experiment.names(recipe=True)]
_RATE = 'anticipated_negative_rate'
# How the settings of variants differ from AGILE's with rho 25 %, in the paper
# and with the recipe.
_CHANGES: dict[str, dict[str, Any]] = {
    'relations': {},  # The recipe's rho falls to the paper's.
    'relations_a3c': dict(reward='environment', reward_prediction=False),
    'relations_a3c_rp': dict(reward='environment', reward_prediction=True),
    'relations_rho50': {_RATE: .5},
    'relations_rho75': {_RATE: .75},
    'relations_rho100': {_RATE: 1.0},
    'relations_lstm': dict(model='lstm'),
    'relations_lstm_a3c_rp': dict(
        model='lstm', reward='environment', reward_prediction=True),
    'held_out_strings': dict(held_out='strings', held_out_share=.1),
    'held_out_meanings': dict(held_out='meanings', held_out_share=.1),
    'immovable': dict(
        reward='frozen', physics='immovable_red_rects',
        instructions=r"Color\('red', Shape\('rect', SCENE\)\)"),
    'remark_all_workers': dict(all_workers_write=True),
    'remark_no_column_norms': dict(max_column_norm=0.0),
    'remark_probability': dict(reward_form='probability'),
    'remark_log': dict(reward_form='log'),
    'remark_gail': dict(reward_form='gail'),
}


def _configs(experiment: str, recipe: bool = False, seed: int = 2
            ) -> dict[str, dict[str, Any]]:
  return {job.name: tiny.read_all(job.launch)
          for job in experiments.jobs(experiment, 'runs', [seed], recipe)}


def _last(arguments: list[str]) -> dict[str, str]:
  """Returns the flags as a program reads them: the last of a name counts."""
  return {name.removeprefix('--'): value for name, _, value in (
      argument.partition('=') for argument in arguments)}


class ExperimentsTest(parameterized.TestCase):

  def test_every_flagfile_belongs_to_one(self):
    files = {os.path.basename(path).removesuffix('.flags')
             for path in glob.glob('launch/*.flags')}
    used = {variant.flagfile for variant in experiments.VARIANTS.values()}
    self.assertEqual(files, used | _OTHERS)
    for name in _OTHERS:
      tiny.read_plan([f'--flagfile=launch/{name}.flags'])
    named = {
        name for experiment in experiments.EXPERIMENTS.values()
        for recipe in (False, True) for name in experiment.names(recipe)}
    self.assertEqual(named, set(experiments.VARIANTS))

  @parameterized.parameters(
      *((name, False) for name in experiments.EXPERIMENTS),
      *((name, True) for name in _WITH_RECIPE))
  def test_runs_can_be_set_up(self, experiment, recipe):
    jobs = experiments.jobs(experiment, 'runs', range(2), recipe)
    for job in jobs:
      config = tiny.read(job.launch)
      self.assertEqual(config.run_dir, f'runs/{job.name}_seed{job.seed}')
      self.assertEqual(config.seed, job.seed)
      building.make_world(config)
      for arguments in job.evaluations.values():
        measured = _last(arguments)
        of, = [tiny.read(other.launch) for other in jobs
               if other.run_dir == measured['run_dir']]
        building.make_world(
            of, 'held_out' in measured, measured.get('instructions', ''))
    self.assertLen({job.run_dir for job in jobs}, len(jobs))

  @parameterized.parameters(False, True)
  def test_each_run_is_measured_as_its_experiment_says(self, recipe):
    def flags_of(experiment, name):
      job, = (job for job in experiments.jobs(experiment, 'runs', [3], recipe)
              if job.name == name)
      for arguments in job.evaluations.values():
        self.assertEqual('--nosolved_starts' in arguments, recipe)
      return job.run_dir, {
          os.path.basename(path).removesuffix('.json'): _last(arguments)
          for path, arguments in job.evaluations.items()}

    for way in 'strings', 'meanings':
      run_dir, measured = flags_of('held_out', f'held_out_{way}')
      self.assertEqual(set(measured), {'seen', 'held_out'})
      self.assertNotIn('held_out', measured['seen'])
      self.assertIn('held_out', measured['held_out'])
      self.assertEqual(
          {each['run_dir'] for each in measured.values()}, {run_dir})
    for trained, other in ('relations', 'crowded'), ('crowded', 'relations'):
      _, measured = flags_of('crowded', trained)
      self.assertEqual(
          {name: each.get('world') for name, each in measured.items()},
          {'evaluation': None, other: other})
    run_dir, measured = flags_of('figure5', 'immovable')
    self.assertEqual(
        {name: (each['run_dir'], each.get('physics'))
         for name, each in measured.items()},
        {'before': ('runs/relations_seed3', 'normal'),
         'changed': ('runs/relations_seed3', 'immovable_red_rects'),
         'tuned': (run_dir, None)})
    self.assertEqual({each['instructions'] for each in measured.values()},
                     {experiments.PAPERS_INSTRUCTIONS[1]})

  def test_flagfiles_have_the_papers_values(self):
    """Settings that a flagfile does not name keep their defaults."""
    changes = _CHANGES | {
        'data_efficiency': dict(dataset_size=8192),
        'arrangements': dict(
            world='arrangements', episode_length=45, rollout_length=30,
            dataset_size=100_000, steps=100_000_000, checkpoint_minutes=30.0,
            checkpoints_kept=100)}
    changes['immovable'] = changes['immovable'] | dict(
        reward_model='runs/relations', initial_policy='runs/relations')
    self.assertEqual(
        set(changes), {experiments.VARIANTS[variant].flagfile
                       for name in _PAPERS
                       for variant in experiments.EXPERIMENTS[name].variants})
    paper_values = config_lib.Config(
        world='relations', reward='discriminator', reward_prediction=False,
        anticipated_negative_rate=.25, dataset_size=131_072, policy_threads=15,
        policy_workers=15, steps=500_000_000, episode_length=30)
    for name, changed in changes.items():
      self.assertEqual(
          tiny.read([f'--flagfile=launch/{name}.flags']),
          dataclasses.replace(
              paper_values, run_dir=f'runs/{name}', **changed))

  def test_a_run_with_the_recipe_has_the_variants_own_settings_on_top(self):
    evening = tiny.read_all(['--preset=relations_evening'])
    changes = {name: {**changed} for name, changed in (_CHANGES | {
        f'data_{size}': dict(dataset_size=size)
        for size in (2048, 8192, 32768, 131_072, 524_288)} | {
            'crowded': dict(world='crowded')}).items()}
    for name in ('relations_a3c', 'relations_a3c_rp', 'relations_lstm_a3c_rp',
                 'immovable'):
      changes[name]['discriminator_head_start'] = 0
    changes['relations_a3c']['reward_prediction_goals'] = 0
    changes['immovable'] |= dict(
        reward_model='runs/relations_seed2', reward_prediction_goals=0,
        initial_policy='runs/relations_seed2')
    configs = {name: config for experiment in _WITH_RECIPE
               for name, config in _configs(experiment, recipe=True).items()}
    # The instructions that its pattern selects, which a run also saves.
    self.assertLen(configs['immovable'].pop('selected_instructions'), 122)
    self.assertEqual(configs, {
        name: evening | changed | dict(run_dir=f'runs/{name}_seed2', seed=2)
        for name, changed in changes.items()})
