"""What a run has learned: plays its policy, and offers its networks."""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import os
import pickle
import sys
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from agile_tf import config as config_lib
from agile_tf.agent import actors
from agile_tf.agent import networks
from agile_tf.agent import programs as programs_lib
from agile_tf.agent import worlds
from agile_tf.agent.fast import functional
from agile_tf.evaluation import played
from agile_tf.training import building
from agile_tf.training import checkpoints
from agile_tf.training import machine
from gridlu import program
from gridlu import tasks

_BATCH = 64  # Episodes played in parallel.
_LARGEST = 1000  # Images computed at a time, which take 1 GB.


class _Function:
  """A network as a function of images and instructions, for this process.

  TensorFlow would hang in a fork of it.
  """

  def __init__(self, world: worlds.World, network: functional.Network,
               parameters: tf.Tensor | None, result: Callable[..., np.ndarray],
               dtype: type):
    """Takes a network; `result` turns its output into an array of this type.

    Further arguments of a call go to `result`.
    """
    self._world = world
    # AutoGraph would do nothing but warn, in a notebook.
    self._compute = tf.function(
        lambda parameters, *inputs: network.at(parameters)(*inputs),
        autograph=False, reduce_retracing=True)
    self._parameters = parameters
    self._result = result
    self._dtype = dtype

  def __call__(self, images: Any, instructions: Sequence[str],
               *arguments: Any, **named: Any) -> np.ndarray:
    machine.claim_process()
    images = np.asarray(images)
    if isinstance(instructions, str):
      raise ValueError(
          f'instructions is the string {instructions!r}; expected a list of '
          'strings, one for each image.')
    if not len(images) and not len(instructions):
      return np.zeros([0], self._dtype)
    shape = [len(instructions), *self._world.image_shape]
    if images.dtype != np.uint8 or list(images.shape) != shape:
      raise ValueError(
          f'images is {images.dtype} {list(images.shape)}; expected uint8 '
          f'{shape}, because there are {len(instructions)} instructions.')
    codes = self._world.grammar.encode(instructions)
    results = []
    for i in range(0, len(images), _LARGEST):
      part = slice(i, i + _LARGEST)
      outputs = self._compute(
          self._parameters, tf.constant(images[part].astype(np.float32) / 255),
          codes[part])
      results.append(self._result(outputs, *arguments, **named))
    return np.concatenate(results).astype(self._dtype)

  def __deepcopy__(self, memo: Any) -> '_Function':
    return self  # As functions are copied.

  def __reduce__(self) -> Any:
    raise pickle.PicklingError(
        'A loaded network cannot be sent to another process. Load it in that '
        'process, with agile_tf.load_reward_model or agile_tf.load_policy.')


