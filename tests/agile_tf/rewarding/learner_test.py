"""Tests for the discriminator that learns beside any learner."""

import concurrent.futures
import json
import os
import pickle
import subprocess
import sys
from unittest import mock

from absl.testing import parameterized
import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

import agile_tf
from agile_tf import config as config_lib
from agile_tf import numpy_networks
from agile_tf.agent import functional
from agile_tf.agent import instructions as instructions_lib
from agile_tf.agent import networks
from agile_tf.agent import optimizers
from agile_tf.agent import programs as programs_lib
from agile_tf.agent import replay
from agile_tf.agent import workers
from agile_tf.agent import worlds
from agile_tf.rewarding import batches
from agile_tf.rewarding import learner as learner_lib
from agile_tf.training import building
from agile_tf.training import checkpoints
from agile_tf.training import own_networks
from agile_tf.worlds import environments
from gridlu import goal_dataset
from gridlu import language
from gridlu import rendering
from gridlu import world as world_lib

_TEXTS = ['show red', 'show green', 'show blue']
# Makes a learner, and tries to use it in a fork, which must not hang.
_FORK = """
import multiprocessing, sys
import numpy as np
import agile_tf
goals = np.zeros([4, 24, 24, 3], np.uint8), ['a', 'b'] * 2
learner = agile_tf.RewardLearner(
    goals, batch_size=2, anticipated_negative_rate=0.5, replay_size=8)
learner.rewards(*goals)
learner.add(*goals)

def use(which, answers):
  try:
    {'rewards': lambda: learner.rewards(*goals),
     'add': lambda: learner.add(*goals), 'update': learner.update,
     'accepted': learner.accepted,
     'make': lambda: agile_tf.RewardLearner(goals)}[which]()
    answers.put('no error')
  except RuntimeError as error:
    answers.put(str(error))

forks = multiprocessing.get_context('fork')
for which in 'rewards', 'add', 'update', 'accepted', 'make':
  answers = forks.Queue()
  child = forks.Process(target=use, args=(which, answers), daemon=True)
  child.start()
  print(which, answers.get(timeout=300))
  child.join()
learner.update()
"""
_SETTINGS = dict(batch_size=8, anticipated_negative_rate=0.5, replay_size=64)

def _pictures(colours, rng):
  """Returns noisy pictures in red (0), green (1) or blue (2)."""
  images = rng.integers(64, size=[len(colours), 24, 32, 3])
  images[np.arange(len(colours)), :, :, colours] += 150
  return images.astype(np.uint8)

def _goals(count=30, seed=0):
  """Returns pictures and the instructions that they satisfy."""
  colours = np.arange(count) % 3
  return (_pictures(colours, np.random.default_rng(seed)),
          [_TEXTS[colour] for colour in colours])

def _states(count, seed=1):
  """Returns pictures and instructions that were drawn apart."""
  rng = np.random.default_rng(seed)
  return (_pictures(rng.integers(3, size=count), rng),
          [_TEXTS[i] for i in rng.integers(3, size=count)])

def _squares(count, seed, height=36, width=36):
  """Returns red or green squares anywhere, and which colours they have."""
  rng = np.random.default_rng(seed)
  images = rng.integers(64, size=[count, height, width, 3], dtype=np.uint8)
  colours = np.arange(count) % 2
  for image, colour in zip(images, colours):
    y, x = rng.integers(height - 9), rng.integers(width - 9)
    image[y:y + 9, x:x + 9, colour] += 150
  return images, colours

class _Linear(snt.Module):
  """A linear layer on the image and on the tokens."""

  def __init__(self, units, name, layer='layer'):
    super().__init__(name=name)
    self._layer = snt.Linear(units, name=layer)

  def __call__(self, images, codes):
    return self._layer(tf.concat(
        [snt.flatten(images), tf.cast(codes, tf.float32)], -1))

class _Policy(_Linear):

  def __call__(self, images, codes):
    x = super().__call__(images, codes)
    return networks.PolicyOutput(x[:, 3:], x[:, 0], x[:, 1:3])

class _D(_Linear):

  def __call__(self, images, codes):
    return tf.reduce_sum(super().__call__(images, codes), -1)

def make(world):
  """Makes the smallest pair that there is."""
  return networks.Pair(_Policy(world.num_actions + 3, 'policy'), _D(1, 'd'))

def make_wide(world):
  return make(world)._replace(discriminator=_D(2, 'd'))

def make_renamed(world):
  return make(world)._replace(discriminator=_D(1, 'd', 'other'))

