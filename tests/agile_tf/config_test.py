"""Tests for config: what it refuses, and that it comes back from JSON."""

import dataclasses
import errno
import json
import math
import os
from unittest import mock

from absl import flags
from absl.testing import absltest
from absl.testing import parameterized

from agile_tf import config
from agile_tf.agent import networks
from agile_tf.agent import rewards
from gridlu import tasks
from gridlu import world

_FIELDS = {field.name: field for field in dataclasses.fields(config.Config)}
_NUMBERS = [name for name, field in _FIELDS.items()
            if isinstance(field.default, (int, float)) and
            not isinstance(field.default, bool)]
_CHOICES = [name for name, field in _FIELDS.items()
            if field.metadata['choices']]

# The limits, by hand.
_AT_LEAST = {
    'episode_length': 1, 'reward_prediction_batch_size': 2,
    'reward_prediction_replay_size': 1, 'rollout_length': 1,
    'baseline_cost': 0, 'entropy_weight': 0, 'policy_workers': 1,
    'policy_threads': 1, 'batch_size': 2, 'replay_size': 1,
    'steps_per_discriminator_update': 0, 'dataset_size': 1, 'dataset_seed': 0,
    'steps': 1, 'seed': 0, 'log_steps': 1,
    'max_column_norm': 0, 'held_out_seed': 0,
    'checkpoints_kept': 1, 'intra_op_threads': 0,
    'inter_op_threads': 0, 'reward_prediction_goals': 0, 'first_steps': 0,
    'anticipated_negative_rate_steps': 0, 'discriminator_actors': 1,
    'discriminator_head_start': 0, 'mismatched_share': 0,
    'first_distance': 0, 'first_entropy_weight': 0, 'entropy_weight_steps': 0,
    'policy_learning_rate_steps': 0, 'repeated_share': 0,
    'first_mean_square': 0,
}
_MORE_THAN_0 = (
    'reward_scale', 'reward_prediction_cost', 'policy_learning_rate',
    'first_policy_learning_rate', 'policy_epsilon', 'policy_gradient_norm',
    'discriminator_learning_rate', 'discriminator_epsilon',
    'discriminator_gradient_norm',
    'checkpoint_minutes', 'anticipated_negative_rate',
    'first_anticipated_negative_rate', 'held_out_share', 'stall_minutes',
    'image_minutes')
_DOUBLE = (
    'held_out_share', 'anticipated_negative_rate',
    'first_anticipated_negative_rate', 'dataset_carrying', 'mismatched_share',
    'checkpoint_minutes', 'stall_minutes', 'image_minutes')
_AT_LEAST_0_AT_MOST_1 = (
    'policy_decay', 'discriminator_decay', 'discount', 'td_lambda',
    'dataset_carrying')
_AT_MOST = {
    'episode_length': 2**31 - 1, 'rollout_length': 10_000,
    'policy_workers': 10_000, 'policy_threads': 1000,
    'discriminator_actors': 10_000, 'mismatched_share': 0.9,
    'repeated_share': 0.99, 'steps': 900_000_000_000, 'intra_op_threads': 4096,
    'inter_op_threads': 4096, 'first_distance': 1000}
_OF_RUN = (
    'strict_dataset', 'steps', 'run_dir', 'log_steps', 'image_minutes',
    'stall_minutes', 'checkpoint_minutes', 'checkpoints_kept', 'why',
    'devices', 'intra_op_threads', 'inter_op_threads',
    'compilation_cache')


