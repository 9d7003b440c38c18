"""What a run has learned: plays its policy, and offers its networks.

`agile_tf.evaluation.loading` loads the networks alone.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import math
import os
import pickle
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from agile_tf import code_checks
from agile_tf import config as config_lib
from agile_tf.agent import actors
from agile_tf.agent import functional
from agile_tf.agent import image_sizes
from agile_tf.agent import programs as programs_lib
from agile_tf.agent import worlds
from agile_tf.evaluation import functions
from agile_tf.evaluation import played
from agile_tf.recipe import settings
from agile_tf.training import building
from agile_tf.training import checkpoints
from agile_tf.training import machine
from agile_tf.training import own_networks
from agile_tf.training import reward_models
from agile_tf.training import selection
from agile_tf.worlds import environments
from gridlu import files
from gridlu import program

_BATCH = 64  # How many episodes are played in parallel.
# The check of a user's networks draws two images as float64.
_BYTES_PER_NUMBER = 2 * 8


class _Network:
  """A network as a function of arrays and texts, for this process alone.

  TensorFlow would wait forever in a fork of this process.
  """

  def __init__(self, world: worlds.World, network: functional.Network,
               parameters: tf.Tensor | None,
               logits: Callable[[Any], tf.Tensor] = lambda output: output):
    """Takes a network, and what takes the logits from its output."""
    self._encode = world.grammar.encode
    # AutoGraph would change nothing here, and in a notebook it would warn.
    self._compute = tf.function(
        lambda parameters, *inputs: logits(
            network.apply(parameters, *inputs)),
        autograph=False, reduce_retracing=True)
    self._parameters = parameters

  def __call__(self, images: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    machine.claim_process()
    return self._compute(
        self._parameters, tf.constant(images), self._encode(texts)).numpy()

  def __deepcopy__(self, memo: Any) -> '_Network':
    return self  # Python copies functions in the same way.

  def __reduce__(self) -> Any:
    raise pickle.PicklingError(
        'A network that TensorFlow computes cannot be sent to another process. '
        "Load it with backend='numpy', or in that process.")


class Trained(NamedTuple):
  """The networks of a run at a checkpoint, and their programs."""
  config: config_lib.Config
  world: worlds.World
  steps: int  # Policy steps at the checkpoint.
  policy: functional.Network
  theta: tf.Tensor  # float32 [P]
  discriminator: functional.Network
  phi: tf.Tensor | None  # float32 [P]; None if the run has no discriminator.
  policy_programs: programs_lib.PolicyPrograms
  # Its rewards are D's probabilities, without a scale.
  discriminator_programs: programs_lib.DiscriminatorPrograms

  def play(self, count: int, seed: int, greedy: bool
          ) -> Iterator[played.Episode]:
    """Yields `count` episodes; the seed determines instances and actions.

    Each row of the batch plays an equal share of them, because taking the
    first to finish would favour short episodes.
    """
    width = min(count, _BATCH)
    seeds = np.random.SeedSequence(seed).spawn(2 * width)
    actor = actors.kind(self.world)(
        self.policy_programs,
        [self.world.make_environment(int(s.generate_state(1)[0]))
         for s in seeds[:width]],
        [np.random.default_rng(s) for s in seeds[width:]],
        self.config.rollout_length, delayed=[False] * width, greedy=greedy)
    missing = [count // width + (w < count % width) for w in range(width)]
    # For each row the rollouts of its episode, as arrays by their names.
    parts: list[list[dict[str, np.ndarray]]] = [[] for _ in range(width)]
    with contextlib.closing(actor):
      while any(missing):
        rollout = actor.play(self.theta)
        arrays: dict[str, Any] = {
            'states': rollout.observations, 'truth': rollout.truth}
        if self.phi is not None:
          probabilities, decisions = self.discriminator_programs.rewards(
              self.phi, rollout.observations, rollout.codes)
          arrays['probabilities'] = probabilities.numpy()
          arrays['decisions'] = decisions.numpy()
        for w in range(width):
          steps = int(rollout.mask[:, w].sum())
          parts[w].append({name: values[:steps, w]
                           for name, values in arrays.items()
                           if values is not None})
          if not rollout.ended[w]:
            continue
          # The arrays so far have s_i beside the truth and D of s_{i+1}. The
          # last state comes after them.
          parts[w].append({'states': rollout.observations[None, steps, w]})
          episode = {
              name: np.concatenate(
                  [part[name] for part in parts[w] if name in part])
              for name in parts[w][0]}
          parts[w] = []
          if missing[w]:
            missing[w] -= 1
            yield played.Episode(rollout.instructions[w], **episode)

  def as_reward_model(self) -> functions.Function:
    """Returns the discriminator as the function of `load_reward_model`."""
    return functions.reward_model(
        _Network(self.world, self.discriminator, self.phi),
        self.world.image_shape)

  def saved_reward_model(self) -> reward_models.RewardModel:
    """Returns the discriminator as a reward model directory has it."""
    assert self.phi is not None
    return reward_models.RewardModel(
        self.config.model, self.world.image_shape, self.world.grammar,
        {name: value.numpy() for name, value in
         self.discriminator.layout.split(self.phi).items()})

  def as_policy(self, seed: Any = None, greedy: bool = False
               ) -> functions.Function:
    """Returns the policy as the function of `load_policy`."""
    return functions.policy(
        _Network(self.world, self.policy, self.theta,
                 lambda output: output.logits),
        self.world.image_shape, seed, greedy)


def reward_model(directory: str | os.PathLike,
                 parse: reward_models.Parse | None = None,
                 given: own_networks.Make | str | None = None
                ) -> functions.Function:
  """Returns the function of a reward model directory.

  `given` is the function that makes its networks, if they are a user's own.
  """
  machine.claim_process()
  model = reward_models.load(directory, parse)
  network = reward_models.network(model, given, directory)
  # D is made by rating images, and a directory may name a size that does not
  # fit into the memory. The parameters of the paper's networks are the same for
  # images of any size.
  image_shape = model.image_shape
  if isinstance(network, str):
    image_shape = image_sizes.SMALLEST, image_sizes.SMALLEST, 3
  elif _BYTES_PER_NUMBER * math.prod(image_shape) > files.free_memory():
    raise checkpoints.CheckpointError(
        f'{directory} is of images {list(image_shape)}, which do not fit into '
        'the free memory.')
  world = environments.without_environments(model.grammar, image_shape)
  _, discriminator = building.make_networks(network, world)
  layout = discriminator.layout
  reward_models.check_parameters(
      model, dict(zip(layout.names, layout.shapes)), directory)
  return functions.reward_model(
      _Network(world, discriminator, layout.join(model.parameters)),
      model.image_shape)


def load(run_dir: str | os.PathLike, step: int | None = None,
         held_out_instructions: bool = False, only: str = '',
         physics: str = '', solved_starts: bool | None = None, world: str = '',
         model: str = '') -> Trained:
  """Loads the networks of a run.

  Args:
    run_dir: The directory of the run.
    step: The step of the checkpoint; None for the newest.
    held_out_instructions: Whether to play the instructions that the run held
      out.
    only: A regular expression that instructions must match.
    physics: A name of `gridlu.world.PHYSICS`; '' for the run's own.
    solved_starts: Whether episodes may begin solved; None as in the run.
    world: The run's --world, which must be named if it is not GridLU, or a
      GridLU task with the same instructions.
    model: The run's --model, which must be named if it is a user's own.

  Raises:
    ConfigError or CheckpointError: if this does not fit the run.
    RuntimeError: in a fork of a process that has loaded networks.
  """
  machine.claim_process()
  run_dir = program.clean_path(program.path_text('run_dir', run_dir))
  path = os.path.join(run_dir, 'config.json')
  config, _ = settings.load(path)
  code_checks.check_world(config.world, world, run_dir)
  code_checks.check_model(config.model, model, run_dir)
  config = dataclasses.replace(
      config, world=world or config.world, physics=physics or config.physics,
      solved_starts=(
          config.solved_starts if solved_starts is None else solved_starts))
  made = building.make_world(
      config, held_out_instructions, only,
      selection.saved(config_lib.read(path), path))
  policy, discriminator = building.make_networks(config.model, made)
  return at(
      Trained(
          config=config, world=made, policy=policy, discriminator=discriminator,
          steps=0, theta=tf.zeros([0]), phi=None,  # `at` fills these in.
          policy_programs=programs_lib.PolicyPrograms(policy, made),
          discriminator_programs=programs_lib.DiscriminatorPrograms(
              discriminator, reward_form='probability', reward_scale=1.0,
              reward_threshold=config.reward_threshold)),
      run_dir, step)


def at(trained: Trained, run_dir: str, step: int | None = None) -> Trained:
  """Returns the same programs with the parameters of another checkpoint."""
  checkpoint = checkpoints.load(run_dir, step)

  def constant(network: functional.Network, group: str) -> tf.Tensor:
    return tf.constant(building.saved_parameters(
        checkpoint, trained.world, network, group))

  has_discriminator = bool(checkpoint.group('discriminator'))
  return trained._replace(
      steps=checkpoint.values['steps'],
      theta=constant(trained.policy, 'policy'),
      phi=(constant(trained.discriminator, 'discriminator')
           if has_discriminator else None))
