"""Loads what a run has learned, as functions of images and instructions."""

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
  """The networks of a run at a checkpoint."""
  config: config_lib.Config
  world: worlds.World
  steps: int  # Policy steps at the checkpoint.
  policy: functional.Network
  theta: tf.Tensor  # float32 [P]
  discriminator: functional.Network
  phi: tf.Tensor | None  # float32 [P]; None if the run has no discriminator.

  def player(self) -> playing.Player:
    """Returns a player of episodes with these networks, compiled anew."""
    return playing.Player(self.world, self.policy, self.discriminator,
                          self.config.rollout_length)

  def play(self, count: int, seed: int, greedy: bool
          ) -> Iterable[played.Episode]:
    """Yields played episodes; see `playing.Player.play`."""
    return self.player().play(self.theta, self.phi, count, seed, greedy)


def load(run_dir: str, step: int | None = None, held_out: bool = False,
         only: str = '', physics: str = '',
         solved_starts: bool | None = None) -> Trained:
  """Loads the networks of a run.

  Args:
    run_dir: The directory of the run.
    step: The step of the checkpoint; None for the newest.
    held_out: Whether episodes have the instructions that the run held out,
      instead of those that it was trained on.
    only: A regular expression; episodes have only instructions that match it.
    physics: A name of `gridlu.world.PHYSICS`; '' for the run's own.
    solved_starts: Whether an episode may begin in a goal state; None for the
      run's own.

  Raises:
    ConfigError or CheckpointError: if there is no such run or checkpoint, or
      the settings do not fit the run's world.
  """
  config = config_lib.load(os.path.join(run_dir, 'config.json'))
  if physics:
    config = dataclasses.replace(config, physics=physics)
  if solved_starts is not None:
    config = dataclasses.replace(config, solved_starts=solved_starts)
  world = building.make_world(config, held_out, only)
  policy, discriminator = building.make_networks(config, world)
  return at(
      Trained(config, world, 0, policy, tf.zeros([0]), discriminator, None),
      run_dir, step)


def at(trained: Trained, run_dir: str, step: int | None = None) -> Trained:
  """Returns the same networks with the parameters of another checkpoint.

  Args:
    trained: The networks and their world.
    run_dir: The directory of a run with the same networks.
    step: The step of the checkpoint; None for the newest.

  Raises:
    CheckpointError: if there is no such checkpoint, or its networks differ.
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


def compiled(network: functional.Network) -> Callable[..., Any]:
  """Returns a network as a program for batches of any size."""
  # AutoGraph would do nothing but warn, in a notebook.
  return tf.function(network, autograph=False, reduce_retracing=True)


def _prepare(world: worlds.World, images: Any, instructions: Sequence[str]
            ) -> tuple[tf.Tensor, np.ndarray] | None:
  """Returns the inputs of the networks for a batch; None for an empty batch.

  Args:
    world: The world of the networks.
    images: uint8 [N, H, W, 3].
    instructions: N texts.

  Returns:
    float32 [N, H, W, 3] in [0, 1], and int32 [N, slots].

  Raises:
    ValueError: if images and instructions do not have these types and shapes.
  """
  images = np.asarray(images)
  if isinstance(instructions, str):
    raise ValueError(
        f'instructions is the string {instructions!r}; expected a list of '
        'strings, one for each image.')
  if not len(images) and not len(instructions):
    return None
  if images.dtype != np.uint8 or images.shape != (
      len(instructions), *world.image_shape):
    raise ValueError(
        f'images is {images.dtype} {list(images.shape)}; expected uint8 '
        f'{[len(instructions), *world.image_shape]}, because there are '
        f'{len(instructions)} instructions.')
  scaled = tf.constant(images.astype(np.float32) / 255)
  return scaled, world.grammar.encode(instructions)


def load_reward_model(run_dir: str, step: int | None = None
                     ) -> Callable[[Any, Sequence[str]], np.ndarray]:
  """Returns the reward model of a run, its discriminator, as a function.

  Args:
    run_dir: The directory of the run.
    step: The step of the checkpoint; None for the newest.

  Returns:
    A function of images uint8 [N, H, W, 3] and N instructions that returns
    float32 [N], the probabilities D(c, s) that the images show goal states.

  Raises:
    ConfigError or CheckpointError: if there is no such run or checkpoint, or
      the run has no discriminator.
  """
  trained = load(run_dir, step)
  phi = trained.phi
  if phi is None:
    raise checkpoints.CheckpointError(
        f'{run_dir} has no discriminator: it was trained on the ground truth. '
        'Name the directory of an AGILE run.')
  compute = compiled(trained.discriminator)

  def reward_model(images: Any, instructions: Sequence[str]) -> np.ndarray:
    inputs = _prepare(trained.world, images, instructions)
    if inputs is None:
      return np.zeros([0], np.float32)
    return tf.sigmoid(compute(phi, *inputs)).numpy()

  return reward_model


def load_policy(run_dir: str, step: int | None = None
               ) -> Callable[..., np.ndarray]:
  """Returns the policy of a run as a function.

  Args:
    run_dir: The directory of the run.
    step: The step of the checkpoint; None for the newest.

  Returns:
    A function of images uint8 [N, H, W, 3], N instructions and an optional
    np.random.Generator that returns actions int32 [N]. With the generator it
    samples them; without, it takes the likeliest ones.

  Raises:
    ConfigError or CheckpointError: if there is no such run or checkpoint.
  """
  trained = load(run_dir, step)
  compute = compiled(trained.policy)

  def policy(images: Any, instructions: Sequence[str],
             rng: np.random.Generator | None = None) -> np.ndarray:
    inputs = _prepare(trained.world, images, instructions)
    if inputs is None:
      return np.zeros([0], np.int32)
    logits = compute(trained.theta, *inputs).logits.numpy()
    if rng is not None:
      logits = logits + rng.gumbel(size=logits.shape)
    return logits.argmax(axis=-1).astype(np.int32)

  return policy
