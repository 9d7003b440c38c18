"""Properties of what reads bad input: a result, or the module's own error."""

import dataclasses
import os
import tempfile

from absl import flags
from absl.testing import parameterized
import hypothesis
from hypothesis import strategies as st

from agile_tf import config as config_lib
from agile_tf.agent import worlds
from agile_tf.recipe import settings
from agile_tf.training import building
from agile_tf.training import resources
from tests.agile_tf import tiny

_FIELDS = dataclasses.fields(config_lib.Config)
_settings = hypothesis.settings(
    max_examples=200, deadline=None, derandomize=True)
_EXTREMES = [
    'true', 'nan', 'inf', '-1', '0', '1e400', 'None', '0x10', '1_0', '', ' ',
    '1e38', '-0.0', '9' * 18, '2147483648', '1000000007', '(' * 5000,
    'a{4294967296}', '.a:b', '..', ':', 'os:path', '/dev/null', 'é']
_VALUES = st.one_of(
    st.text(max_size=8), st.integers(-10**12, 10**12).map(str),
    st.integers(0, 10**20).map(str), st.floats().map(str),
    st.binary(max_size=8).map(os.fsdecode), st.sampled_from(_EXTREMES))
_MEMORY = 2**34  # Of some machine.


def _read(arguments):
  """Reads flags as programs do; returns None for an error that names them."""
  try:
    return tiny.read(arguments)
  except (flags.Error, config_lib.ConfigError) as error:
    return None if str(error) else error


def _needs_goals(config):
  return building.Plan(config).needs_goals


class FlagsTest(parameterized.TestCase):

  @hypothesis.settings(_settings, deadline=60_000)
  @hypothesis.given(st.dictionaries(
      st.sampled_from([field.name for field in _FIELDS]), _VALUES,
      min_size=1, max_size=3))
  @hypothesis.example({'policy_workers': '1000000000', 'policy_threads': '7'})
  @hypothesis.example({'dataset_size': '10000000000'})
  @hypothesis.example({'replay_size': '100000000000000'})
  def test_any_flags_make_a_run_or_a_clear_error(self, values):
    """They make a configuration and a world, or a clear error; none hangs."""
    config = _read([f'--{name}={text}' for name, text in values.items()])
    if config is None:
      return
    try:
      world = building.make_world(config)
      resources.check(config, world, _needs_goals(config), _MEMORY)
    except (config_lib.ConfigError, worlds.WorldError) as error:
      self.assertNotEmpty(str(error))
      return
    self.assertLessEqual(
        sum(need.size for need in resources.needs(
            config, world, _needs_goals(config))), _MEMORY)

  @_settings
  @hypothesis.given(st.sampled_from(_FIELDS), st.one_of(
      st.none(), st.booleans(), st.integers(), st.floats(), st.text(),
      st.lists(st.integers(), max_size=2)))
  def test_any_configuration_file_is_read_or_refused(self, field, value):
    with tempfile.TemporaryDirectory() as folder:
      path = os.path.join(folder, 'config.json')
      config = config_lib.Config()
      object.__setattr__(config, field.name, value)
      config_lib.save(settings.saved(config, settings.Recipe()), path)
      try:
        loaded, _ = settings.load(path)
        self.assertEqual(getattr(loaded, field.name), value)
      except config_lib.ConfigError as error:
        self.assertIn(path, str(error))