def make_with_more(world):
  class More(_D):
    def __init__(self):
      super().__init__(1, 'd')
      self._bias = tf.Variable(0.0, name='bias')
    def __call__(self, images, codes):
      return super().__call__(images, codes) + self._bias
  return make(world)._replace(discriminator=More())

def _phi(learner, folder):
  """Returns D's parameters by name, as they are saved."""
  learner.save(folder)
  with np.load(os.path.join(folder, 'arrays.npz')) as arrays:
    return {name: arrays[name] for name in arrays if name != 'codes'}

class RewardLearnerTest(parameterized.TestCase):

  def _folder(self):
    return os.path.join(self.create_tempdir().full_path, 'model')

  @parameterized.parameters('nmn', 'lstm')
  def test_probabilities_are_those_of_the_networks_formulas(self, model):
    learner = agile_tf.RewardLearner(_goals(), model=model, **_SETTINGS)
    parameters = {name.removeprefix('discriminator/'): value for name, value in
                  _phi(learner, self._folder()).items()}
    for count in 0, 1, 2, 17, 83:
      images, texts = _states(count)
      logits = np.zeros([0]) if not count else numpy_networks.discriminator(
          parameters, ['blue', 'green', 'red', 'show'],
          images.astype(np.float32) / 255,
          [*map(instructions_lib.chain, texts)])
      found = learner.probabilities(images, texts)
      self.assertEqual((found.shape, found.dtype), ((count,), np.float32))
      np.testing.assert_allclose(
          found, numpy_networks.sigmoid(logits), atol=1e-4)

  def test_any_number_of_states_compiles_at_most_four_programs(self):
    sizes = []
    learner = agile_tf.RewardLearner(_goals(), **_SETTINGS)
    logits = learner._programs.logits
    def counted(phi, images, codes):
      sizes.append(len(images))
      return logits(phi, images, codes)
    images, texts = _states(700)
    expected = learner.probabilities(images, texts)
    with mock.patch.object(learner._programs, 'logits', counted):
      for count in (*range(40), 255, 256, 257, 699, 700):
        np.testing.assert_allclose(
            learner.probabilities(images[:count], texts[:count]),
            expected[:count], rtol=1e-4, atol=1e-6)
    self.assertEqual(set(sizes), {1, 16, 64, 256})

  def test_rewards_are_a_function_of_the_probability(self):
    images, texts = _states(20)
    p = agile_tf.RewardLearner(
        _goals(), **_SETTINGS).probabilities(images, texts)
    for form, expected in (
        ('decision', p > 0.5), ('probability', p),
        ('log', np.log(p)), ('gail', -np.log(1 - p))):
      for scale in 1.0, 0.1:
        learner = agile_tf.RewardLearner(
            _goals(), reward_form=form, reward_scale=scale, **_SETTINGS)
        np.testing.assert_allclose(
            learner.rewards(images, texts), scale * expected, rtol=1e-3)
    np.testing.assert_array_equal(
        agile_tf.RewardLearner(_goals(), **_SETTINGS).rewards(images, texts),
        p > 0.5)

  def test_an_update_is_that_of_the_agents_own_reward_learner(self):
    learner = agile_tf.RewardLearner(_goals(), seed=3, **_SETTINGS)
    before = _phi(learner, self._folder())
    # The same made of its parts: plain networks and the paper's numbers.
    grammar = instructions_lib.Grammar(sorted(set(_goals()[1])))
    world = environments.without_environments(grammar, (24, 32, 3))
    _, d = building.networks.make('nmn', world)
    self.assertIsInstance(d, functional.ModuleNetwork)
    texts = tuple(dict.fromkeys(_goals()[1]))
    index = np.array([texts.index(text) for text in _goals()[1]])
    buffer = replay.ReplayBuffer(64, len(grammar.slots), [24, 32, 3])
    own = workers.DiscriminatorLearner(
        optimizers.SharedParameters(
            d.layout, d.layout.join(before).numpy(),
            optimizers.rmsprop(0.9, 1e-10), 25.0, 1.0),
        programs_lib.DiscriminatorPrograms(d), buffer,
        worlds.GoalExamples(
            goal_dataset.GoalDataset(texts, index, images=_goals()[0]), world),
        workers.DiscriminatorSettings(
            8, 5e-4, workers.AnticipatedNegatives(4, 0.5)),
        np.random.default_rng(np.random.SeedSequence(3).spawn(2)[1]))
    for seed in range(4):
      images, texts = _states(9, seed)
      learner.add(images, texts)
      own.add(grammar.encode(texts), images)
      metrics = learner.update()
      expected = own.update(own.parameters.snapshot())
      self.assertEqual(metrics.keys(), expected.keys())
      for name, value in expected.items():
        np.testing.assert_allclose(
            metrics[name], value, rtol=1e-3, err_msg=name)
    after = _phi(learner, self._folder())
    for name, value in d.layout.split(own.parameters.snapshot()).items():
      change = np.abs(value - before[name]).max()
      self.assertGreater(change, 0, name)
      # The plain networks round in another way.
      self.assertLess(np.abs(after[name] - value).max(), 0.02 * change, name)
    self.assertEqual((learner.added, learner.updates), (36, 4))

  @pytest.mark.slow
  def test_it_learns_what_goal_states_look_like(self):
    learner = agile_tf.RewardLearner(
        _goals(300), discriminator_learning_rate=2e-3,
        **_SETTINGS | dict(replay_size=1000))
    for seed in range(600):
      learner.add(*_states(16, seed))
      learner.update()
    images, texts = _goals(60, seed=9)
    self.assertGreater(learner.rewards(images, texts).mean(), 0.95)
    for shift in 1, 2:  # The instructions of other colours.
      self.assertLess(learner.rewards(
          images, texts[shift:] + texts[:shift]).mean(), 0.05)

  def test_rho_falls_and_goals_with_another_instruction_are_negatives(self):
    learner = agile_tf.RewardLearner(
        _goals(), **_SETTINGS, mismatched_share=0.5,
        anticipated_negative_rate_steps=40)
    programs = learner._learner._programs
    for added, counted in ((20, 3), (40, 4), (60, 4)):  # rho is .75, .5 and .5.
      learner.add(*_states(20, seed=added))
      with mock.patch.object(
          programs, 'gradient', wraps=programs.gradient) as gradient:
        learner.update()
      candidates = gradient.call_args.args[2]
      # Half of the four negatives are from B, which gives 2 / 0.5 candidates.
      self.assertLen(candidates.pairs.codes, 4)
      self.assertEqual(candidates.num_counted, counted)
      codes, images = candidates.unrated
      shown = np.argmax(images.mean((1, 2)), axis=-1)
      asked = [text for code in codes for text in _TEXTS
               if (learner._grammar.encode([text])[0] == code).all()]
      self.assertLen(asked, 2)
      for colour, text in zip(shown, asked):
        self.assertNotEqual(_TEXTS[colour], text)

  def test_updates_are_repeatable_and_a_saved_model_rates_the_same(self):
    folder, probabilities = self._folder(), []
    for _ in range(2):
      learner = agile_tf.RewardLearner(_goals(), seed=5, **_SETTINGS)
      learner.add(*_states(20))
      for _ in range(3):
        learner.update()
      probabilities.append(learner.probabilities(*_states(30)))
    np.testing.assert_array_equal(*probabilities)
    learner.save(folder)
    for backend, tolerance in ('tensorflow', 1e-4), ('numpy', 1e-4):
      np.testing.assert_allclose(
          agile_tf.load_reward_model(folder, backend=backend)(*_states(30)),
          probabilities[0], atol=tolerance)
    again = agile_tf.RewardLearner.load(folder, _goals(), **_SETTINGS)
    np.testing.assert_array_equal(
        again.probabilities(*_states(30)), probabilities[0])
    again.add(*_states(20))
    again.update()
    self.assertGreater(np.abs(
        again.probabilities(*_states(30)) - probabilities[0]).max(), 1e-6)

  def test_goals_can_be_a_file_or_packed_states(self):
    with self.subTest('a file'):
      path = os.path.join(self.create_tempdir().full_path, 'goals.npz')
      images, texts = _goals()
      goal_dataset.save(path, goal_dataset.GoalDataset(
          tuple(_TEXTS), np.arange(30) % 3, images=images))
      states = _states(20)
      found = []
      for goals in path, (images, texts):
        learner = agile_tf.RewardLearner(goals, **_SETTINGS)
        learner.add(*states)
        learner.update()
        found.append(learner.probabilities(*states))
      np.testing.assert_array_equal(*found)
    with self.subTest('packed states of GridLU'):
      goals = goal_dataset.generate('relations', 60, 0, [
          f"SameLocation(AGENT, Shape('{shape}', SCENE))"
          for shape in ('rect', 'circle')])
      learner = agile_tf.RewardLearner(goals, **_SETTINGS)
      self.assertEqual(learner.image_shape, (56, 56, 3))
      drawn = learner_lib._as_images(goals)
      np.testing.assert_array_equal(
          drawn.images, rendering.render(world_lib.unpack(goals.states)))
      trees = [learner._grammar.parse(text) for text in goals.instructions]
      self.assertEqual(trees, [*map(language.tree, goals.instructions)])

  def test_goals_of_other_instructions_are_left_out(self):
    learner = agile_tf.RewardLearner(
        _goals(), ['show blue', 'show red'], **_SETTINGS)
    self.assertEqual(learner.instructions, ('show blue', 'show red'))
    sampled = learner._learner._goals
    self.assertEqual({*sampled.dataset.instructions}, {'show blue', 'show red'})
    self.assertLen(sampled, 20)
    # They were green, and are not.
    for image, number in zip(
        sampled.observations, sampled.dataset.instruction):
      self.assertEqual(image.mean((0, 1)).argmax(), {
          'show red': 0, 'show blue': 2}[
              sampled.dataset.instructions[number]])
    with self.assertRaisesRegex(
        ValueError, r"'show green' has the tokens \['green'\]; the grammar"):
      learner.rewards(*_goals(3))

  def test_held_out_goals_are_not_trained_on_and_tell_what_d_accepts(self):
    images, texts = _goals(40)
    learner = agile_tf.RewardLearner(
        (images, texts), held_out_goals=0.2, **_SETTINGS)
    self.assertNotIn('policy_states_accepted', learner.accepted())
    apart = learner._held_out_test._pairs['held_out_goals'].observations
    secret = {image.tobytes() for image in apart}
    self.assertLen(secret, 8)
    trained_on = []
    original = learner._programs.gradient

    def spied(phi, goals, candidates):
      trained_on.extend(image.tobytes() for image in goals.observations)
      return original(phi, goals, candidates)

    states = _states(30)
    learner.add(*states)
    with mock.patch.object(
        learner._programs, 'gradient', spied):
      for _ in range(60):
        learner.update()
    # All the others, and none of these.
    self.assertEqual(
        {image.tobytes() for image in images} - {*trained_on}, secret)
    found = learner.accepted()
    text_of = {image.tobytes(): text for image, text in zip(images, texts)}
    for name, (codes, pictures) in learner._held_out_test._pairs.items():
      own = [text_of[image.tobytes()] for image in pictures]
      rated_as = [next(
          text for text in _TEXTS if np.array_equal(
              learner._grammar.encode([text])[0], code)) for code in codes]
      self.assertEqual({a == b for a, b in zip(own, rated_as)},
                       {name == 'held_out_goals'})
      self.assertEqual(
          found.pop(f'{name}_accepted'),
          np.mean(learner.probabilities(pictures, rated_as) > 0.5))
    values = learner.probabilities(*states)
    rows = np.random.default_rng(30).integers(30, size=30)
    self.assertEqual(
        found, {'policy_states_accepted': np.mean(values[rows] > 0.5)})

  def test_asking_what_d_accepts_changes_nothing(self):
    phis = []
    for asks in False, True:
      learner = agile_tf.RewardLearner(
          _goals(), held_out_goals=0.1, **_SETTINGS)
      learner.add(*_states(20))
      for _ in range(3):
        learner.update()
        if asks:
          learner.accepted()
      phis.append(learner.probabilities(*_states(9)))
    np.testing.assert_array_equal(*phis)

  def test_a_threshold_decides_what_is_rewarded_and_accepted(self):
    images, texts = _states(40)
    p = agile_tf.RewardLearner(
        _goals(), **_SETTINGS).probabilities(images, texts)
    threshold = float(np.median(p))
    learner = agile_tf.RewardLearner(
        _goals(), reward_threshold=threshold, **_SETTINGS)
    rewards = learner.rewards(images, texts)
    np.testing.assert_array_equal(rewards, p > threshold)
    self.assertBetween(rewards.mean(), 0.2, 0.8)
    learner.add(images, texts)
    rows = np.random.default_rng(40).integers(40, size=40)
    self.assertEqual(
        learner.accepted(),
        {'policy_states_accepted': np.mean(p[rows] > threshold)})

  def test_what_is_added_may_be_overwritten(self):
    learner = agile_tf.RewardLearner(_goals(), **_SETTINGS)
    images, texts = _states(20)
    learner.add(images, texts)
    copy = images.copy()
    images[:] = 0
    np.testing.assert_array_equal(
        learner._learner.buffer.state()['observations'], copy)

  def test_threads_may_share_a_learner(self):
    learner = agile_tf.RewardLearner(_goals(), **_SETTINGS)
    learner.add(*_states(20))
    folder = self._folder()

    def work(seed):
      learner.add(*_states(5, seed))
      learner.update()
      learner.save(folder)
      return learner.probabilities(*_states(33, seed))

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
      results = [*threads.map(work, range(24))]
    self.assertTrue(all(np.isfinite(x).all() for x in results))
    self.assertEqual((learner.added, learner.updates), (140, 24))
    self.assertEqual(
        agile_tf.RewardLearner.load(folder, _goals()).instructions,
        learner.instructions)

  def test_a_fork_is_refused_at_once(self):
    learner = agile_tf.RewardLearner(_goals(), **_SETTINGS)
    with mock.patch.object(os, 'getpid', return_value=1):
      for use in (lambda: learner.rewards(*_states(2)),
                  lambda: learner.add(*_states(2)), learner.update,
                  lambda: learner.save(self._folder()),
                  lambda: agile_tf.RewardLearner(_goals(), **_SETTINGS)):
        with self.assertRaisesRegex(RuntimeError, 'a fork of process'):
          use()
    with self.assertRaisesRegex(pickle.PicklingError, "backend='numpy'"):
      pickle.dumps(learner)

  def test_a_real_fork_answers_with_an_error(self):
    # In a process of its own, which has no other threads.
    lines = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', _FORK], check=True, text=True,
        stdout=subprocess.PIPE).stdout.splitlines()
    self.assertEqual([line.split()[0] for line in lines],
                     ['rewards', 'add', 'update', 'accepted', 'make'])
    for line in lines:
      self.assertIn('This is a fork of process', line)

  def test_an_update_before_there_are_states_is_named(self):
    learner = agile_tf.RewardLearner(_goals(), **_SETTINGS)
    self.assertFalse(learner.ready)
    with self.assertRaisesRegex(
        ValueError, 'B has 0 states; one update draws 8'):
      learner.update()
    learner.add(*_states(7))
    with self.assertRaisesRegex(ValueError, 'B has 7 states'):
      learner.update()
    learner.add(*_states(1))
    self.assertTrue(learner.ready)
    learner.update()

  def test_numbers_that_are_not_finite_are_named(self):
    learner = agile_tf.RewardLearner(
        _goals(), discriminator_learning_rate=1e30, max_column_norm=0.0,
        **_SETTINGS)
    learner.add(*_states(20))
    with self.assertRaisesRegex(
        ArithmeticError, 'discriminator_.* is (nan|inf).*learning_rate'):
      for _ in range(5):
        learner.update()
    self.assertLen(learner._learner.buffer, 20)

  def test_wrong_states_are_named_and_nothing_is_added(self):
    learner = agile_tf.RewardLearner(_goals(), **_SETTINGS)
    images, texts = _states(3)
    floats = images.astype(np.float32)
    floats[0, 0] = np.nan
    for wrong, message in (
        ((images[:2], texts), r'uint8 \[2, 24, 32, 3\]; expected .*\[3, 24'),
        ((images[:, :8], texts), r'uint8 \[3, 8, 32, 3\]; expected'),
        ((floats, texts), 'images is float32'),
        ((images, 'show red'), "is the string 'show red'; expected a list"),
        ((images, ['show red', 'show pink', 'show red']),
         r"'show pink' has the tokens \['pink'\]; .* blue, green, red, show"),
        ((images, ['show red'] * 2 + ['']), 'has no words')):
      for use in learner.add, learner.rewards, learner.probabilities:
        with self.assertRaisesRegex(ValueError, message):
          use(*wrong)
    self.assertEqual(learner.added, 0)
    self.assertEmpty(learner._learner.buffer)

  @parameterized.parameters(
      (dict(goals=(np.zeros([2, 24, 24, 3]), ['a', 'b'])), 'images is float64'),
      (dict(goals=(np.zeros([2, 16, 24, 3], np.uint8), ['a', 'b'])),
       'images of 16 x 24 pixels; the network needs at least 24 x 24'),
      (dict(goals=(np.zeros([2, 36, 29, 3], np.uint8), ['a', 'b'])),
       'images of 36 x 29 .* last 4 rows of pixels and the last 5 col.*np.pad'
       '.*model=agile_tf.overlapping.make'),
      (dict(goals=(np.zeros([2, 0, 24, 3], np.uint8), ['a', 'b']), model=make),
       'images of 0 x 24 pixels; the network needs at least 1 x 1'),
      (dict(goals=(np.zeros([2, 24, 24, 3], np.uint8), ['a'])),
       r'\[2, 24, 24, 3\] with 1 instructions'),
      (dict(goals=(np.zeros([2, 24, 24, 3], np.uint8), 'ab')),
       "the instructions 'ab': expected a list"),
      (dict(goals=(np.zeros([2, 24, 24, 3], np.uint8), None)),
       'the instructions None: expected a list'),
      (dict(goals=(np.zeros([2, 24, 24, 3], np.uint8), {'a', 'b'})),
       'the instructions {.*}: expected a list'),
      *((dict(goals=(np.zeros([2, 24, 24, 3], np.uint8), texts)),
         r'The instruction of goal example 1 is .*: expected a string')
        for texts in (['a', ['go', 'left']], ['a', None], ['a', 3])),
      (dict(goals=(np.zeros([2, 24, 24, 3], np.uint8),
                   np.array([['go', 'left'], ['go', 'on']]))),
       "The instruction of goal example 0 is array.*'go', 'left'"),
      (dict(goals=([[1], [1, 2]], ['a', 'b'])), 'images .* are no array'),
      (dict(goals=5), 'goals is 5: expected a pair'),
      (dict(goals='missing.npz'), 'missing.npz: there is no such file'),
      (dict(instructions=['show red', 'show pink']),
       "1 of 2 instructions have no goal example, such as 'show pink'"),
      (dict(goals=(np.zeros([2, 24, 24, 3], np.uint8), ['a', 'a']),
            mismatched_share=0.5), 'all goal examples have the same'),
      (dict(instructions='show red'), "is the string 'show red'"),
      (dict(instructions={'show red'}), 'instructions is {.*; expected a list'),
      (dict(instructions=5), 'instructions is 5; expected a list'),
      (dict(parse='words'), "parse is 'words'; expected a function"),
      (dict(instructions=[]), 'at least one instruction'))
  def test_wrong_goals_are_named(self, arguments, message):
    with self.assertRaisesRegex(ValueError, message):
      agile_tf.RewardLearner(**{'goals': _goals()} | arguments | _SETTINGS)

  @parameterized.parameters(
      (dict(rho=0.5), 'has no setting rho; it has model, reward_form'),
      (dict(world='relations'), 'has no setting world'),
      (dict(batch_size=7), 'batch_size=7 is odd'),
      (dict(batch_size=10**400), 'batch_size=10.*: expected .* at most'),
      (dict(replay_size=10**400), 'replay_size=10.*: expected .* at most'),
      (dict(batch_size='8'), 'batch_size=8: expected int, not str'),
      (dict(batch_size=np.int64(7)), 'batch_size=7 is odd'),
      (dict(model='mine:pair'),
       "model is 'mine:pair'; .* one of nmn, lstm, or a function that takes "
       '.*such as agile_tf.overlapping.make. Give the function itself'),
      (dict(model=5), 'model is 5; a RewardLearner has one of nmn, lstm'),
      (dict(reward_form='sigmoid'), 'expected one of decision, probability'),
      (dict(replay_size=4), 'less than one draw from B .8 pairs'),
      (dict(mismatched_share=0.1), 'mismatched_share=0.1 gives none of the 4'),
      (dict(anticipated_negative_rate_steps=-1), 'steps=-1: expected at least'),
      (dict(reward_threshold=1.0), 'reward_threshold=1.0: expected at least'),
      (dict(held_out_goals=0.01), 'held_out_goals=0.01 of 30 .* is 0: expect'),
      (dict(replay_size=10**9), 'GB are free. Make replay_size smaller'))
  def test_wrong_settings_are_named(self, changes, message):
    with self.assertRaisesRegex(config_lib.ConfigError, message):
      agile_tf.RewardLearner(_goals(), **_SETTINGS | changes)

  def test_what_does_not_fit_a_saved_model_is_named(self):
    folder = self._folder()
    agile_tf.RewardLearner(_goals(), **_SETTINGS).save(folder)
    load = agile_tf.RewardLearner.load
    with self.assertRaisesRegex(
        config_lib.ConfigError,
        "model is 'lstm', but .* has the network 'nmn'"):
      load(folder, _goals(), model='lstm')
    images, texts = _goals()
    with self.assertRaisesRegex(
        ValueError, r'images \[24, 24, 3\]; .* trained on \[24, 32, 3\]'):
      load(folder, (images[:, :, :24], texts))
    with self.assertRaisesRegex(ValueError, "example, such as 'show blue'"):
      load(folder, (images[:2], texts[:2]))
    with self.assertRaisesRegex(checkpoints.CheckpointError, 'no model.json'):
      load(folder + '.missing', _goals())
    for wrong in None, 5:
      with self.assertRaisesRegex(
          ValueError, f'directory is {wrong}: expected a path'):
        load(wrong, _goals())


