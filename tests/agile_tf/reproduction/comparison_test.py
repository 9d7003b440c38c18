"""Tests of the comparison with the paper's table."""

import dataclasses
import html

from absl.testing import absltest
from absl.testing import parameterized
import markdown

from agile_tf import config as config_lib
from agile_tf.recipe import settings
from agile_tf.reproduction import comparison
from agile_tf.reproduction import paper

_CELLS = [
    (row, cell) for row in paper.HYPERPARAMETERS
    for cell in (row.policy, row.discriminator) if cell]
_SETTINGS = [cell.setting for _, cell in _CELLS if cell.setting]


def _line(text: str, start: str) -> str:
  """Returns the only line with a start, without its mark and spaces."""
  line, = [line for line in text.splitlines()
           if ' '.join(line.strip('* ').split()).startswith(start)]
  return line


class PaperTest(parameterized.TestCase):

  @parameterized.named_parameters(
      (f'{cell.setting}', cell) for _, cell in _CELLS if cell.setting)
  def test_default_is_the_papers(self, cell):
    self.assertEqual(getattr(config_lib.Config(), cell.setting), cell.value)

  def test_the_whole_table(self):
    """Repeats the printed table, to catch a slip in paper.py."""
    table = [
        (row.group, row.hyperparameter,
         *(cell and cell.value for cell in (row.policy, row.discriminator)))
        for row in paper.HYPERPARAMETERS]
    self.assertEqual(table, [
        ('RMSProp', 'learning rate', 0.0003, 0.0005),
        ('RMSProp', 'decay', 0.99, 0.9),
        ('RMSProp', 'epsilon', 0.1, 1e-10),
        ('RMSProp', 'grad. norm threshold', 40, 25),
        ('RMSProp', 'batch size', 1, 256),
        ('RL', 'rollout length', 15, None),
        ('RL', 'episode length', 30, None),
        ('RL', 'discount', 0.99, None),
        ('RL', 'reward scale', 0.1, None),
        ('RL', 'baseline cost', 1.0, None),
        ('RL', 'reward prediction cost (when used)', 1.0, None),
        ('RL', 'reward prediction batch size', 4, None),
        ('RL', 'num. workers training pi', 15, 1),
        ('AGILE', 'size of replay buffer B', None, 100000),
        ('AGILE', 'num. workers training D', None, 1),
        ('Regularization', 'entropy weight alpha', 0.01, None),
        ('Regularization', 'max. column norm', None, 1),
    ])

  def test_a_setting_is_in_one_row(self):
    self.assertCountEqual(_SETTINGS, set(_SETTINGS))

  def test_only_these_cells_are_no_settings(self):
    self.assertEqual(
        [(row.hyperparameter, cell.value) for row, cell in _CELLS
         if not cell.setting],
        [('batch size', 1), ('num. workers training pi', 1),
         ('num. workers training D', 1)])


class DifferencesTest(parameterized.TestCase):

  def test_none_by_default(self):
    config = config_lib.Config()
    self.assertEmpty(comparison.differences(config))
    for make in comparison.table_text, comparison.table_markdown:
      text = make(config)
      self.assertIn("Nothing differs from the paper's table.", text)
      self.assertNotIn('*', text)

  def test_none_in_the_other_task(self):
    with_its_values = config_lib.Config(
        world='arrangements', episode_length=45, rollout_length=30)
    self.assertEmpty(comparison.differences(with_its_values))
    self.assertEqual(
        [*comparison.differences(
            config_lib.Config(world='arrangements'))],
        ['rollout_length', 'episode_length'])

  def test_one(self):
    self.assertEqual(
        comparison.differences(config_lib.Config(policy_epsilon=1e-5)),
        {'policy_epsilon': ('0.1', '1e-05')})

  @parameterized.parameters(
      ('reward_prediction', {'reward_prediction_batch_size': 8}),
      ('reward', {'replay_size': 5000}),
  )
  def test_what_is_not_used_does_not_differ(self, switch, changed):
    off = {'reward_prediction': False, 'reward': 'environment'}[switch]
    on = {'reward_prediction': True, 'reward': 'discriminator'}[switch]
    self.assertEmpty(
        comparison.differences(config_lib.Config(**{switch: off}, **changed)))
    self.assertLen(
        comparison.differences(config_lib.Config(**{switch: on}, **changed)), 1)

  def test_every_setting_of_the_table_shows(self):
    for _, cell in _CELLS:
      if cell.setting in ('', 'policy_workers'):
        continue
      changed = {cell.setting: type(getattr(
          config_lib.Config(), cell.setting))(cell.value * 2)}
      if cell.setting in ('policy_decay', 'discriminator_decay', 'discount'):
        changed = {cell.setting: 0.5}
      config = config_lib.Config(reward_prediction=True, **changed)
      self.assertEqual(
          [*comparison.differences(config)], [cell.setting])

  def test_own_names_are_settings(self):
    names = {field.name for field in dataclasses.fields(config_lib.Config)}
    groups = [value for name, value in vars(comparison).items()
              if name.startswith('_OF_')]
    self.assertLen(groups, 3)
    for group in (*groups, _SETTINGS):
      self.assertContainsSubset(group, names)


