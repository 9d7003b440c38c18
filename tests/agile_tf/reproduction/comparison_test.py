"""Tests of the comparison with the paper's table."""

import dataclasses

from absl.testing import absltest
from absl.testing import parameterized
import markdown

from agile_tf import config as config_lib
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
      self.assertNotIn('Why', text)

  def test_none_in_the_other_task(self):
    with_its_values = config_lib.Config(
        world='arrangements', episode_length=45, rollout_length=30)
    self.assertEmpty(comparison.differences(with_its_values))
    self.assertEqual(
        [d.setting for d in comparison.differences(
            config_lib.Config(world='arrangements'))],
        ['rollout_length', 'episode_length'])

  def test_one(self):
    self.assertEqual(
        comparison.differences(config_lib.Config(policy_epsilon=1e-5)),
        [comparison.Difference('policy_epsilon', '0.1', '1e-05')])

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
          [difference.setting for difference in comparison.differences(config)],
          [cell.setting])

  def test_own_names_are_settings(self):
    names = {field.name for field in dataclasses.fields(config_lib.Config)}
    groups = [value for name, value in vars(comparison).items()
              if name.startswith('_OF_')]
    self.assertLen(groups, 5)
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

  def test_goal_examples_of_a_policy_are_used(self):
    for changes, used in ((dict(reward_prediction_goals=1), True),
                          (dict(first_steps=9, first_distance=1), True),
                          (dict(first_steps=9), False)):
      text = comparison.table_text(config_lib.Config(
          reward='environment', reward_prediction=True, dataset_size=512,
          **changes))
      self.assertEqual(
          _line(text, 'dataset_size').split(),
          ['*', 'dataset_size', '512', '131072'] if used else
          ['dataset_size', 'unused', '131072'])

  def test_what_only_a_discriminator_has_is_unused_without_it(self):
    changes = dict(
        discriminator_optimizer='adam', mismatched_share=.5,
        discriminator_actors=8, anticipated_negative_rate_steps=5,
        first_anticipated_negative_rate=.5)
    for reward in 'discriminator', 'environment':
      text = comparison.table_text(config_lib.Config(reward=reward, **changes))
      for name in changes:
        line = _line(text, f'{name} ').split()
        if reward == 'discriminator':
          self.assertEqual(line[:2], ['*', name])
        else:
          self.assertEqual(line[:2], [name, 'unused'])

  @parameterized.parameters(
      ('rmsprop', 'rmsprop', 'discriminator', True),
      ('rmsprop', 'adam', 'discriminator', True),
      ('adam', 'rmsprop', 'discriminator', True),
      ('adam', 'adam', 'discriminator', False),
      ('adam', 'rmsprop', 'environment', False))
  def test_adam_has_no_first_mean_square(
      self, policy, discriminator, reward, used):
    text = comparison.table_text(config_lib.Config(
        policy_optimizer=policy, discriminator_optimizer=discriminator,
        reward=reward))
    self.assertEqual(
        _line(text, 'first_mean_square').split(),
        ['first_mean_square', '1' if used else 'unused', '1'])

  def test_a_world_of_ones_own_has_no_curriculum(self):
    text = comparison.table_text(config_lib.Config(
        world='own:world', dataset='goals.npz', first_steps=4,
        repeated_share=.5))
    for name in 'first_steps', 'repeated_share':
      self.assertEqual(_line(text, name).split()[:2], [name, 'unused'])

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

  def test_why(self):
    changed = {'batch_size': 64}
    self.assertIn(
        '\nWhy: a faster start.\n', comparison.table_text(
            config_lib.Config(why='a faster start.', **changed)))
    self.assertIn(
        '--why is empty', comparison.table_text(config_lib.Config(**changed)))

  def test_markdown(self):
    config = config_lib.Config(batch_size=64, dataset='a_b|c_d.npz')
    text = comparison.table_markdown(config)
    self.assertIn('\n| * | RMSProp | batch size | 1 | 1 | 256 | 64 |\n', text)
    self.assertIn('\n- `--batch_size`: 64 here, 256 in the paper\n', text)

  def test_markdown_as_tensorboard_shows_it(self):
    config = config_lib.Config(batch_size=64, dataset='a_b|c_d.npz')
    page = markdown.markdown(
        comparison.table_markdown(config), extensions=['tables'])
    self.assertEqual(page.count('<table>'), 2)
    self.assertEqual(page.count('<li>'), 1)
    self.assertNotIn('<em>', page)
    self.assertIn('<td>*</td>\n<td><code>dataset</code></td>\n'
                  '<td><code>a_b|c_d.npz</code></td>', page)


if __name__ == '__main__':
  absltest.main()