class OwnNetworksTest(parameterized.TestCase):
  """A learner with networks that a function of the user makes."""

  def _folder(self):
    return os.path.join(self.create_tempdir().full_path, 'model')

  def _saved(self, function=make):
    """Returns the directory of a learner that was updated, and the learner."""
    learner = agile_tf.RewardLearner(_goals(), model=function, **_SETTINGS)
    learner.add(*_states(20))
    learner.update()
    folder = self._folder()
    learner.save(folder)
    return folder, learner

  def test_overlapping_patches_tell_images_without_a_grid_apart(self):
    images, colours = _squares(200, seed=0)
    learner = agile_tf.RewardLearner(
        (images, [_TEXTS[i] for i in colours]),
        model=agile_tf.overlapping.make, batch_size=32, replay_size=200,
        anticipated_negative_rate=0.5, mismatched_share=0.5, held_out_goals=0.1,
        max_column_norm=0.0)
    self.assertEqual(learner.image_shape, (36, 36, 3))
    images, colours = _squares(100, seed=1)
    rng = np.random.default_rng(2)
    learner.add(images, [_TEXTS[i] for i in rng.integers(2, size=100)])
    for _ in range(200):
      learner.update()
    images, colours = _squares(60, seed=3)
    right = learner.probabilities(images, [_TEXTS[i] for i in colours])
    wrong = learner.probabilities(images, [_TEXTS[1 - i] for i in colours])
    self.assertGreater(np.mean(right > 0.5), 0.9)
    self.assertLess(np.mean(wrong > 0.5), 0.1)
    self.assertGreater(learner.accepted()['held_out_goals_accepted'], 0.9)

  def test_probabilities_are_those_of_the_module_that_the_function_makes(self):
    # The sides are those of no patch, and smaller than the paper's networks
    # need.
    for height, width in (50, 70), (5, 7):
      images, colours = _squares(40, 0, height, width) if height > 9 else (
          np.random.default_rng(0).integers(
              256, size=[40, height, width, 3], dtype=np.uint8),
          np.arange(40) % 2)
      texts = [_TEXTS[i] for i in colours]
      learner = agile_tf.RewardLearner(
          (images, texts), model=make, **_SETTINGS)
      phi = _phi(learner, self._folder())
      inputs = np.concatenate(
          [images.reshape([40, -1]) / 255, learner._grammar.encode(texts)], 1)
      logits = inputs @ phi['d/layer/w'][:, 0] + phi['d/layer/b']
      np.testing.assert_allclose(
          learner.probabilities(images, texts), 1 / (1 + np.exp(-logits)),
          rtol=1e-4, atol=1e-6)

  def test_learners_of_one_function_are_equal_and_share_programs(self):
    learners = [agile_tf.RewardLearner(
        _goals(), model=make, seed=seed, **_SETTINGS) for seed in (1, 1, 2)]
    for learner in learners:
      learner.add(*_states(20))
      learner.update()
      self.assertIs(learner._programs, learners[0]._programs)
    one, same, other = (
        learner.probabilities(*_states(9)) for learner in learners)
    np.testing.assert_array_equal(one, same)
    self.assertGreater(np.abs(one - other).max(), 1e-3)

  def test_threads_may_share_such_a_learner(self):
    # Nothing is compiled yet, so the threads trace its programs.
    learner = agile_tf.RewardLearner(
        _goals(), model=lambda world: make(world), **_SETTINGS)
    learner.add(*_states(20))

    def work(seed):
      learner.add(*_states(5, seed))
      learner.update()
      return learner.rate(*_states(seed, seed))[1]

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
      results = [*threads.map(work, range(1, 25))]
    self.assertEqual([*map(len, results)], [*range(1, 25)])
    self.assertTrue(all(np.isfinite(x).all() for x in results))
    self.assertEqual((learner.added, learner.updates), (140, 24))

  def test_a_saved_model_rates_and_learns_on_with_its_function(self):
    folder, learner = self._saved()
    with open(os.path.join(folder, 'model.json'), encoding='utf-8') as file:
      self.assertEqual(
          json.load(file)['network'],
          'tests.agile_tf.rewarding.learner_test:make')
    expected = learner.probabilities(*_states(30))
    np.testing.assert_allclose(
        agile_tf.load_reward_model(folder, model=make)(*_states(30)), expected,
        rtol=1e-5)
    again = agile_tf.RewardLearner.load(
        folder, _goals(), model=make, **_SETTINGS)
    np.testing.assert_array_equal(again.probabilities(*_states(30)), expected)
    again.add(*_states(20))
    again.update()
    self.assertGreater(
        np.abs(again.probabilities(*_states(30)) - expected).max(), 1e-4)
    with self.assertRaisesRegex(pickle.PicklingError, r'directory, model=\.'):
      pickle.dumps(learner)

  def test_a_directory_of_overlapping_patches_rates_the_same(self):
    images, colours = _squares(20, 0, 50, 70)
    texts = [_TEXTS[i] for i in colours]
    learner = agile_tf.RewardLearner(
        (images, texts), model=agile_tf.overlapping.make, **_SETTINGS)
    folder = self._folder()
    learner.save(folder)
    reward_model = agile_tf.load_reward_model(
        folder, model=agile_tf.overlapping.make)
    expected = learner.probabilities(images, texts)
    np.testing.assert_allclose(
        reward_model(images, texts), expected, rtol=1e-4)
    # A wrapper takes this function, and the learner too.
    for model in reward_model, learner:
      np.testing.assert_allclose(
          batches.Rewarder(model)([*zip(images, texts)])[1], expected,
          rtol=1e-4)

  def test_what_a_directory_names_is_given_again_and_never_imported(self):
    folder, _ = self._saved()
    path = os.path.join(folder, 'model.json')
    with open(path, encoding='utf-8') as file:
      values = json.load(file)
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(values | {'network': 'no_such_module:make'}, file)
    loads = (lambda model: agile_tf.load_reward_model(folder, model=model),
             lambda model: agile_tf.RewardLearner.load(
                 folder, _goals(), model=model))
    for load in loads:
      for missing in None, 'nmn', 'no_such_module:make':
        with self.assertRaisesRegex(
            checkpoints.CheckpointError,
            "network that 'no_such_module:make' made, .* the function itself"):
          load(missing)
      load(make)
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'the function itself'):
      agile_tf.RewardLearner.load(folder, _goals())
    for load in (
        lambda: agile_tf.load_reward_model(
            folder, backend='numpy', model=make),
        lambda: batches.Rewarder(folder)):
      with self.assertRaisesRegex(
          config_lib.ConfigError,
          r"backend='numpy' computes .* nmn, lstm alone. .*model=\.\.\."):
        load()

  @parameterized.parameters(
      (make_wide, r'd/layer/w is float32 \[2306, 1\]; expected .*, 2\]'),
      (make_renamed, 'lacks d/other/w'),
      (make_with_more, 'lacks d/bias'))
  def test_networks_of_another_function_are_refused(self, function, message):
    folder, _ = self._saved()
    for load in (
        lambda: agile_tf.load_reward_model(folder, model=function),
        lambda: agile_tf.RewardLearner.load(folder, _goals(), model=function)):
      with self.assertRaisesRegex(
          checkpoints.CheckpointError, f'{message}.*it was saved with'):
        load()

  def test_a_function_of_fewer_parameters_is_refused(self):
    folder, _ = self._saved(make_with_more)
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'it has d/bias, which the network lacks'):
      agile_tf.load_reward_model(folder, model=make)

  @parameterized.parameters(make, 'lstm')
  def test_a_directory_of_the_papers_network_needs_no_function(self, model):
    folder = self._folder()
    agile_tf.RewardLearner(_goals(), **_SETTINGS).save(folder)
    for load in (
        lambda: agile_tf.load_reward_model(folder, model=model),
        lambda: agile_tf.load_reward_model(
            folder, model=model, backend='numpy'),
        lambda: agile_tf.RewardLearner.load(folder, _goals(), model=model)):
      with self.assertRaisesRegex(
          config_lib.ConfigError, "has the network 'nmn': leave it out"):
        load()
    agile_tf.load_reward_model(folder, model='nmn')

  def test_an_enormous_image_shape_takes_no_memory(self):
    folder, _ = self._saved()
    path = os.path.join(folder, 'model.json')
    with open(path, encoding='utf-8') as file:
      values = json.load(file)
    for shape in [10**9, 10**9, 3], [24, 10**30, 3]:
      with open(path, 'w', encoding='utf-8') as file:
        json.dump(values | {'image_shape': shape}, file)
      with self.assertRaisesRegex(
          checkpoints.CheckpointError, 'images .* do not fit into the free'):
        agile_tf.load_reward_model(folder, model=make)

  @parameterized.parameters(
      (lambda: None, r'model=.*<lambda> cannot be called with a world '
       r'\(too many positional arguments\); expected a function that takes'),
      (lambda world: 3, 'returned int; expected an agile_tf.agent'),
      (lambda world: make(world).discriminator, 'returned _D; expected'),
      (lambda world: make(world)._replace(policy=_D(1, 'policy')),
       r'The policy of model=.* returned float32 \[2\] for 2 images'),
      (lambda world, size: None, r"\(missing a required argument: 'size'\)"))
  def test_what_cannot_be_trained_is_named(self, model, message):
    with self.assertRaisesRegex(own_networks.ModelError, message):
      agile_tf.RewardLearner(_goals(), model=model, **_SETTINGS)
