"""After its head start the discriminator lends the policy its features."""

from collections.abc import Sequence

from agile_tf.agent import optimizers


def shared(policy: Sequence[str], discriminator: Sequence[str]
          ) -> dict[str, str]:
  """Returns which parameters of two networks of one kind are the same.

  From the policy's names to the discriminator's, for all layers that see or
  read: without the policy's merge layer and without both heads.
  """
  names = {name.partition('/')[2]: name for name in discriminator}
  return {name: names[own] for name in policy
          if (own := name.partition('/')[2]) in names and
          own.startswith('features/')}


def lend(policy: optimizers.SharedParameters,
         discriminator: optimizers.SharedParameters) -> None:
  """Copies the discriminator's features to the policy."""
  theirs = discriminator.state()
  names = shared(policy.layout.names, discriminator.layout.names)
  policy.load(policy.state() | {
      own: theirs[other] for own, other in names.items()})
