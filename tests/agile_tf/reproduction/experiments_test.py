"""Tests for experiments: that their runs can be made, and their settings."""

import dataclasses
import glob
import os
import re
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from agile_tf import config as config_lib
from agile_tf import sweep
from agile_tf.reproduction import experiments
from agile_tf.reproduction import paper
from agile_tf.training import building
from gridlu import language
from gridlu import relations
from gridlu import solver
from gridlu import world
from tests.agile_tf import tiny

# Flagfiles of no experiment.
_OTHERS = {'laptop', 'own_world'}
# Those of the paper, which have replicas on a laptop.
_PAPERS = [name for name, experiment in experiments.EXPERIMENTS.items()
           if experiment.replica]


def _drawn(config: config_lib.Config, held_out: bool = False) -> set[str]:
  """Returns the instructions of a GridLU run that has few of them."""
  environment = building.make_world(config, held_out).make_environment(0)
  return {environment.reset().observation['instruction'] for _ in range(600)}


class ExperimentsTest(parameterized.TestCase):

  def test_every_flagfile_belongs_to_one(self):
    files = {os.path.basename(path).removesuffix('.flags')
             for path in glob.glob('launch/*.flags')}
    used = {variant.flagfile for variant in experiments.VARIANTS.values()}
    self.assertEqual(files, used | _OTHERS)
    named = {
        name for experiment in experiments.EXPERIMENTS.values()
        for laptop in (False, True) for name in experiment.names(laptop)}
    self.assertEqual(named, set(experiments.VARIANTS))

  @parameterized.parameters(*(
      (name, laptop) for name in experiments.EXPERIMENTS
      for laptop in (False, True) if not laptop or name in _PAPERS))
  def test_runs_can_be_set_up(self, experiment, laptop):
    jobs = sweep.jobs(experiment, 'runs', range(2), laptop)
    for job in jobs:
      config = tiny.read(job.launch)
      self.assertEqual(config.run_dir, f'runs/{job.name}_seed{job.seed}')
      self.assertEqual(config.seed, job.seed)
      building.make_world(config)
      for arguments in job.evaluations.values():
        # The last one counts.
        run_dir = [x.removeprefix('--run_dir=') for x in arguments
                   if x.startswith('--run_dir=')][-1]
        of, = [tiny.read(other.launch) for other in jobs
               if other.run_dir == run_dir]
        only = ''.join(x.removeprefix('--instructions=') for x in arguments
                       if x.startswith('--instructions='))
        building.make_world(of, '--held_out' in arguments, only)
    self.assertLen({job.run_dir for job in jobs}, len(jobs))

  def test_what_is_measured_after_a_run(self):
    def flags_of(experiment, name, laptop):
      job, = (job for job in sweep.jobs(experiment, 'runs', [3], laptop)
              if job.name == name)
      return job.run_dir, {
          os.path.basename(path).removesuffix('.json'): _last(arguments)
          for path, arguments in job.evaluations.items()}

    def _last(arguments):
      """The flags as a program reads them: the last of a name counts."""
      return {name.removeprefix('--'): value for name, _, value in (
          argument.partition('=') for argument in arguments)}

    for way in 'strings', 'meanings':
      for laptop in False, True:
        run_dir, measured = flags_of('held_out', f'held_out_{way}', laptop)
        self.assertEqual(set(measured), {'seen', 'held_out'})
        self.assertNotIn('held_out', measured['seen'])
        self.assertIn('held_out', measured['held_out'])
        self.assertEqual(
            {each['run_dir'] for each in measured.values()}, {run_dir})
    for laptop, before, only in (
        (False, 'runs/relations_seed3', experiments.PAPERS_INSTRUCTIONS[1]),
        (True, 'runs/carry_red_rect_seed3', experiments._CARRY_RED_RECT)):
      run_dir, measured = flags_of('figure5', 'immovable', laptop)
      self.assertEqual(
          {name: (each['run_dir'], each.get('physics'))
           for name, each in measured.items()},
          {'before': (before, 'normal'),
           'changed': (before, 'immovable_red_rects'),
           'tuned': (run_dir, None)})
      self.assertEqual(
          {each['instructions'] for each in measured.values()}, {only})

  def test_rho_of_a_laptops_runs(self):
    rates = {
        job.name: tiny.read(job.launch).anticipated_negative_rate
        for job in sweep.jobs('figure4_right', 'runs', [0], laptop=True)}
    self.assertEqual(rates, {
        'relations': .25, 'relations_rho50': .5, 'relations_rho75': .75,
        'relations_rho100': 1.0})

  @parameterized.parameters(*_PAPERS)
  def test_a_laptops_values_are_those_of_its_flagfile(self, experiment):
    laptop = tiny.read(['--flagfile=launch/laptop.flags'])
    for job in sweep.jobs(experiment, 'runs', [0], laptop=True):
      config = tiny.read(job.launch)
      if job.name in ('relations', 'relations_rho50', 'relations_rho75'):
        continue  # These are about rho.
      self.assertEqual(config.anticipated_negative_rate,
                       laptop.anticipated_negative_rate)
      self.assertEqual(config.discount, laptop.discount)

  def test_the_papers_values(self):
    """Settings that a flagfile does not name keep their defaults."""
    rate = 'anticipated_negative_rate'
    changes: dict[str, dict[str, Any]] = {
        'relations': {},
        'relations_a3c': dict(reward='environment', reward_prediction=False),
        'relations_a3c_rp': dict(reward='environment', reward_prediction=True),
        'relations_rho50': {rate: .5},
        'relations_rho75': {rate: .75},
        'relations_rho100': {rate: 1.0},
        'relations_lstm': dict(model='lstm'),
        'relations_lstm_a3c_rp': dict(
            model='lstm', reward='environment', reward_prediction=True),
        'data_efficiency': dict(dataset_size=8192),
        'held_out_strings': dict(held_out='strings', held_out_share=.1),
        'held_out_meanings': dict(held_out='meanings', held_out_share=.1),
        'immovable': dict(
            reward='frozen', physics='immovable_red_rects',
            instructions=r"Color\('red', Shape\('rect', SCENE\)\)",
            reward_model='runs/relations', initial_policy='runs/relations'),
        'arrangements': dict(
            world='arrangements', episode_length=45, rollout_length=30,
            dataset_size=100_000, steps=100_000_000, checkpoint_minutes=30.0,
            checkpoints_kept=100),
        'remark_all_workers': dict(all_workers_write=True),
        'remark_no_column_norms': dict(max_column_norm=0.0),
        'remark_probability': dict(reward_form='probability'),
        'remark_log': dict(reward_form='log'),
        'remark_gail': dict(reward_form='gail'),
    }
    self.assertEqual(
        set(changes), {experiments.VARIANTS[variant].flagfile
                       for name in _PAPERS
                       for variant in experiments.EXPERIMENTS[name].variants})
    paper_values = config_lib.Config(
        world='relations', reward='discriminator', reward_prediction=False,
        anticipated_negative_rate=.25, dataset_size=131_072, policy_threads=15,
        policy_workers=15, steps=500_000_000, episode_length=30)
    for name, changed in changes.items():
      expected = dataclasses.replace(
          paper_values, run_dir=f'runs/{name}', **changed)
      self.assertEqual(tiny.read([f'--flagfile=launch/{name}.flags']), expected)

  def test_what_the_agents_of_figure_4_differ_in(self):
    for job in sweep.jobs('figure4_left', 'runs', [0], laptop=False):
      changed = set(config_lib.differences(
          config_lib.Config(), tiny.read(job.launch)))
      for line in changed:
        self.assertRegex(line, '^--(reward|reward_prediction'
                         '|anticipated_negative_rate):')
    rates = [tiny.read(job.launch).anticipated_negative_rate
             for job in sweep.jobs('figure4_right', 'runs', [0], laptop=False)]
    self.assertEqual(rates, [.25, .5, .75, 1])

  @parameterized.parameters(
      ('relations', 'success_rate'), ('relations_a3c', 'success_rate'),
      ('relations_a3c_rp', 'success_rate'), ('relations_rho50', 'success_rate'),
      ('relations_rho100', 'success_rate'), ('relations_lstm', 'success_rate'),
      ('relations_lstm_a3c_rp', 'success_rate'),
      ('relations', 'reward_model_accuracy'),
      ('relations_rho50', 'reward_model_accuracy'),
      ('relations_rho75', 'reward_model_accuracy'),
      ('relations_rho100', 'reward_model_accuracy'))
  def test_headers_have_the_papers_numbers(self, name, column):
    with open(f'launch/{name}.flags', encoding='utf-8') as file:
      header = ' '.join(line[2:].strip() for line in file if line[0] == '#')
    rates = [paper.curve(name, column).mean[-1]]
    if (name, column) in paper.TEXT:
      rates.append(paper.TEXT[name, column])
    for rate in rates:
      self.assertIn(f'{100 * rate:.1f} %', header)

  def test_each_setting_of_the_evening_is_left_out_once(self):
    paper_values = dataclasses.asdict(tiny.read(['--preset=relations']))
    with_all, *others = [
        dataclasses.asdict(tiny.read(job.launch)) for job in sweep.jobs(
            'evening_settings', 'runs', [0], laptop=False)]
    restored = set()
    for config in others:
      changed = {name for name, value in config.items()
                 if value != with_all[name]} - {'run_dir'}
      self.assertNotEmpty(changed)
      for name in changed:
        self.assertEqual(
            config[name], paper_values['entropy_weight']
            if name == 'first_entropy_weight' else paper_values[name], name)
      restored |= changed
    theirs = {name for name, value in with_all.items()
              if value != paper_values[name]}
    # Not departures from the algorithm, or of no effect with those restored.
    self.assertEqual(theirs - restored, {
        'run_dir', 'steps', 'why', 'policy_threads', 'first_instructions',
        'first_policy_learning_rate', 'entropy_weight_steps'})

  def test_the_mean_of_a_loss_is_three_settings(self):
    """RMSProp with a mean over 15 steps moves as with the scaled settings."""
    plain = tiny.read(['--preset=relations_a3c_rp'])
    scaled = tiny.read(
        ['--preset=relations_a3c_rp',
         *experiments.A3C_RP_READINGS['mean_loss']])
    length = plain.rollout_length
    moves: list[list[np.ndarray]] = [[], []]
    for i, (config, factor) in enumerate(((plain, 1 / length), (scaled, 1))):
      # Only the slots' beginning, which is forgotten, is not scaled in a run.
      slot = np.ones([8]) if config is plain else np.full([8], length**2)
      rng = np.random.default_rng(0)
      for size in 0.1, 3.0, 500.0:
        rollout, prediction = size * rng.normal(size=[2, 8])
        gradient = (
            factor * rollout + config.reward_prediction_cost * prediction)
        gradient *= min(
            1, config.policy_gradient_norm / np.linalg.norm(gradient))
        slot = (config.policy_decay * slot +
                (1 - config.policy_decay) * gradient**2)
        moves[i].append(gradient / np.sqrt(slot + config.policy_epsilon))
    np.testing.assert_allclose(moves[0], moves[1])

  @parameterized.parameters('held_out_strings', 'held_out_meanings')
  def test_a_laptops_held_out_instructions_are_made_of_known_words(self, name):
    job, = [job for job in sweep.jobs('held_out', 'runs', [0], laptop=True)
            if job.name == name]
    sides = [_drawn(tiny.read(job.launch), held_out)
             for held_out in (False, True)]
    self.assertEqual([len(side) for side in sides], [24, 6])
    words = [set(re.findall(r'\w+', ' '.join(side))) for side in sides]
    self.assertEmpty(words[1] - words[0])
    twins = [str(language.parse(text).twin) in sides[0] for text in sides[1]]
    if name == 'held_out_strings':  # This is how a split by strings leaks.
      self.assertTrue(any(twins))
    else:
      self.assertFalse(any(twins))

  def test_a_laptops_red_rects_are_needed(self):
    _, job = sweep.jobs('figure5', 'runs', [0], laptop=True)
    known = [language.parse(text) for text in _drawn(tiny.read(job.launch))]
    drawn = relations.instances(np.random.default_rng(0), 200, known)
    texts = [str(known[i]) for i in drawn.instruction]
    solvable = [
        np.mean(solver.shortest(texts, drawn.state, physics, max_steps=30) !=
                solver.UNSOLVABLE)
        for physics in (world.NORMAL, world.IMMOVABLE_RED_RECTS)]
    self.assertGreater(solvable[0], .99)
    self.assertLess(solvable[1], .95)

  def test_sizes_of_figure_7(self):
    sizes = [tiny.read(job.launch).dataset_size
             for job in sweep.jobs('figure7', 'runs', [0], laptop=False)]
    self.assertEqual(sizes, [2**n for n in range(9, 20)])

  @parameterized.parameters((False, {0}), (True, {4, 5}))
  def test_data_may_vary_with_the_seed(self, vary_data, expected):
    todo = sweep.jobs('held_out', 'runs', [4, 5], laptop=False,
                      vary_data=vary_data)
    configs = [tiny.read(job.launch) for job in todo]
    self.assertEqual({config.seed for config in configs}, {4, 5})
    for name in ('dataset_seed', 'held_out_seed'):
      self.assertEqual({getattr(config, name) for config in configs}, expected)

  def test_fine_tuning_follows_its_own_seed(self):
    first, tuned = sweep.jobs('figure5', 'runs', [3], laptop=False)
    config = tiny.read(tuned.launch)
    self.assertEqual(config.reward_model, first.run_dir)
    self.assertEqual(config.initial_policy, first.run_dir)
    self.assertEqual(config.reward, 'frozen')


if __name__ == '__main__':
  absltest.main()
