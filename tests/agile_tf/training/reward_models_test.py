"""Tests for reward model directories."""

from concurrent import futures
import contextlib
import functools
import json
import os
import pickle
import re
import shutil
from unittest import mock

from absl.testing import parameterized
import numpy as np

import agile_tf
from agile_tf import config as config_lib
from agile_tf import export_networks
from agile_tf import numpy_networks
from agile_tf import overlapping
from agile_tf.agent import instructions as instructions_lib
from agile_tf.training import checkpoints
from agile_tf.training import reward_models
from agile_tf.training import run as run_lib
from gridlu import archives
from gridlu import files
from gridlu import program
from tests.agile_tf import tiny

_TEXTS = ["SameLocation(AGENT, Shape('rect', SCENE))",
          "SameLocation(AGENT, Shape('circle', SCENE))"]


def backwards(text):
  """A parser of one's own: the last word is the module applied last."""
  return instructions_lib.chain(' '.join(text.split()[::-1]))


def _images(count):
  return np.random.default_rng(0).integers(
      256, size=[count, 56, 56, 3]).astype(np.uint8)


def _model(parse=instructions_lib.chain, texts=('go left', 'go right', 'stay')):
  """Returns a reward model with parameters drawn at random."""
  grammar = instructions_lib.Grammar(texts, parse)
  shapes = numpy_networks.shapes(
      'nmn', 'discriminator', len(grammar.tokens), 0)
  rng = np.random.default_rng(0)
  return reward_models.RewardModel('nmn', (24, 32, 3), grammar, {
      f'discriminator/{name}': rng.normal(size=shape).astype(np.float32)
      for name, shape in shapes.items()})


def _change(folder, **changes):
  """Changes values of a directory's JSON, or removes those that are None."""
  path = os.path.join(folder, 'model.json')
  with open(path, encoding='utf-8') as file:
    values = json.load(file) | changes
  with open(path, 'w', encoding='utf-8') as file:
    json.dump({name: value for name, value in values.items()
               if value is not None}, file)


