"""Tests of the comparison with the paper's table."""

import dataclasses
import html
import re

from absl.testing import parameterized
import markdown

from agile_tf import config as config_lib
from agile_tf.recipe import settings
from agile_tf.reproduction import comparison
from agile_tf.reproduction import paper

_PLAIN = settings.Recipe()


class DifferencesTest(parameterized.TestCase):

  @parameterized.parameters(
      ({}, []),
      (dict(reward_prediction=True), ['reward_prediction']),
      (dict(policy_epsilon=1e-5), ['policy_epsilon']),
      (dict(anticipated_negative_rate=.75), ['anticipated_negative_rate']),
      (dict(run_dir='/elsewhere', policy_threads=15), []),
      # Arrangements has values of its own in the paper.
      (dict(world='arrangements', episode_length=45, rollout_length=30,
            dataset_size=100_000), ['world']),
      (dict(world='arrangements'),
       ['world', 'episode_length', 'rollout_length', 'dataset_size']),
      # What is not used does not differ.
      (dict(reward_prediction_batch_size=8), []),
      (dict(reward_prediction=True, reward_prediction_batch_size=8),
       ['reward_prediction', 'reward_prediction_batch_size']),
      (dict(reward='environment', replay_size=5000, dataset_size=512),
       ['reward']),
      (dict(replay_size=5000, dataset_size=512),
       ['replay_size', 'dataset_size']),
      (dict(world='own:world', dataset='goals.npz', dataset_size=512,
            episode_length=9), ['world', 'dataset']))
  def test_the_table_has_settings_that_differ_and_are_used(
      self, changes, expected):
    config = config_lib.Config(td_lambda=0, **changes)
    self.assertEqual(comparison.differences(config, _PLAIN), expected)

  def test_every_setting_of_the_table_shows(self):
    for name, (value, _) in paper.HYPERPARAMETERS.items():
      changed = type(getattr(config_lib.Config(), name))(value / 2 + 0.3)
      config = config_lib.Config(**{
          'reward_prediction': True, 'policy_threads': 1, name: changed})
      self.assertIn(name, comparison.differences(config, _PLAIN))


class TableTest(parameterized.TestCase):

  def _row(self, name, **changes):
    """Returns the cells of a setting's row."""
    text = comparison.table_text(config_lib.Config(**changes), _PLAIN)
    row, = [line for line in text.splitlines()
            if re.match(rf'[* ] +{name} ', line)]
    return re.split('  +', row.strip())

  def test_a_row_has_the_papers_value_and_its_place(self):
    self.assertEqual(
        self._row('batch_size', batch_size=64),
        ['*', 'batch_size', '64', '256', '256', 'D: RMSProp, batch size'])
    self.assertEqual(
        self._row('rollout_length', world='arrangements', rollout_length=30),
        ['rollout_length', '30', '30', '15', 'appendix C'])
    self.assertEqual(self._row('td_lambda')[:4], ['*', 'td_lambda', '1', '0'])
    self.assertEqual(self._row('model'), ['model', 'nmn', '-', 'nmn'])
    self.assertEqual(self._row('dataset_size', reward='environment')[1],
                     'unused')

  def test_the_table_has_the_recipes_settings_that_are_used(self):
    recipe = settings.Recipe(optimizer='adam')
    as_in_paper = config_lib.Config(td_lambda=0)
    for make in comparison.table_text, comparison.table_markdown:
      text = make(config_lib.Config(), recipe)
      line, = [line for line in text.splitlines() if 'optimizer ' in line]
      self.assertIn('adam', line)
      self.assertNotIn('mismatched_share', text)
      self.assertIn('Nothing differs', make(as_in_paper, _PLAIN))

  def test_the_table_lacks_the_recipes_settings_that_are_off(self):
    off = dict(first_policy_learning_rate=1., first_entropy_weight=1.)
    on = dict(policy_learning_rate_steps=5, entropy_weight_steps=5)
    for recipe, names in ((off, []), (off | on, [*off, *on])):
      self.assertCountEqual(comparison.differences(
          config_lib.Config(td_lambda=0), settings.Recipe(**recipe)), names)

  def test_without_a_discriminator_only_predicted_goals_need_goals(self):
    config = config_lib.Config(reward='environment', reward_prediction=True,
                               dataset_size=512, td_lambda=0)
    for goals, names in ((0, []), (2, [
        'dataset_size', 'reward_prediction_goals', 'dataset_carrying'])):
      recipe = settings.Recipe(
          reward_prediction_goals=goals, mismatched_share=0.5,
          discriminator_actors=15, dataset_carrying=0.5)
      self.assertCountEqual(
          comparison.differences(config, recipe),
          ['reward', 'reward_prediction', *names])

  def test_every_setting_of_the_algorithm_has_a_row(self):
    text = comparison.table_text(config_lib.Config(td_lambda=0), _PLAIN)
    lines = text.splitlines()[4:-2]
    self.assertEqual([line.split()[0] for line in lines], [
        field.name for field in dataclasses.fields(config_lib.Config)
        if not field.metadata['of_run']])

  def test_tensorboard_shows_the_same_as_it_stands(self):
    config = config_lib.Config(batch_size=64, dataset='a_b|c_d.npz')
    page = markdown.markdown(comparison.table_markdown(config, _PLAIN))
    self.assertEqual(
        html.unescape(page),
        f'<pre><code>{comparison.table_text(config, _PLAIN)}\n</code></pre>')