class Trained(NamedTuple):
  """The networks of a run at a checkpoint, and their programs."""
  config: config_lib.Config
  world: worlds.World
  steps: int  # Policy steps at the checkpoint.
  policy: functional.Network
  theta: tf.Tensor  # float32 [P]
  discriminator: functional.Network
  phi: tf.Tensor | None  # float32 [P]; None if the run has no discriminator.
  programs: programs_lib.Programs

  def play(self, count: int, seed: int, greedy: bool
          ) -> Iterator[played.Episode]:
    """Yields `count` episodes; the seed is that of instances and actions.

    Each row of the batch plays an equal share of them, because taking the
    first to finish would favour short episodes.
    """
    width = min(count, _BATCH)
    seeds = np.random.SeedSequence(seed).spawn(2 * width)
    actor = actors.kind(self.world)(
        self.programs, [self.world.make_environment(int(s.generate_state(1)[0]))
         for s in seeds[:width]],
        [np.random.default_rng(s) for s in seeds[width:]],
        self.config.rollout_length, [False] * width, greedy)
    missing = [count // width + (w < count % width) for w in range(width)]
    # By row, the arrays of each rollout of its episode, by their names.
    parts: list[list[dict[str, np.ndarray]]] = [[] for _ in range(width)]
    with contextlib.closing(actor):
      while any(missing):
        rollout = actor.play(self.theta)
        arrays = {'states': rollout.observations,
                  'truth': self.world.truth(rollout), 'decisions': None}
        if self.phi is not None:
          _, decisions = self.programs.reward(
              self.phi, rollout.observations, rollout.codes)
          arrays['decisions'] = decisions.numpy()
        for w in range(width):
          steps = int(rollout.mask[:, w].sum())
          parts[w].append({name: values[:steps, w]
                           for name, values in arrays.items()
                           if values is not None})
          if not rollout.ended[w]:
            continue
          last = {'states': rollout.observations[None, steps, w]}
          episode = {name: np.concatenate([part[name] for part in
                                           (*parts[w], last) if name in part])
                     for name in parts[w][0]}
          parts[w] = []
          if missing[w]:
            missing[w] -= 1
            yield played.Episode(rollout.instructions[w], **episode)

  def as_reward_model(self) -> Callable[[Any, Sequence[str]], np.ndarray]:
    """Returns the discriminator as a function, see `load_reward_model`."""
    return _Function(self.world, self.discriminator, self.phi,
                     lambda logits: tf.sigmoid(logits).numpy(), np.float32)

  def as_policy(self) -> Callable[..., np.ndarray]:
    """Returns the policy as a function, see `load_policy`."""

    def actions(output: Any, rng: np.random.Generator | None = None
               ) -> np.ndarray:
      logits = output.logits.numpy()
      if rng is not None:
        logits = logits + rng.gumbel(size=logits.shape)
      return logits.argmax(axis=-1)

    return _Function(self.world, self.policy, self.theta, actions, np.int32)


def load(run_dir: str, step: int | None = None, held_out: bool = False,
         only: str = '', physics: str = '',
         solved_starts: bool | None = None, world: str = '') -> Trained:
  """Loads the networks of a run.

  Args:
    run_dir: The directory of the run.
    step: The step of the checkpoint; None for the newest.
    held_out: Whether to play the instructions that the run held out.
    only: A regular expression that instructions must match.
    physics: A name of `gridlu.world.PHYSICS`; '' for the run's own.
    solved_starts: Whether episodes may begin solved; None as in the run.
    world: The run's --world, which must be named if it is not GridLU, or a
      GridLU task with the same instructions.

  Raises:
    ConfigError or CheckpointError: if this does not fit the run.
    RuntimeError: in a fork of a process that has loaded networks.
  """
  machine.claim_process()
  run_dir = program.clean_path(run_dir)
  config = config_lib.load(os.path.join(run_dir, 'config.json'))
  _check_world(config.world, world, run_dir)
  config = dataclasses.replace(
      config, world=world or config.world, physics=physics or config.physics,
      solved_starts=(
          config.solved_starts if solved_starts is None else solved_starts))
  made = building.make_world(config, held_out, only)
  policy, discriminator = networks.make(
      config.model, made.grammar, made.image_shape, made.num_actions)
  return at(
      Trained(config, made, 0, policy, tf.zeros([0]), discriminator, None,
              programs_lib.Programs(policy, discriminator, made)),
      run_dir, step)


def _check_world(of_run: str, named: str, run_dir: str) -> None:
  """Raises ConfigError if a run's world is code that the user has not named.

  A run may come from others. So nothing is imported only because a config.json
  names it, and no module is looked for in the run's directory.
  """
  if of_run in tasks.TASKS and (not named or named in tasks.TASKS and (
      tasks.find(named).encode == tasks.find(of_run).encode)):
    return
  if named and named != of_run:
    raise config_lib.ConfigError(
        f'--world={named}: {run_dir} was trained on the world {of_run!r}. Name '
        'this one, or leave --world out if it is a GridLU task.')
  if not named:
    raise config_lib.ConfigError(
        f'{run_dir} was trained on the world {of_run!r}, a Python function. '
        'What a run names is not imported until you name it too, because runs '
        'may come from others. If you trust this code, add --world with the '
        "same name (in Python: world='...').")
  inside = os.path.realpath(run_dir)
  for folder in (os.getcwd(), *sys.path):
    place = os.path.realpath(
        os.path.join(folder, *named.partition(':')[0].split('.')))
    if os.path.commonpath([inside, place]) == inside:
      raise config_lib.ConfigError(
          f'--world={named} would be imported from {place}, in the directory '
          'of the run. Start the program in another directory, or move the '
          'module out of there.')


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


def load_reward_model(run_dir: str, step: int | None = None, world: str = ''
                     ) -> Callable[[Any, Sequence[str]], np.ndarray]:
  """Returns the reward model of a run, its discriminator, as a function.

  Arguments and errors are those of `load`, with an error if the run has no
  discriminator.

  Returns:
    A function of images uint8 [N, H, W, 3] and N instructions that returns
    float32 [N], the probabilities D(c, s) that the images show goal states.
    Only this process can call it.
  """
  trained = load(run_dir, step, world=world)
  if trained.phi is None:
    raise checkpoints.CheckpointError(
        f'{run_dir} has no discriminator: it was trained on the ground truth. '
        'Name the directory of an AGILE run.')
  return trained.as_reward_model()


def load_policy(run_dir: str, step: int | None = None, world: str = ''
               ) -> Callable[..., np.ndarray]:
  """Returns the policy of a run as a function; see `load`.

  Returns:
    A function of images uint8 [N, H, W, 3], N instructions and an optional
    np.random.Generator that returns actions int32 [N]. With the generator it
    samples them; without, it takes the likeliest ones.
  """
  return load(run_dir, step, world=world).as_policy()