class ConfigTest(parameterized.TestCase):

  def _assert_refused(self, name, value, *expected):
    with self.assertRaises(config.ConfigError) as context:
      config.Config(**{name: value})
    message = str(context.exception)
    self.assertStartsWith(message, f'--{name}={value}: expected ')
    for words in expected:
      self.assertIn(words, message)

  def test_every_number_has_a_limit_here(self):
    self.assertCountEqual(
        _NUMBERS, [*_AT_LEAST, *_MORE_THAN_0, *_AT_LEAST_0_AT_MOST_1])

  @parameterized.parameters(*_AT_LEAST.items())
  def test_at_least(self, name, low):
    self._assert_refused(name, low - 1, f'at least {low}')
    if name != 'replay_size':  # One draw from B needs more.
      changes = {name: low}
      if name == 'policy_workers':
        changes['policy_threads'] = 1
      self.assertEqual(getattr(config.Config(**changes), name), low)

  @parameterized.parameters(
      (dict(), 'needs a --discriminator_head_start'),
      (dict(discriminator_head_start=1, discriminator_model='lstm'),
       'needs two networks of one kind'),
      (dict(discriminator_head_start=1, initial_policy='x'),
       'would replace a part of --initial_policy=x'))
  def test_features_of_the_discriminator_need(self, changes, message):
    with self.assertRaisesRegex(config.ConfigError, message):
      config.Config(policy_features='discriminator', **changes)

  @parameterized.parameters(*_MORE_THAN_0)
  def test_more_than_0(self, name):
    self._assert_refused(name, 0.0, 'more than 0')
    self._assert_refused(name, -1.0, 'more than 0')
    config.Config(**{name: 0.01})

  @parameterized.parameters(*_AT_LEAST_0_AT_MOST_1)
  def test_between_0_and_1(self, name):
    self._assert_refused(name, -1e-9, 'at least 0 and at most 1')
    self._assert_refused(name, 1.01, 'at least 0 and at most 1')
    for value in (0.0, 0.5, 1.0):
      config.Config(**{name: value})

  def test_anticipated_negative_rate_is_a_share(self):
    self._assert_refused(
        'anticipated_negative_rate', 1.5, 'more than 0 and at most 1')
    config.Config(anticipated_negative_rate=1.0)

  @parameterized.product(name=_NUMBERS, value=(math.nan, math.inf, -math.inf))
  def test_not_finite(self, name, value):
    self._assert_refused(name, value)

  def test_which_floats_end_in_float32(self):
    self.assertCountEqual(
        [name for name in _NUMBERS if _FIELDS[name].metadata['double']],
        _DOUBLE)

  @parameterized.parameters(*[
      name for name in _NUMBERS
      if isinstance(_FIELDS[name].default, float) and name not in _DOUBLE])
  def test_what_float32_cannot_hold(self, name):
    for value in 1e39, 4e38, 1e-38, 1e-310:
      if value < 1 or _FIELDS[name].metadata['high'] is None:
        self._assert_refused(name, value, 'a float32, from')
    config.Config(**{name: 2e-38})
    if _FIELDS[name].metadata['high'] is None:
      config.Config(**{name: 3e38})

  @parameterized.parameters(*_DOUBLE)
  def test_what_python_alone_computes_with(self, name):
    if name != 'anticipated_negative_rate':  # One draw would be too large.
      config.Config(**{name: 1e-310})

  @parameterized.parameters(*_CHOICES)
  def test_choices(self, name):
    choices = _FIELDS[name].metadata['choices']
    self._assert_refused(name, 'other', 'one of ' + ', '.join(choices))
    self._assert_refused(name, '', 'one of ')

  def test_choices_are_those_of_the_modules(self):
    self.assertEqual(_FIELDS['model'].metadata['choices'], networks.MODELS)
    self.assertEqual(_FIELDS['reward_form'].metadata['choices'], rewards.FORMS)
    self.assertEqual(
        _FIELDS['physics'].metadata['choices'], tuple(world.PHYSICS))

  @parameterized.parameters(*_AT_MOST.items())
  def test_at_most(self, name, high):
    self._assert_refused(name, high + 1, f'at most {high}')
    changes = {'policy_threads': {'policy_workers': high},
               'policy_workers': {'policy_threads': 1},
               'first_distance': {'first_steps': 1}}.get(name, {})
    self.assertEqual(
        getattr(config.Config(**{**changes, name: high}), name), high)

  @parameterized.parameters(*_NUMBERS)
  def test_huge_numbers(self, name):
    self._assert_refused(name, 2**63 - 1 if name in _AT_MOST else 2**63)
    for value in 10**400, -10**400, 16**6000:  # Python prints not each of them.
      with self.assertRaisesRegex(
          config.ConfigError, rf'--{name}=\(a number of \d+ bits\): expected'):
        config.Config(**{name: value})

  @parameterized.parameters('run_dir', 'why', 'world', 'instructions',
                            'dataset', 'reward_model', 'initial_policy')
  def test_what_is_no_text(self, name):
    for value, problem in (
        (os.fsdecode(b'a\xff'), r"'a\\udcff': expected text in UTF-8"),
        ('a\0', r"'a\\x00': expected text without a null"),
        ('x' * 300 + '\0', r"'x{199}\.\.\.: expected text without")):
      with self.assertRaisesRegex(config.ConfigError, f'--{name}={problem}'):
        config.Config(**{name: value})

  def test_a_rate_that_is_almost_0(self):
    with self.assertRaisesRegex(
        config.ConfigError, r'one draw from B \(inf pairs'):
      config.Config(anticipated_negative_rate=1e-310)

  def test_many_workers_and_threads_that_do_not_divide_them(self):
    with self.assertRaisesRegex(config.ConfigError, 'use one of 1, 2, 4, '):
      config.Config(policy_workers=10_000, policy_threads=7)

  def test_threads_divide_workers(self):
    with self.assertRaisesRegex(
        config.ConfigError, '--policy_threads=4 does not divide '
        '--policy_workers=6; use one of 1, 2, 3, 6.'):
      config.Config(policy_workers=6, policy_threads=4)
    for threads in (1, 2, 3, 6):
      config.Config(policy_workers=6, policy_threads=threads)

  def test_batch_has_two_halves(self):
    with self.assertRaisesRegex(
        config.ConfigError, '--batch_size=255 is odd; .*use an even number'):
      config.Config(batch_size=255)

  @parameterized.parameters((1.0, 0.25), (0.25, 1.0), (0.25, 0.25))
  def test_a_draw_is_enough_for_the_smallest_rho(self, first, last):
    self.assertEqual(config.Config(
        first_anticipated_negative_rate=first, anticipated_negative_rate=last,
        anticipated_negative_rate_steps=1000).num_candidates, 512)

  @parameterized.parameters(
      dict(reward='environment'), dict(reward='frozen', reward_model='runs/x'))
  def test_a_head_start_needs_a_discriminator(self, **changes):
    with self.assertRaisesRegex(
        config.ConfigError, '--discriminator_head_start=5'):
      config.Config(discriminator_head_start=5, **changes)

  def test_replay_holds_a_draw(self):
    # 256 / (2 * 0.25) = 512.
    config.Config(replay_size=512)
    with self.assertRaisesRegex(
        config.ConfigError, r'--replay_size=511 is less than one draw from B '
        r'\(512 pairs.*make it.* larger'):
      config.Config(replay_size=511)
    config.Config(replay_size=511, anticipated_negative_rate=0.5)

  @parameterized.parameters(
      ('frozen', ''), ('discriminator', 'runs/x'), ('environment', 'runs/x'))
  def test_reward_and_its_model(self, reward, reward_model):
    with self.assertRaisesRegex(
        config.ConfigError, f"--reward={reward} with --reward_model="
        f"'{reward_model}': a frozen reward needs the directory"):
      config.Config(reward=reward, reward_model=reward_model)

  @parameterized.parameters(
      ('discriminator', '', True), ('environment', '', False),
      ('frozen', 'runs/x', False))
  def test_who_trains_a_discriminator(self, reward, reward_model, expected):
    self.assertEqual(
        config.Config(reward=reward, reward_model=reward_model)
        .trains_discriminator, expected)

  def test_what_is_expected_is_said(self):
    for changes, expected in (
        (dict(image_minutes=math.inf), 'a finite number and more than 0'),
        (dict(discount=math.nan),
         'a finite number and at least 0 and at most 1'),
        (dict(discount=1.5), 'at least 0 and at most 1'),
        (dict(run_dir='gs://bucket/run'), 'a directory of this machine')):
      with self.assertRaisesRegex(
          config.ConfigError, f': expected {expected}'):
        config.Config(**changes)

  def test_a_goal_example_has_no_next_state(self):
    with self.assertRaisesRegex(
        config.ConfigError, 'Use --reward_prediction_of=this_state'):
      config.Config(reward_prediction=True, reward_prediction_goals=2,
                    reward_prediction_of='next_state')