class TableTest(parameterized.TestCase):

  def test_a_changed_value_is_marked_in_its_row_alone(self):
    text = comparison.table_text(config_lib.Config(batch_size=64))
    marked = [line.split() for line in text.splitlines()
              if line.startswith('*')]
    self.assertEqual(marked, [
        ['*', 'RMSProp', 'batch', 'size', '1', '1', '256', '64'],
        '* --batch_size: 64 here, 256 in the paper'.split()])

  def test_columns_are_aligned(self):
    for config in config_lib.Config(), config_lib.Config(batch_size=64):
      lines = comparison.table_text(config).splitlines()
      column = lines[2].index('paper D')
      for line in lines[4:4 + len(paper.HYPERPARAMETERS)]:
        self.assertEqual(line[column - 1], ' ')
        self.assertNotEqual(line[column], ' ')

  def test_reward_prediction_rows(self):
    row = 'RL reward prediction batch size'
    without = comparison.table_text(config_lib.Config())
    self.assertEqual(_line(without, row).split()[-4:],
                     ['4', 'unused', '-', '-'])
    self.assertIn(
        'unused', _line(without, 'reward_prediction_replay_size'))
    with_it = comparison.table_text(config_lib.Config(reward_prediction=True))
    self.assertEqual(_line(with_it, row).split()[-4:], ['4', '4', '-', '-'])
    self.assertStartsWith(_line(with_it, 'reward_prediction '), '*')

  def test_without_a_discriminator_its_column_is_unused(self):
    text = comparison.table_text(config_lib.Config(reward='environment'))
    for row in paper.HYPERPARAMETERS:
      line = _line(text, f'{row.group} {row.hyperparameter}')
      self.assertEqual(
          line.split()[-1], 'unused' if row.discriminator else '-')

  def test_what_only_a_discriminator_has_is_unused_without_it(self):
    for reward, start in (('discriminator', ['*', 'dataset_size', '512']),
                          ('environment', ['dataset_size', 'unused'])):
      text = comparison.table_text(
          config_lib.Config(reward=reward, dataset_size=512))
      self.assertEqual(
          _line(text, 'dataset_size').split()[:len(start)], start)

  def test_of_the_recipe_what_is_used(self):
    recipe = settings.Recipe(optimizer='adam')
    for make in comparison.table_text, comparison.table_markdown:
      text = make(config_lib.Config(), recipe)
      line, = [line for line in text.splitlines() if 'optimizer' in line]
      self.assertIn('adam', line)
      self.assertNotIn('mismatched_share', text)
      self.assertNotIn('optimizer', make(config_lib.Config()))

  def test_a_world_of_ones_own_has_no_episode_length(self):
    text = comparison.table_text(
        config_lib.Config(world='own:world', dataset='goals.npz'))
    self.assertIn('unused', _line(text, 'RL episode length'))
    self.assertIn('unused', _line(text, 'dataset_size'))

  def test_other_settings(self):
    text = comparison.table_text(
        config_lib.Config(anticipated_negative_rate=0.75, run_dir='/elsewhere'))
    self.assertEqual(_line(text, 'anticipated_negative_rate 0').split(),
                     ['*', 'anticipated_negative_rate', '0.75', '0.25'])
    self.assertNotIn('/elsewhere', text)

  def test_every_setting_of_the_algorithm_is_in_a_table(self):
    text = comparison.table_text(config_lib.Config())
    others = [line.split()[0] for line in
              text.split(comparison._OTHER_TITLE)[1].splitlines()[4:]]
    self.assertCountEqual(_SETTINGS + others, [
        field.name for field in dataclasses.fields(config_lib.Config)
        if not field.metadata['of_run']])

  def test_tensorboard_shows_the_same_as_it_stands(self):
    config = config_lib.Config(batch_size=64, dataset='a_b|c_d.npz')
    page = markdown.markdown(comparison.table_markdown(config))
    self.assertEqual(
        html.unescape(page),
        f'<pre><code>{comparison.table_text(config)}\n</code></pre>')


if __name__ == '__main__':
  absltest.main()
