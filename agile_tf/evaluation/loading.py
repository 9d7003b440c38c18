"""Loads what a run has learned as functions, with or without TensorFlow."""

from collections.abc import Callable, Sequence
import functools
import os
from typing import Any

import numpy as np

from agile_tf import code_checks
from agile_tf import config as config_lib
from agile_tf import numpy_networks
from agile_tf.evaluation import functions
from agile_tf.recipe import settings
from agile_tf.training import checkpoints
from agile_tf.training import machine
from agile_tf.training import reward_models
from gridlu import archives
from gridlu import language
from gridlu import program
from gridlu import rendering
from gridlu import tasks
from gridlu import world as world_lib

BACKENDS = ('tensorflow', 'numpy')

# Such a function makes the tree of an instruction's text.
_ToTree = Callable[[str], numpy_networks.Tree]


def load_reward_model(
    run_dir: str | os.PathLike, step: int | None = None, world: str = '',
    backend: str = 'tensorflow', model: str | Callable[[Any], Any] = '',
    parse: reward_models.Parse | None = None
) -> Callable[[Any, Sequence[str]], np.ndarray]:
  """Returns the reward model of a run, its discriminator, as a function.

  Args:
    run_dir: The directory of the run, or a reward model directory, such as
      `RewardLearner.save` writes and an exported run contains.
    step: The step of the run's checkpoint; None for the newest.
    world: The run's --world, which must be named if it is not GridLU.
    backend: What computes it. 'tensorflow' is faster for many images at a
      time, and only this process can call it. 'numpy' imports no TensorFlow
      for a run on GridLU; processes may be forked from this one, and the
      function may be pickled. Probabilities agree to 1e-4. It has the paper's
      networks alone.
    model: For a run, its --model, which must be named if it is a user's own.
      For a reward model directory with networks of your own, the function
      itself that makes them, such as `agile_tf.overlapping.make`.
    parse: The parser of a reward model directory, if it is one of your own.

  Returns:
    A function of images uint8 [N, H, W, 3] and N instructions that returns
    float32 [N], the probabilities D(c, s) that the images show goal states.

  Raises:
    ConfigError or CheckpointError: if this does not fit the run, or it has no
      discriminator.
    RuntimeError: by 'tensorflow' in a fork of a process that uses TensorFlow.
  """
  tensorflow = _is_tensorflow(backend)
  run_dir = program.clean_path(program.path_text('run_dir', run_dir))
  if reward_models.is_one(run_dir):
    if step is not None or world:
      raise checkpoints.CheckpointError(
          f'{run_dir} is a reward model, not a run: leave step and world out.')
    if tensorflow:
      return _trained().reward_model(run_dir, parse, model or None)
    return functions.reward_model(
        *_numpy_reward_model(run_dir, parse, model or None))
  if callable(model):
    raise config_lib.ConfigError(
        f'model is {model!r:.100}, and {run_dir} is a run: give the name that '
        "its --model had, such as 'package.module:function'.")
  if parse is not None:
    raise config_lib.ConfigError(
        f'{run_dir} is a run, which has the parser of its world: leave parse '
        'out, and name the world if it is not GridLU.')
  if tensorflow:
    loaded = _trained().load(run_dir, step, world=world, model=model)
    _check_discriminator(loaded.phi is not None, run_dir)
    return loaded.as_reward_model()
  return functions.reward_model(*_numpy_network(
      'discriminator', run_dir, step, world, model))


def load_policy(
    run_dir: str | os.PathLike, step: int | None = None, world: str = '',
    seed: int | None = None, greedy: bool = False,
    backend: str = 'tensorflow', model: str = ''
) -> Callable[[Any, Sequence[str]], np.ndarray]:
  """Returns the policy of a run as a function.

  It samples its actions, as in training. The likeliest actions succeed less
  often, because they can repeat for ever: the trained agent of the package
  succeeded in 86.2 % of 600 episodes with them, in 91.8 % with samples.

  Args:
    run_dir: The directory of the run.
    step: The step of the run's checkpoint; None for the newest.
    world: The run's --world, which must be named if it is not GridLU.
    seed: The seed of the samples; None for another one each time.
    greedy: Whether to take the likeliest actions instead.
    backend: What computes it, as for `load_reward_model`. With 'numpy', a copy
      of the function in another process draws the same samples.
    model: The run's --model, which must be named if it is a user's own.

  Returns:
    A function of images uint8 [N, H, W, 3] and N instructions that returns
    actions int32 [N].
  """
  tensorflow = _is_tensorflow(backend)
  run_dir = program.clean_path(program.path_text('run_dir', run_dir))
  if tensorflow:
    return _trained().load(
        run_dir, step, world=world, model=model).as_policy(seed, greedy)
  return functions.policy(
      *_numpy_network('policy', run_dir, step, world, model), seed, greedy)


