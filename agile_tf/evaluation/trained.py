"""What a run has learned: plain functions of images and instructions."""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import os
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from agile_tf import config as config_lib
from agile_tf.agent import functional
from agile_tf.agent import worlds
from agile_tf.evaluation import played
from agile_tf.evaluation import playing
from agile_tf.training import building
from agile_tf.training import checkpoints


class Trained(NamedTuple):
  """The networks of a run."""
  config: config_lib.Config
  world: worlds.World
  steps: int  # Policy steps at the checkpoint.
  policy: functional.Network
  theta: tf.Tensor  # float32 [P]
  discriminator: functional.Network
  phi: tf.Tensor | None  # float32 [P]; None: it has no discriminator.

  def player(self) -> playing.Player:
    """Compiles what plays episodes with these networks."""
    return playing.Player(self.world, self.policy, self.discriminator,
                          self.config.rollout_length)

  def play(self, count: int, seed: int, greedy: bool
          ) -> Iterable[played.Episode]:
    """Plays episodes; see `playing.Player.play`."""
    return self.player().play(self.theta, self.phi, count, seed, greedy)


def load(run_dir: str, step: int | None = None, held_out: bool = False,
         only: str = '', physics: str = '') -> Trained:
  """Loads the networks of a run.

  Args:
    run_dir: The directory that agile_tf.launch wrote.
    step: The checkpoint's; default: the newest.
    held_out: Whether the world's episodes shall have the instructions that the
      run held out, in place of those that it trained on.
    only: A regular expression that must be found in these instructions.
    physics: Another one than the run's, by its name in `gridlu.world.PHYSICS`.

  Raises:
    ConfigError or CheckpointError: if there is no such run or checkpoint, or
      the world cannot be.
  """
  config = config_lib.load(os.path.join(run_dir, 'config.json'))
  if physics:
    config = dataclasses.replace(config, physics=physics)
  world = building.make_world(config, held_out, only)
  policy, discriminator = building.make_networks(config, world)
  return at(
      Trained(config, world, 0, policy, tf.zeros([0]), discriminator, None),
      run_dir, step)


def at(trained: Trained, run_dir: str, step: int | None = None) -> Trained:
  """Returns the same networks with the parameters of another checkpoint.

  Args:
    trained: Networks, and the world that they are for.
    run_dir: A run of the same networks.
    step: The checkpoint's; default: the newest.

  Raises:
    CheckpointError: if there is no such checkpoint, or it is of others.
  """
  checkpoint = checkpoints.load(run_dir, step)
  building.check_tokens(checkpoint, trained.world)

  def constant(network: functional.Network, group: str) -> tf.Tensor:
    return tf.constant(building.parameters(checkpoint, network, group))

  has_discriminator = bool(
      checkpoints.group(checkpoint.arrays, 'discriminator'))
  return trained._replace(
      steps=checkpoint.values['steps'],
      theta=constant(trained.policy, 'policy'),
      phi=(constant(trained.discriminator, 'discriminator')
           if has_discriminator else None))


def _prepare(world: worlds.World, images: Any, instructions: Sequence[str]
            ) -> tuple[tf.Tensor, np.ndarray]:
  """Checks and encodes a batch.

  Raises:
    ValueError: if it is not what the networks read.
  """
  images = np.asarray(images)
  if isinstance(instructions, str):
    raise ValueError(
        f'instructions is the string {instructions!r}; expected a list of '
        'them, one for each image.')
  if images.dtype != np.uint8 or images.shape != (
      len(instructions), *world.image_shape):
    raise ValueError(
        f'images is {images.dtype} {list(images.shape)}; expected uint8 '
        f'{[len(instructions), *world.image_shape]}, as there are '
        f'{len(instructions)} instructions.')
  scaled = tf.constant(images.astype(np.float32) / 255)
  return scaled, world.grammar.encode(instructions)


def load_reward_model(run_dir: str, step: int | None = None
                     ) -> Callable[[Any, Sequence[str]], np.ndarray]:
  """Loads the discriminator of a run, the reward model.

  Args:
    run_dir: The directory that agile_tf.launch wrote.
    step: The checkpoint's; default: the newest.

  Returns:
    A function of images uint8 [N, H, W, 3] and N instructions that returns
    float32 [N], the probabilities D(c, s) that they are goal states.

  Raises:
    ConfigError or CheckpointError: if there is no such run or checkpoint, or
      the run has no discriminator.
  """
  trained = load(run_dir, step)
  phi = trained.phi
  if phi is None:
    raise checkpoints.CheckpointError(
        f'{run_dir} was trained without a discriminator; name the directory '
        'of an AGILE run.')
  compute = tf.function(trained.discriminator, reduce_retracing=True)

  def reward_model(images: Any, instructions: Sequence[str]) -> np.ndarray:
    scaled, codes = _prepare(trained.world, images, instructions)
    return tf.sigmoid(compute(phi, scaled, codes)).numpy()

  return reward_model


def load_policy(run_dir: str, step: int | None = None
               ) -> Callable[..., np.ndarray]:
  """Loads the policy of a run.

  Args:
    run_dir: The directory that agile_tf.launch wrote.
    step: The checkpoint's; default: the newest.

  Returns:
    A function of images uint8 [N, H, W, 3], N instructions and, if actions
    shall be sampled, an np.random.Generator that returns actions int32 [N];
    without a generator they are the likeliest ones.

  Raises:
    ConfigError or CheckpointError: if there is no such run or checkpoint.
  """
  trained = load(run_dir, step)
  compute = tf.function(trained.policy, reduce_retracing=True)

  def policy(images: Any, instructions: Sequence[str],
             rng: np.random.Generator | None = None) -> np.ndarray:
    scaled, codes = _prepare(trained.world, images, instructions)
    logits = compute(trained.theta, scaled, codes).logits.numpy()
    if rng is not None:
      logits = logits + rng.gumbel(size=logits.shape)
    return logits.argmax(axis=-1).astype(np.int32)

  return policy
