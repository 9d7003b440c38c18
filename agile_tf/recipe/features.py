"""After its head start the discriminator lends the policy its features."""

from agile_tf.agent import optimizers


def lend(policy: optimizers.SharedParameters,
         discriminator: optimizers.SharedParameters) -> None:
  """Copies the discriminator's features to the policy.

  These are all layers that see or read: the policy's merge layer and both heads
  stay.
  """
  theirs = discriminator.state()
  names = {name: name.replace('policy/', 'discriminator/', 1)
           for name in policy.layout.names if '/features/' in name}
  policy.load(policy.state() | {
      own: theirs[other] for own, other in names.items() if other in theirs})