class FlagsTest(parameterized.TestCase):

  def _parse(self, *arguments):
    """Parses flags of our own, so that other tests' stay as they are."""
    values = flags.FlagValues()
    config.define_flags(values)
    values(['program', *arguments])
    return config.from_flags(values)

  def test_defaults(self):
    self.assertEqual(self._parse(), config.Config())

  def test_given(self):
    self.assertEqual(
        self._parse('--noop', '--steps=7', '--discount=.5', '--why=so'),
        config.Config(noop=True, steps=7, discount=.5, why='so'))

  def test_refused(self):
    with self.assertRaisesRegex(config.ConfigError, '--discount=2.0: expected'):
      self._parse('--discount=2')

  def test_every_setting_has_a_help(self):
    for name, field in _FIELDS.items():
      self.assertGreater(len(field.metadata['text']), 5, name)


class FileTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._path = os.path.join(self.create_tempdir().full_path, 'config.json')

  def test_round_trip(self):
    saved = config.Config(
        noop=True, steps=7, discriminator_epsilon=1e-10, discount=1 / 3,
        why='Größe "und" so')
    config.save(saved, self._path)
    self.assertEqual(config.load(self._path), saved)
    self.assertEqual(
        os.listdir(os.path.dirname(self._path)), ['config.json'])

  def test_settings_that_are_gone(self):
    with open(self._path, 'w', encoding='utf-8') as file:
      json.dump({'steps': 7, 'image_steps': 100_000, 'solved_starts': False},
                file)
    self.assertEqual(config.load(self._path), config.Config(steps=7))

  @parameterized.parameters(
      ({}, True), ({'world': 'relations'}, True),
      ({'solved_starts': False}, False), ({'world': 'arrangements'}, False),
      ({'world': 'corners'}, True),
      ({'world': 'own:world'}, False))
  def test_runs_of_earlier_versions_had_solved_starts(self, values, expected):
    with mock.patch.dict(tasks.TASKS, corners=tasks.find('relations')):
      self.assertEqual(config.restored(values).solved_starts, expected)

  def test_missing(self):
    with self.assertRaisesRegex(
        config.MissingError, 'There is no .*config.json: expected a directory'):
      config.load(self._path)

  def test_an_error_of_the_system_is_not_missing(self):
    error = OSError(errno.EIO, os.strerror(errno.EIO))
    with mock.patch('builtins.open', side_effect=error):
      with self.assertRaisesRegex(
          config.ConfigError, 'cannot be read: .*Input/output') as caught:
        config.load(self._path)
    self.assertNotIsInstance(caught.exception, config.MissingError)

  @parameterized.parameters(
      '', '{', '[]', '3', 'null', '{"no_such_setting": 1}',
      '{"steps": "many"}', '{"discount": null}', '{"steps": [1]}',
      '[' * 100_000, '{"steps": ' + '9' * 5000 + '}')
  def test_no_configuration(self, text):
    with open(self._path, 'w', encoding='utf-8') as file:
      file.write(text)
    with self.assertRaisesRegex(
        config.ConfigError, 'config.json is not a configuration of this'):
      config.load(self._path)

  def test_not_text(self):
    with open(self._path, 'wb') as file:
      file.write(b'\xff\xfe\x00')
    with self.assertRaisesRegex(config.ConfigError, 'is not a configuration'):
      config.load(self._path)

  def test_refused_value(self):
    with open(self._path, 'w', encoding='utf-8') as file:
      json.dump({'discount': 2.0}, file)
    with self.assertRaisesRegex(config.ConfigError, '--discount=2.0: expected'):
      config.load(self._path)


class DifferencesTest(parameterized.TestCase):

  def test_names_both_values(self):
    one = config.Config(discount=0.5, why='this', steps=3)
    other = config.Config(noop=True, why='that', steps=4)
    self.assertEqual(list(config.differences(one, other)), [
        '--noop: False there, True here',
        '--discount: 0.5 there, 0.99 here'])
    self.assertEmpty(list(config.differences(one, one)))

  def test_settings_of_a_run_make_no_difference(self):
    self.assertCountEqual(
        [name for name, field in _FIELDS.items() if field.metadata['of_run']],
        _OF_RUN)
    changed = config.Config(
        strict_dataset=True, steps=1, run_dir='x', log_steps=1,
        image_minutes=1.0, stall_minutes=1.0, checkpoint_minutes=1.0,
        checkpoints_kept=1, why='x', devices='CPU:0',
        intra_op_threads=1, inter_op_threads=1, compilation_cache=False)
    for name in _OF_RUN:
      self.assertNotEqual(
          getattr(changed, name), getattr(config.Config(), name))
    self.assertEmpty(list(config.differences(config.Config(), changed)))


if __name__ == '__main__':
  absltest.main()
