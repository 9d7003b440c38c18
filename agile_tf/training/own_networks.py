"""Networks of users: a pair of Sonnet modules, which `--model` names."""

import tensorflow as tf

from agile_tf import named
from agile_tf.agent import functional
from agile_tf.agent import networks
from agile_tf.agent import worlds
from gridlu import program


class ModelError(program.UserError):
  """A function that `--model` names and that makes no networks."""


def load(name: str, world: worlds.World
        ) -> tuple[functional.Network, functional.Network]:
  """Makes the pi and D of a user's function 'package.module:function'.

  The function takes a world and returns a new `networks.Pair`. Exceptions that
  it or its module raises go to the user, with their traceback.
  """
  label = f'--model={name}'
  function = named.find(
      name, world, label=label, error_type=ModelError,
      expected=f'one of {", ".join(networks.MODELS)}, or '
      '"package.module:function", a function that takes an '
      'agile_tf.worlds.World and returns an agile_tf.agent.networks.Pair')
  # This pair is only checked. `networks.functions` makes others, in which
  # variables are traced.
  with named.loading(f'{label}: {name.partition(":")[2]}()', ModelError):
    pair = function(world)
  if not isinstance(pair, networks.Pair):
    raise ModelError(
        f'{label} returned {type(pair).__name__}; expected an '
        'agile_tf.agent.networks.Pair.')
  pi, d = networks.functions(lambda: function(world), world)
  _check('policy', pi, label, world)
  _check('discriminator', d, label, world)
  return pi, d


def _check(which: str, network: functional.Network, label: str,
           world: worlds.World) -> None:
  """Raises ModelError unless a network has the outputs that it must have."""
  names = network.layout.names
  if twice := sorted({each for each in names if names.count(each) > 1}):
    raise ModelError(
        f'The {which} of {label} has several parameters of the name '
        f'{twice[0]}. Give each module a name of its own.')
  count = 2
  output = network.apply(
      tf.constant(network.initial(0)),
      tf.zeros([count, *world.image_shape]),
      tf.zeros([count, len(world.grammar.slots)], tf.int32))
  actual = tf.nest.map_structure(lambda x: list(x.shape), output)
  prediction = [count, 2]  # Reward prediction tells two classes apart.
  expected = [count] if which == 'discriminator' else networks.PolicyOutput(
      [count, world.num_actions], [count], prediction)
  if type(actual) is not type(expected) or actual != expected:
    raise ModelError(
        f'The {which} of {label} returned {actual} for {count} images '
        f'and instructions; expected {expected}.')
