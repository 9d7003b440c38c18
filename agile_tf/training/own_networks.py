"""Networks of users: a pair of Sonnet modules, which a function makes.

`--model` names this function, and a program hands it over itself.
"""

from collections.abc import Callable
import inspect
from typing import Any, TypeAlias

import numpy as np
import sonnet as snt
import tensorflow as tf

from agile_tf import named
from agile_tf.agent import functional
from agile_tf.agent import networks
from agile_tf.agent import worlds
from gridlu import program

# Such a function makes a new pair of modules in each call.
Make: TypeAlias = Callable[[worlds.World], networks.Pair]
FUNCTION = ('a function that takes an agile_tf.worlds.World and returns an '
            'agile_tf.agent.networks.Pair')


class ModelError(program.UserError):
  """A function of the user that makes no networks."""


def load(model: str | Make, world: worlds.World
        ) -> tuple[functional.Network, functional.Network]:
  """Makes the pi and D of a user's function.

  Exceptions that it, its module or its networks raise go to the user, with
  their traceback.

  Args:
    model: The function, or its name 'package.module:function'.
    world: The world that it gets.

  Raises:
    ModelError: There is no such function, or what it makes cannot be trained.
  """
  if isinstance(model, str):
    name, label = model, f'--model={model}'
    function = named.find(
        name, world, label=label, error_type=ModelError,
        expected=f'one of {", ".join(networks.MODELS)}, or '
        f'"package.module:function", {FUNCTION}')
  else:
    name, function = named.name(model), model
    label = f'model={name}'
    try:
      inspect.signature(function).bind(world)
    except (TypeError, ValueError) as error:
      raise ModelError(
          f'{label} cannot be called with a world ({error}); expected '
          f'{FUNCTION}.') from error
  # These pairs are only checked. `networks.functions` makes others, in which
  # variables are traced.
  with named.loading(f'{label}: {name.partition(":")[2]}()', ModelError):
    pair, another = function(world), function(world)
  if not (isinstance(pair, networks.Pair) and isinstance(another, type(pair))):
    raise ModelError(
        f'{label} returned {type(pair).__name__}; expected an '
        'agile_tf.agent.networks.Pair.')
  for which in 'policy', 'discriminator':
    module = getattr(pair, which)
    if not isinstance(module, snt.Module):
      raise ModelError(
          f'The {which} of {label} is of type {type(module).__name__}; '
          'expected a module of Sonnet, a sonnet.Module.')
    if module is getattr(another, which):
      raise ModelError(
          f'{label} returned the same {which} in two calls; expected that '
          'each call makes new modules, because a run makes several pairs.')
    _check_calls(which, module, label, world)
  pi, d = networks.functions(lambda: function(world), world)
  _check_names(pair, pi, d, label)
  return pi, d


def _describe(value: Any) -> str:
  """Returns 'float32 [2, 5]' for a tensor, and the type of anything else."""
  if tf.is_tensor(value):
    return f'{value.dtype.name} {value.shape.as_list()}'
  return type(value).__name__


def _check_calls(which: str, module: snt.Module, label: str,
                 world: worlds.World) -> None:
  """Raises ModelError unless a module is a function with the right outputs.

  That is, its outputs depend only on its trainable variables and its inputs.
  """
  count = 2
  images = tf.constant(np.random.default_rng(0).random(
      [count, *world.image_shape]), tf.float32)
  codes = tf.zeros([count, len(world.grammar.slots)], tf.int32)
  with tf.GradientTape() as tape:
    try:
      output = module(images, codes)
    except RuntimeError:
      # With tf.config.experimental.enable_op_determinism, drawing needs a seed.
      tf.random.set_seed(0)
      output = module(images, codes)
  trained = tape.watched_variables()  # It also finds those that no module has.

  actual = tf.nest.map_structure(_describe, output)
  expected: Any = f'float32 [{count}]'
  if which == 'policy':
    expected = networks.PolicyOutput(
        logits=f'float32 [{count}, {world.num_actions}]', baseline=expected,
        reward_logits=f'float32 [{count}, 2]')
  if type(actual) is not type(expected) or actual != expected:
    raise ModelError(
        f'The {which} of {label} returned {actual} for {count} images '
        f'and instructions; expected {expected}.')

  if not trained:
    raise ModelError(
        f'The {which} of {label} uses no trainable variable; expected some.')
  # A module of Sonnet raises an error if it has no variables.
  for variable in tf.Module.variables.fget(module):
    if not variable.trainable:
      raise ModelError(
          f'The {which} of {label} has the variable {variable.name}, which is '
          'not trainable; expected none, because a network may keep no state '
          'between calls. Batch normalization does.')
  before = [variable.numpy() for variable in trained]
  again = module(images, codes)
  for variable, value in zip(trained, before):
    if not np.array_equal(variable.numpy(), value, equal_nan=True):
      raise ModelError(
          f'The {which} of {label} changes its variable {variable.name} when '
          'it is called; expected that only training changes it.')
  for x, y in zip(tf.nest.flatten(output), tf.nest.flatten(again)):
    # On a GPU sums may be rounded in another way.
    if not np.allclose(x, y, rtol=1e-3, atol=1e-5, equal_nan=True):
      raise ModelError(
          f'The {which} of {label} returned other values when it was called '
          'again with the same inputs; expected the same, so that it draws no '
          'random numbers, as dropout does, and counts no calls.')


def _check_names(pair: networks.Pair, pi: functional.Network,
                 d: functional.Network, label: str) -> None:
  """Raises ModelError unless a pair's names mean parameters that exist."""
  for which, network in ('policy', pi), ('discriminator', d):
    names = network.layout.names
    if twice := sorted({each for each in names if names.count(each) > 1}):
      raise ModelError(
          f'The {which} of {label} has several parameters of the name '
          f'{twice[0]}. Give each module a name of its own.')
  for field in 'tables', 'lent':
    value = getattr(pair, field)
    if isinstance(value, str) or not all(isinstance(x, str) for x in value):
      raise ModelError(
          f'The {field} of {label} are {value!r}; expected a tuple of names, '
          f"such as ('{value if isinstance(value, str) else 'features'}',).")
  both = [*pi.layout.names, *d.layout.names]
  known = {name.rsplit('/', 1)[-1] for name in both}
  default = networks.Pair._field_defaults['tables']
  for table in pair.tables:
    if table not in known and table not in default:
      raise ModelError(
          f'{label} names the table {table!r}, and no parameter has this as '
          f'the last part of its name; expected of {", ".join(sorted(known))}.')
  taken = d.layout.lends(pi.layout).values()
  for path in pair.lent:
    if not any(name.partition('/')[2].startswith(f'{path}/') for name in taken):
      raise ModelError(
          f'{label} lends {path!r}, and no parameter is in this module of both '
          'networks; the discriminator has these: '
          f'{", ".join(d.layout.names)}.')
