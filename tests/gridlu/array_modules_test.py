"""The same lines in NumPy and inside a compiled TensorFlow program."""

from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from gridlu import arrangements
from gridlu import language
from gridlu import relations
from gridlu import rendering
from gridlu import world
from tests.gridlu import boards


def _everything(state, action, codes, xp):
  """All functions that take an array module, in one."""
  after = world.step(state, action, world.IMMOVABLE_RED_RECTS, xp=xp)
  packed = world.pack(after, xp=xp)
  return {
      'after': after,
      'packed': packed,
      'unpacked': world.unpack(packed, xp=xp),
      'tiles': rendering.tile_indices(after, xp=xp),
      'images': rendering.render(after, xp=xp),
      'satisfied': relations.satisfied(codes, after, xp=xp),
  }


class ArrayModulesTest(parameterized.TestCase):

  def _check(self, signature, *batches):
    rng = np.random.default_rng(0)
    codes = relations.encode(language.relations_instructions())
    compiled = tf.function(
        lambda *args: _everything(*args, xp=tf.experimental.numpy),
        input_signature=signature, jit_compile=True)
    for batch in batches:
      states = boards.random_states(rng, int(np.prod(batch)))
      state = world.State(*(x.reshape(batch + x.shape[1:]) for x in states))
      for _ in range(5):
        action = np.asarray(rng.integers(0, 6, batch, dtype=np.int32))
        code = codes[rng.integers(0, 990, batch)]
        expected = _everything(state, action, code, np)
        actual = compiled(tf.nest.map_structure(tf.constant, state),
                          tf.constant(action), tf.constant(code))
        for a, b in zip(tf.nest.flatten(actual), tf.nest.flatten(expected),
                        strict=True):
          self.assertEqual(a.dtype.as_numpy_dtype, np.asarray(b).dtype)
          np.testing.assert_array_equal(a.numpy(), b)
        state = expected['after']

  @parameterized.parameters(((),), ((2, 3),))
  def test_compiled_tensorflow_gives_the_same(self, batch):
    self._check(None, batch)

  def test_arrangements_are_judged_the_same_in_tensorflow(self):
    rng = np.random.default_rng(0)
    instructions = language.arrangements_instructions()
    chosen, states = arrangements.goal_states(rng, 300, instructions)
    codes = arrangements.encode([instructions[i] for i in chosen])
    codes[::2] = codes[rng.permutation(300)[::2]]
    expected = arrangements.satisfied(codes, states)
    self.assertBetween(expected.mean(), .5, .8)
    np.testing.assert_array_equal(tf.function(
        lambda *args: arrangements.satisfied(*args, xp=tf.experimental.numpy),
        jit_compile=True)(codes, states), expected)

  def test_a_batch_may_have_an_unknown_size(self):
    self._check([
        world.State(tf.TensorSpec([None, 5, 5], tf.int32),
                    tf.TensorSpec([None, 2], tf.int32),
                    tf.TensorSpec([None], tf.bool)),
        tf.TensorSpec([None], tf.int32),
        tf.TensorSpec([None, relations.CODE_SIZE], tf.int32),
    ], (3,), (200,))
