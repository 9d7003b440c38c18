"""Tests for config: what it refuses, and that it comes back from JSON."""

import dataclasses
import errno
import json
import math
import os
import pathlib
import re
from unittest import mock

from absl.testing import parameterized

import agile_tf
from agile_tf import config
from agile_tf.agent import networks
from agile_tf.agent import rewards
from agile_tf.recipe import settings

_FIELDS = {field.name: field for kind in (config.Config, settings.Recipe)
           for field in dataclasses.fields(kind)}
_NUMBERS = [name for name, field in _FIELDS.items()
            if isinstance(field.default, (int, float)) and
            not isinstance(field.default, bool)]


def _make(**changes):
  """Makes what has this setting."""
  name, = changes
  own = {field.name for field in dataclasses.fields(config.Config)}
  return (config.Config if name in own else settings.Recipe)(**changes)


class ConfigTest(parameterized.TestCase):

  def _assert_refused(self, name, value, *expected):
    with self.assertRaises(config.ConfigError) as context:
      _make(**{name: value})
    message = str(context.exception)
    self.assertStartsWith(message, f'--{name}={value}: expected ')
    for words in expected:
      self.assertIn(words, message)

  @parameterized.parameters(*_NUMBERS)
  def test_numbers_beyond_their_limits_are_refused(self, name):
    """Every number has a lower limit, and is refused below it."""
    limits = _FIELDS[name].metadata
    low, above, high = limits['low'], limits['above'], limits['high']
    self.assertFalse(low is None and above is None)
    if low is not None:
      self._assert_refused(name, type(low)(low - 1), f'at least {low}')
    else:
      self._assert_refused(name, above, f'more than {above}')
    if high is not None:
      self._assert_refused(name, high + 1, f'at most {high}')
    for value in math.nan, math.inf, -math.inf:
      self._assert_refused(name, value)

  def test_what_is_expected_is_said(self):
    for changes, expected in (
        (dict(checkpoint_minutes=math.inf), 'a finite number'),
        (dict(discount=10**400), 'a finite number'),
        (dict(run_dir='caf\udce9'), 'a text that UTF-8 can encode'),
        (dict(discount=1.5), 'at least 0 and at most 1'),
        (dict(anticipated_negative_rate=1.5), 'at least 1e-06 and at most 1'),
        (dict(steps=900_000_000_001), 'at least 1 and at most 900000000000'),
        (dict(mismatched_share=0.95), 'at least 0 and at most 0.9'),
        (dict(run_dir='gs://bucket/run'), 'a directory of this machine')):
      with self.assertRaisesRegex(
          config.ConfigError, f': expected {expected}'):
        _make(**changes)

  def test_choices_are_those_of_the_modules(self):
    self.assertEqual(config.MODELS, networks.MODELS)
    self.assertEqual(
        _FIELDS['reward_form'].metadata['choices'], tuple(rewards.FORMS))
    self._assert_refused('model', 'other', 'one of nmn, lstm')
    self._assert_refused('optimizer', '', 'one of rmsprop, adam')
    self._assert_refused('physics', '', 'one of normal, immovable_red_rects')
    self._assert_refused('held_out', '', 'one of none, strings, meanings')

  @parameterized.parameters(
      (dict(policy_workers=6, policy_threads=4), '--policy_threads=4 does not '
       'divide --policy_workers=6; use one of 1, 2, 3, 6.'),
      (dict(batch_size=255), '--batch_size=255 is odd; .*use an even number'),
      (dict(reward='frozen'), "frozen with --reward_model='': a frozen reward"),
      (dict(reward_model='runs/x'), "discriminator with .*'runs/x': a frozen "),
      (dict(reward='environment', reward_model='runs/x'), 'a frozen reward'),
      (dict(reward='environment', held_out_goals=0.02),
       'held_out_goals=0.02 with --reward=environment: only a run that trains'),
      (dict(branch_from='runs/x'), 'branch_from=runs/x: expected the directory '
       'of a run and a step .*such as'),
      (dict(branch_from='@5'), 'branch_from=@5: expected the directory'),
      (dict(branch_from='runs/x@' + 5000 * '9'), 'branch_from=runs/x@999'),
      (dict(branch_from='runs/x@-5'), 'runs/x@-5: expected the directory'),
      (dict(branch_from='runs/x@5', initial_policy='runs/y'),
       '--initial_policy=runs/y with --branch_from'))
  def test_contradictions_are_refused(self, changes, problem):
    with self.assertRaisesRegex(config.ConfigError, problem):
      config.Config(**changes)


  def test_a_branch_names_a_run_and_a_step(self):
    self.assertIsNone(config.Config().branch)
    self.assertEqual(
        config.Config(branch_from='runs/a@b/@0050').branch, ('runs/a@b', 50))


class FileTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._path = os.path.join(self.create_tempdir().full_path, 'config.json')

  def _write(self, text):
    pathlib.Path(self._path).write_text(text, 'utf-8')

  def test_loading_returns_what_was_saved(self):
    saved = config.Config(
        truncate=True, steps=7, discriminator_epsilon=1e-10, discount=1 / 3,
        run_dir='Größe "und" so')
    recipe = settings.Recipe(optimizer='adam')
    values = settings.saved(saved, recipe)
    config.save(values, self._path)
    self.assertEqual(settings.load(self._path), (saved, recipe))
    self.assertEqual(config.read(self._path), values)
    self.assertEqual(
        os.listdir(os.path.dirname(self._path)), ['config.json'])

  def test_settings_of_another_version_name_the_commit_that_reads_them(self):
    self._write(json.dumps({'steps': 7, 'first_mean_square': 0.0}))
    with self.assertRaisesRegex(
        config.ConfigError, 'no setting first_mean_square.*ad1cf9b'):
      settings.load(self._path)

  def test_a_run_from_before_a_late_setting_has_its_default(self):
    late = config.marked('late')
    self.assertEqual(late, ['reward_threshold', 'held_out_goals'])
    now = settings.saved(config.Config(), settings.Recipe())
    before = {name: now[name] for name in now if name not in late}
    self._write(json.dumps(before))
    self.assertEqual(settings.load(self._path)[0], config.Config())
    self.assertEqual(config.read(self._path), now)
    self.assertEmpty(config.differences(before, now))
    self.assertEqual(
        config.differences(before, now | {'reward_threshold': 0.9}),
        ['--reward_threshold: 0.5 there, 0.9 here'])

  def test_a_missing_file_is_named(self):
    with self.assertRaisesRegex(
        config.MissingError, 'There is no .*config.json: expected a directory.*'
        f'The trained agent .* is in {agile_tf.TRAINED}'):
      settings.load(self._path)

  def test_an_error_of_the_system_is_not_missing(self):
    error = OSError(errno.EIO, os.strerror(errno.EIO))
    with mock.patch('builtins.open', side_effect=error):
      with self.assertRaisesRegex(
          config.ConfigError, 'cannot be read: .*Input/output') as caught:
        settings.load(self._path)
    self.assertNotIsInstance(caught.exception, config.MissingError)
    config.save(
        settings.saved(config.Config(), settings.Recipe()), self._path)
    with mock.patch('os.stat', side_effect=error):  # os.path.exists is False.
      self.assertEqual(settings.load(self._path)[0], config.Config())

  @parameterized.parameters(
      '', '{', '[]', '3', 'null', '"x"', '[' * 10_000,
      '{"steps": ' + '1' * 9999)
  def test_a_file_without_a_configuration_is_refused(self, text):
    self._write(text)
    with self.assertRaisesRegex(
        config.ConfigError, 'config.json is not a configuration'):
      settings.load(self._path)

  @parameterized.parameters(
      ({}, 'lacks the settings all_workers_write, .*world. A checkpoint'),
      ({'steps': 'many'}, '--steps=many: expected int, not str'),
      ({'discount': None}, '--discount=None: expected float'),
      ({'discount': 2.0}, '--discount=2.0: expected'),
      ({'discount': float('nan')}, '--discount=nan: expected a finite'),
      ({'world': 5}, '--world=5: expected str'),
      ({'world': ['relations']}, 'expected str'),
      ({'reward_model': 'a\0b'}, 'without the character NUL'),
      ({'truncate': 'no'}, '--truncate=no: expected bool'),
      ({'recipe': {}}, 'has no setting recipe'),
      ({'optimizer': 5}, '--optimizer=5: expected str'),
      ({config.DATASET_SHA256: 5}, 'dataset_sha256 is 5: expected a text'))
  def test_wrong_values_of_a_file_are_named(self, values, message):
    self._write(json.dumps(
        values and settings.saved(config.Config(), settings.Recipe()) | values))
    with self.assertRaisesRegex(
        config.ConfigError, f'^{re.escape(self._path)}.*{message}'):
      settings.load(self._path)

  @parameterized.parameters('pipe', '/dev/zero', '/dev/stdin', 'large')
  def test_special_files_are_refused(self, kind):
    if kind == 'pipe':
      os.mkfifo(self._path)
    elif kind == 'large':
      self._write('')
      os.truncate(self._path, 2**40)
    else:
      os.symlink(kind, self._path)
    with self.assertRaisesRegex(
        config.ConfigError, 'regular file|expected at most'):
      settings.load(self._path)