def _is_tensorflow(backend: str) -> bool:
  """Returns whether a backend is TensorFlow; ValueError if it is none."""
  if backend not in BACKENDS:
    raise ValueError(
        f'backend is {backend!r}: expected one of {", ".join(BACKENDS)}.')
  return backend == 'tensorflow'


def _trained() -> Any:
  """Imports TensorFlow, and returns the module that loads networks with it."""
  machine.import_tensorflow()
  from agile_tf.evaluation import trained
  return trained


def _check_discriminator(exists: bool, run_dir: str | os.PathLike) -> None:
  if not exists:
    raise checkpoints.CheckpointError(
        f'{run_dir} has no discriminator: it was trained on the ground truth. '
        'Name the directory of an AGILE run.')


class _NumpyNetwork:
  """A network of `numpy_networks` as a function of images and texts."""

  def __init__(self, kind: str, parameters: numpy_networks.Parameters,
               tokens: Sequence[str], to_tree: _ToTree):
    self._kind = kind
    self._parameters = parameters
    self._tokens = tokens
    self._to_tree = to_tree

  def __call__(self, images: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    inputs = (self._parameters, self._tokens, images,
              [self._to_tree(str(text)) for text in texts])
    if self._kind == 'policy':
      return numpy_networks.policy(*inputs).logits
    return numpy_networks.discriminator(*inputs)


def _numpy_reward_model(directory: str | os.PathLike,
                        parse: reward_models.Parse | None, given: Any
                       ) -> tuple[_NumpyNetwork, Sequence[int]]:
  """Loads a reward model directory, and the shape of its images."""
  model = reward_models.load(directory, parse)
  if model.network not in reward_models.NETWORKS:
    raise config_lib.ConfigError(
        f'{directory} has a network that {model.network!r} made; '
        "backend='numpy' computes the networks of "
        f'{", ".join(reward_models.NETWORKS)} alone. Load it with '
        'agile_tf.load_reward_model(directory, model=...), where model is that '
        'function.')
  network = reward_models.network(model, given, directory)
  tokens = model.grammar.tokens
  shapes = numpy_networks.shapes(
      network, 'discriminator', len(tokens), num_actions=0)
  reward_models.check_parameters(
      model, {f'discriminator/{name}': shape for name, shape in shapes.items()},
      directory)
  parameters = {name.removeprefix('discriminator/'): value
                for name, value in model.parameters.items()}
  return _NumpyNetwork('discriminator', parameters, tokens,
                       model.grammar.tree), model.image_shape


def _numpy_network(kind: str, run_dir: str, step: int | None,
                   world: str, model: str
                  ) -> tuple[_NumpyNetwork, Sequence[int]]:
  """Loads the 'policy' or 'discriminator' of a run, and its images' shape."""
  config, _ = settings.load(os.path.join(run_dir, 'config.json'))
  code_checks.check_world(config.world, world, run_dir)
  if config.model not in config_lib.MODELS:
    raise config_lib.ConfigError(
        f'{run_dir} was trained with --model={config.model}; '
        "backend='numpy' computes the networks of "
        f'{", ".join(config_lib.MODELS)} alone. Leave it out.')
  code_checks.check_model(config.model, model, run_dir)
  checkpoint = checkpoints.load(run_dir, step)
  tokens, to_tree, image_shape, num_actions = _inputs(world or config.world)
  checkpoints.check_tokens(checkpoint, tokens)
  found = checkpoint.group(kind)
  if kind == 'discriminator':
    _check_discriminator(bool(found), run_dir)
  else:
    checkpoints.check_actions(checkpoint, num_actions)
  try:
    parameters = {
        name: archives.expect(found, f'{kind}/{name}', np.float32, shape)
        for name, shape in numpy_networks.shapes(
            config.model, kind, len(tokens), num_actions).items()}
  except ValueError as error:
    raise checkpoints.CheckpointError(
        f'{checkpoint.path} does not fit ({error}).') from error
  return _NumpyNetwork(kind, parameters, tokens, to_tree), image_shape


def _inputs(world: str) -> tuple[Sequence[str], _ToTree, Sequence[int], int]:
  """Returns what the networks of a world need to know.

  These are its tokens, what makes the tree of a text, the shape of images, and
  the number of actions.
  """
  if world in tasks.TASKS:
    shape = (rendering.IMAGE_SIZE, rendering.IMAGE_SIZE, 3)
    return tasks.find(world).tokens, _tree, shape, world_lib.NUM_POLICY_ACTIONS
  machine.import_tensorflow()  # A world of one's own imports TensorFlow anyway.
  from agile_tf import worlds
  made = worlds.load(world)
  return (made.grammar.tokens, made.grammar.tree, made.image_shape,
          made.num_actions)


@functools.lru_cache(maxsize=1024)
def _tree(text: str) -> numpy_networks.Tree:
  return language.tree(text)