class RewardModelsTest(tiny.SavedRunTest, parameterized.TestCase):

  def _folder(self):
    return os.path.join(self.create_tempdir().full_path, 'model')

  def test_a_model_is_restored_as_it_was_saved(self):
    folder, model = self._folder(), _model()
    for _ in range(2):  # The second one replaces the first.
      reward_models.save(folder, model)
    self.assertCountEqual(os.listdir(folder), ['arrays.npz', 'model.json'])
    self.assertLen(os.listdir(os.path.dirname(folder)), 1)
    again = reward_models.load(folder)
    self.assertEqual(again.network, 'nmn')
    self.assertEqual(again.image_shape, (24, 32, 3))
    self.assertEqual(again.grammar.tokens, model.grammar.tokens)
    self.assertEqual(again.grammar.instructions, model.grammar.instructions)
    self.assertEqual(again.parameters.keys(), model.parameters.keys())
    for name, value in model.parameters.items():
      np.testing.assert_array_equal(again.parameters[name], value, name)

  @parameterized.parameters('tensorflow', 'numpy')
  def test_probabilities_are_those_of_the_networks_formulas(self, backend):
    folder, model = self._folder(), _model()
    reward_models.save(folder, model)
    images = _images(3)[:, :24, :32]
    texts = ['go right', 'stay', 'go left']
    expected = numpy_networks.sigmoid(numpy_networks.discriminator(
        {name.removeprefix('discriminator/'): value
         for name, value in model.parameters.items()}, model.grammar.tokens,
        images.astype(np.float32) / 255, [*map(model.grammar.parse, texts)]))
    function = agile_tf.load_reward_model(folder, backend=backend)
    np.testing.assert_allclose(function(images, texts), expected, atol=1e-4)
    if backend == 'numpy':
      np.testing.assert_array_equal(
          pickle.loads(pickle.dumps(function))(images, texts),
          function(images, texts))
    with self.assertRaisesRegex(ValueError, r'expected uint8 \[3, 24, 32, 3\]'):
      function(images[:, 1:], texts)

  def test_an_exported_run_has_its_reward_model(self):
    output = os.path.join(self.create_tempdir().full_path, 'copy')
    export_networks.export(self.run_dir, output)
    inside = os.path.join(output, 'reward_model')
    expected = agile_tf.load_reward_model(self.run_dir)(_images(2), _TEXTS)
    for backend in 'tensorflow', 'numpy':
      np.testing.assert_allclose(agile_tf.load_reward_model(
          inside, backend=backend)(_images(2), _TEXTS), expected, rtol=1e-4)
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'is a reward model, not a run'):
      agile_tf.load_reward_model(inside, step=0)
    # It is a frozen reward too.
    trainer, run = run_lib.build(tiny.plan(
        run_dir=self.create_tempdir().full_path, reward='frozen',
        reward_model=inside), lambda: None)
    run.close()
    arrays = checkpoints.load(self.run_dir).group('discriminator')
    assert trainer.discriminator is not None
    self.assertNotEmpty(trainer.discriminator.layout.names)
    for name in trainer.discriminator.layout.names:
      np.testing.assert_array_equal(
          trainer.discriminator.state()[name], arrays[name], name)

  def test_an_exported_run_may_have_networks_of_ones_own(self):
    model = 'agile_tf.overlapping:make'
    run_dir = tiny.save_for(type(self), model=model)
    output = os.path.join(self.create_tempdir().full_path, 'copy')
    export_networks.export(run_dir, output, model=model)
    inside = os.path.join(output, 'reward_model')
    self.assertEqual(reward_models.load(inside).network, model)
    np.testing.assert_allclose(
        agile_tf.load_reward_model(
            inside, model=overlapping.make)(_images(2), _TEXTS),
        agile_tf.load_reward_model(run_dir, model=model)(_images(2), _TEXTS),
        rtol=1e-4)
    # A frozen reward names the same networks by --model.
    arrays = checkpoints.load(run_dir).group('discriminator')
    for name, value in reward_models.checkpoint(inside).group(
        'discriminator').items():
      np.testing.assert_array_equal(value, arrays[name], name)
    with self.assertRaisesRegex(
        config_lib.ConfigError, 'is a run: give the name that its --model had'):
      agile_tf.load_reward_model(run_dir, model=overlapping.make)

  def test_a_frozen_reward_of_other_images_or_tokens_is_refused(self):
    for number, (changes, message) in enumerate((
        ({'image_shape': [48, 56, 3]}, r'images \[48, 56, 3\]; this world has'),
        ({'tokens': ['red']}, r"tokens \['red'\]; this world has"))):
      output = os.path.join(self.create_tempdir().full_path, str(number))
      export_networks.export(self.run_dir, output)
      inside = os.path.join(output, 'reward_model')
      _change(inside, **changes)
      with self.assertRaisesRegex(checkpoints.CheckpointError, message):
        run_lib.build(tiny.plan(
            run_dir=self.create_tempdir().full_path, reward='frozen',
            reward_model=inside), lambda: None)

  def test_a_parser_of_ones_own_is_given_again(self):
    folder = self._folder()
    reward_models.save(folder, _model(backwards))
    for load in reward_models.load, functools.partial(
        agile_tf.load_reward_model, backend='numpy'):
      with self.assertRaisesRegex(
          checkpoints.CheckpointError,
          r"has the parser '.*reward_models_test:backwards'.*parse="):
        load(folder)
      with self.assertRaisesRegex(
          checkpoints.CheckpointError, 'reads its instructions in another way'):
        load(folder, parse=instructions_lib.chain)
      with self.assertRaisesRegex(
          checkpoints.CheckpointError, 'does not read its instructions'):
        load(folder, parse=lambda text: ('jump',))
      load(folder, parse=backwards)
    with self.assertRaisesRegex(
        config_lib.ConfigError, 'is a run, which has the parser'):
      agile_tf.load_reward_model(self.run_dir, parse=backwards)

  @parameterized.parameters(
      ({'format': 'other'}, "format is 'other': expected"),
      ({'format': None}, 'format is None: expected'),
      ({'tokens': None}, 'it lacks tokens'),
      ({'network': 'mlp'}, "network is 'mlp': expected 'nmn' or 'lstm'"),
      ({'image_shape': [24, 32]}, 'image_shape is .* a list of 3 values'),
      ({'image_shape': [24, 32, 4]}, r'image_shape\[2\] is 4: expected 3'),
      ({'image_shape': [24, 16, 3]}, r'image_shape\[1\] is 16: .* at least 24'),
      ({'instructions': ['go left']}, 'codes is int32.* expected int32'),
      ({'sha256': '0'}, 'does not match the sha256'))
  def test_wrong_contents_are_named(self, changes, message):
    folder = self._folder()
    reward_models.save(folder, _model())
    _change(folder, **changes)
    with self.assertRaisesRegex(checkpoints.DamagedError, message):
      reward_models.load(folder)

  def test_parameters_that_are_not_finite_are_damage(self):
    folder, model = self._folder(), _model()
    parameters = {**model.parameters}
    name = 'discriminator/hidden/b'
    parameters[name] = np.full_like(parameters[name], np.nan)
    with mock.patch.object(archives, 'check_finite'):
      reward_models.save(folder, model._replace(parameters=parameters))
    for backend in 'tensorflow', 'numpy':
      with self.assertRaisesRegex(
          checkpoints.DamagedError,
          rf'is damaged \({name}\[0\] is nan; expected finite numbers\)'):
        agile_tf.load_reward_model(folder, backend=backend)

  def test_parameters_of_another_network_are_named(self):
    folder = self._folder()
    reward_models.save(folder, _model())
    _change(folder, network='lstm')
    for backend in 'tensorflow', 'numpy':
      with self.assertRaisesRegex(
          checkpoints.CheckpointError, "does not fit the network 'lstm'"):
        agile_tf.load_reward_model(folder, backend=backend)

  @parameterized.parameters(([10**9, 10**9, 3],), ([24, 10**30, 3],))
  def test_an_enormous_image_shape_takes_no_memory(self, shape):
    folder = self._folder()
    reward_models.save(folder, _model())
    _change(folder, image_shape=shape)
    for backend in 'tensorflow', 'numpy':
      reward_model = agile_tf.load_reward_model(folder, backend=backend)
      with self.assertRaisesRegex(
          ValueError, f'expected uint8 .1, {shape[0]}, {shape[1]}, 3'):
        reward_model(np.zeros([1, 24, 32, 3], np.uint8), ['stay'])

  def test_an_endless_instruction_is_refused_at_once(self):
    folder = self._folder()
    reward_models.save(folder, _model())
    _change(folder, instructions=['go ' * 10**6, 'stay', 'stay'])
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'more than 1,000 words or levels'):
      reward_models.load(folder)

  def test_what_only_one_backend_could_compute_is_refused(self):
    folder = self._folder()
    reward_models.save(folder, _model())
    images = np.zeros([1, *_model().image_shape], np.uint8)
    for backend in 'tensorflow', 'numpy':
      reward_model = agile_tf.load_reward_model(folder, backend=backend)
      for text, message in (('go go left', 'an operand where no instruction'),
                            ('left ' * 10**5, 'more than 1,000 words')):
        with self.assertRaisesRegex(ValueError, message):
          reward_model(images, [text])

  def test_a_directory_may_begin_with_a_tilde(self):
    folder = self._folder()
    reward_models.save(folder, _model())
    home, name = os.path.split(folder)
    with mock.patch.dict(os.environ, HOME=home):
      for load in reward_models.load, functools.partial(
          agile_tf.load_reward_model, backend='numpy'):
        load(f'~/{name}')

  def test_another_version_is_no_damage(self):
    folder = self._folder()
    reward_models.save(folder, _model())
    _change(folder, version=2)
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'is of version 2; this program reads '
        'version 1') as raised:
      reward_models.load(folder)
    self.assertNotIsInstance(raised.exception, checkpoints.DamagedError)

  def test_missing_and_other_directories_are_named(self):
    folder = self._folder()
    with self.assertRaisesRegex(checkpoints.CheckpointError, 'no model.json'):
      reward_models.load(folder)
    reward_models.save(folder, _model())
    os.remove(os.path.join(folder, 'arrays.npz'))
    with self.assertRaisesRegex(checkpoints.DamagedError, 'arrays.npz'):
      reward_models.load(folder)
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'is there and is no reward model'):
      reward_models.save(self.run_dir, _model())
    self.assertNotEmpty(checkpoints.steps(self.run_dir))
    with self.assertRaisesRegex(checkpoints.CheckpointError, 'name is empty'):
      reward_models.save('', _model())
    for wrong in 5, None, 'a\0b':
      for use in (reward_models.load,
                  lambda path: reward_models.save(path, _model())):
        with self.assertRaisesRegex(
            program.UserError,
            f'^directory is {re.escape(repr(wrong))}: expected a path'):
          use(wrong)

  def test_what_was_there_stays_if_saving_fails(self):
    folder, rename = self._folder(), os.rename
    reward_models.save(folder, _model())
    for fails in 0, 1:  # The old one moves away, the new one gets its name.
      calls = iter(range(9))
      def full(source, target, fails=fails, calls=calls):
        if next(calls) == fails:
          raise OSError('full')
        rename(source, target)
      with (mock.patch.object(os, 'rename', full),
            self.assertRaisesRegex(
                checkpoints.CheckpointError, r'cannot be saved \(full')):
        reward_models.save(folder, _model(texts=['other']))
      self.assertEqual(
          reward_models.load(folder).grammar.instructions,
          ('go left', 'go right', 'stay'))
      self.assertLen(os.listdir(os.path.dirname(folder)), 1)

  def test_a_link_leads_to_the_directory_that_is_replaced(self):
    folder = self._folder()
    reward_models.save(folder, _model())
    link = f'{folder}_link'
    os.symlink(folder, link)
    for text in 'other', 'another':
      reward_models.save(link, _model(texts=[text]))
      self.assertTrue(os.path.islink(link))
      self.assertEqual(
          reward_models.load(folder).grammar.instructions, (text,))
    self.assertLen(os.listdir(os.path.dirname(folder)), 2)

  def test_threads_save_to_one_directory_in_turn(self):
    folder = self._folder()
    with futures.ThreadPoolExecutor(4) as pool:
      for saved in [pool.submit(reward_models.save, folder, _model())
                    for _ in range(24)]:
        saved.result()
    self.assertLen(reward_models.load(folder).grammar.instructions, 3)
    self.assertLen(os.listdir(os.path.dirname(folder)), 1)

  def test_the_longest_name_can_be_saved(self):
    folder = os.path.join(os.path.dirname(self._folder()), 255 * 'x')
    for _ in range(2):
      reward_models.save(folder, _model())
    self.assertTrue(reward_models.is_one(folder))

  def test_a_model_that_can_rate_nothing_replaces_no_other(self):
    folder = self._folder()
    reward_models.save(folder, _model())
    broken = _model(texts=['other'])
    name = next(iter(broken.parameters))
    broken.parameters[name].flat[0] = np.nan
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'is nan; expected finite numbers'):
      reward_models.save(folder, broken)
    self.assertLen(reward_models.load(folder).grammar.instructions, 3)

  def test_an_interrupt_between_the_two_names_leaves_the_old_model(self):
    folder = self._folder()
    reward_models.save(folder, _model())
    rename, calls = os.rename, []

    def interrupted(source, target):
      calls.append(target)
      if len(calls) == 2:
        raise KeyboardInterrupt
      rename(source, target)

    with (mock.patch.object(os, 'rename', interrupted),
          self.assertRaises(KeyboardInterrupt)):
      reward_models.save(folder, _model(texts=['other']))
    self.assertLen(reward_models.load(folder).grammar.instructions, 3)
    self.assertLen(os.listdir(os.path.dirname(folder)), 1)

  def test_the_current_directory_is_no_place_for_a_model(self):
    folder = os.path.dirname(self._folder())
    os.makedirs(folder, exist_ok=True)
    with contextlib.chdir(folder), self.assertRaisesRegex(
        checkpoints.CheckpointError, 'is the current directory'):
      reward_models.save('.', _model())

  def test_what_a_killed_process_left_is_replaced(self):
    folder = self._folder()
    temporary, replaced = reward_models._beside(folder)
    os.makedirs(f'{temporary}/some')
    reward_models.save(folder, _model())
    shutil.copytree(folder, replaced)
    reward_models.save(folder, _model())
    self.assertLen(os.listdir(os.path.dirname(folder)), 1)

  def test_a_model_outlives_kills_between_its_two_names(self):
    folder, killed = self._folder(), KeyboardInterrupt
    reward_models.save(folder, _model())
    # The process is killed after this, and once more later.
    os.rename(folder, reward_models._beside(folder)[1])
    with (mock.patch.object(files, 'replacing', side_effect=killed),
          self.assertRaises(killed)):
      reward_models.save(folder, _model(texts=['other']))
    self.assertEqual(reward_models.load(folder).grammar.instructions,
                     ('go left', 'go right', 'stay'))