class DifferencesTest(parameterized.TestCase):

  def test_a_difference_names_both_values(self):
    one, other = (dataclasses.asdict(config.Config(**changes)) for changes in (
        dict(discount=0.5, steps=3), dict(truncate=True, steps=4)))
    self.assertEqual(config.differences(one, other), [
        '--truncate: False there, True here',
        '--discount: 0.5 there, 0.99 here'])
    self.assertEmpty(config.differences(one, one))
    recipe = {'optimizer': 'rmsprop'}
    adam = {'optimizer': 'adam', 'old': 3}
    self.assertEqual(config.differences(one | adam, one | recipe), [
        "--optimizer: 'adam' there, 'rmsprop' here",
        '--old: 3 there, not set here'])

  def test_other_spellings_of_a_path_make_no_difference(self):
    folder = self.create_tempdir().full_path
    with mock.patch.dict(os.environ, HOME=folder):
      one, *others = (
          dataclasses.asdict(config.Config(dataset=path))
          for path in (f'{folder}/goals.npz', '~/goals.npz',
                       '$HOME/./goals.npz', f'{folder}/x/../goals.npz/',
                       os.path.relpath(f'{folder}/goals.npz')))
      for other in others:
        self.assertEmpty(config.differences(one, other))
      self.assertEqual(
          config.Config(run_dir='~/runs//x/').run_dir, f'{folder}/runs/x')
    self.assertEqual(config.Config().run_dir, '')

  def test_data_sets_are_compared_by_their_contents(self):
    one, other = (
        {'dataset': name, config.DATASET_SHA256: name} for name in 'ab')
    self.assertEmpty(config.differences(one, one | {'dataset': 'c'}))
    self.assertEqual(
        config.differences(one, other | {'dataset': 'a'}),
        ["the SHA-256 of the goal examples: 'a' there, 'b' here"])
    self.assertEmpty(config.differences({'dataset': 'a'}, one))
    self.assertLen(config.differences({'dataset': 'b'}, one), 1)

  def test_the_number_of_threads_matters_where_their_gradients_are_averaged(
      self):
    for update, differs in ('worker', False), ('averaged', True):
      one, other = ({'policy_threads': count, 'policy_update': update}
                    for count in (15, 1))
      self.assertEqual(
          config.differences(one, other),
          ['--policy_threads: 15 there, 1 here'] if differs else [])

  def test_settings_of_a_run_make_no_difference(self):
    changed = dataclasses.asdict(config.Config(
        steps=1, run_dir='x', log_steps=1, checkpoint_minutes=1.0,
        checkpoints_kept=1, devices='CPU:0'))
    default = dataclasses.asdict(config.Config())
    self.assertCountEqual(
        config.marked('of_run'),
        [name for name in default if default[name] != changed[name]])
    self.assertEmpty(config.differences(default, changed))
