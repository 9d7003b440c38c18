"""Measurements of single parts; those of whole runs are in the benchmark.

A measurement takes the seconds to measure for and some settings, and returns
what it has measured by name: 'steps_per_second', 'milliseconds' or 'gflops',
and more. It needs a process that does nothing else.
"""

from collections.abc import Callable
import time
from typing import Any

import numpy as np

from agile_tf import config as config_lib
from agile_tf.training import machine
import gridlu
from gridlu import vectorized

# What needs TensorFlow is imported where it is used, so that a program that
# lists the measurements starts at once.

# The network and TensorFlow's thread pools, as `Config` names them.
Settings = dict[str, Any]
# From the seconds to measure for to what was measured.
Measure = Callable[[float, Settings], dict[str, float]]


def repeat(function: Callable[[], Any], seconds: float) -> float:
  """Calls a function for a while, after two warm-ups; returns calls/s."""
  function()
  function()  # The first time half of the workers sit out.
  calls, start = 0, time.perf_counter()
  while time.perf_counter() - start < seconds:
    function()
    calls += 1
  return calls / (time.perf_counter() - start)


def matrix_product(seconds: float, settings: Settings) -> dict[str, float]:
  """Times a 2048 x 2048 float32 product on the default device."""
  machine.prepare(config_lib.Config(**settings))
  tf = machine.import_tensorflow()
  size = 2048
  x = tf.random.normal([size, size])
  rate = repeat(lambda: tf.linalg.matmul(x, x)[0, 0].numpy(), seconds)
  return {'gflops': 2e-9 * size**3 * rate}


def environment_steps(seconds: float, settings: Settings) -> dict[str, float]:
  """Steps one dm_env environment, images included."""
  del settings  # Plain NumPy.
  environment = gridlu.GridLU(seed=0)
  actions = np.random.default_rng(0).integers(6, size=1000)

  def play():
    for action in actions:
      if environment.step(action).last():
        environment.reset()

  environment.reset()
  return {'steps_per_second': len(actions) * repeat(play, seconds)}


def vectorized_steps(images: bool) -> Measure:
  """Makes the measurement of 1,024 boards at once in NumPy, on one core."""
  def measure(seconds: float, settings: Settings) -> dict[str, float]:
    del settings  # Plain NumPy.
    boards = vectorized.VectorGridLU(1024, seed=0, images=images)
    actions = np.random.default_rng(0).integers(6, size=[30, 1024])
    boards.reset()

    def play():
      for action in actions:
        boards.step(action)

    return {'steps_per_second': actions.size * repeat(play, seconds)}

  return measure


def compiled_round(config: config_lib.Config) -> tuple[Any, tuple[Any, ...]]:
  """Makes a round of all policy workers as one program.

  Args:
    config: Of the networks, the losses and the updates.

  Returns:
    The program, a `tf.function` from `export.round_program`, and arguments
    for it.
  """
  tf = machine.import_tensorflow()
  from agile_tf.agent import actors
  from agile_tf.agent import export as export_lib
  from agile_tf.agent import gradients as gradients_lib
  from agile_tf.agent import rewards
  from agile_tf.agent import signatures
  from agile_tf.training import building
  world = building.make_world(config)
  rules = world.compiled
  assert rules is not None
  policy, discriminator = building.make_networks(config, world)
  program = export_lib.round_program(
      actors.play_program(policy, world),
      rewards.modelled_program(
          discriminator, world, config.reward_form, config.reward_scale),
      gradients_lib.policy_gradients_program(
          policy, world, building.policy_loss(config)),
      building.policy_updates(config), config.entropy_weight)
  width, length = config.policy_workers, config.rollout_length
  theta = tf.constant(policy.initial(0))
  environments = [world.make_environment(seed) for seed in range(width)]
  timesteps = [environment.reset() for environment in environments]
  texts = [timestep.observation['instruction'] for timestep in timesteps]
  observations = np.stack([
      world.observe(*pair) for pair in zip(environments, timesteps)])
  codes = world.grammar.encode(texts)
  gumbel = actors.noise(
      [np.random.default_rng(seed) for seed in range(width)], length,
      world.num_actions, greedy=False)
  played = np.ones([length, width])
  replayed = None
  if config.reward_prediction:
    count = config.reward_prediction_batch_size
    replayed = signatures.Replayed(
        np.repeat(codes[:, None], count, 1),
        np.repeat(observations[:, None], count, 1),
        np.arange(width * count).reshape([width, count]) % 2 == 0)
  return program, (
      theta, tf.ones_like(theta), tf.constant(discriminator.initial(0)),
      observations, codes, rules.truth_codes(texts), gumbel, played > 0,
      played.astype(np.float32), replayed)


def one_round(seconds: float, settings: Settings) -> dict[str, float]:
  """Times that program."""
  config = config_lib.Config(**settings)
  machine.prepare(config)
  program, arguments = compiled_round(config)
  start = time.perf_counter()
  program(*arguments)
  compiled = time.perf_counter() - start
  return {
      'milliseconds': 1e3 / repeat(
          lambda: program(*arguments).norms.numpy(), seconds),
      'compile_seconds': compiled}


def policy_update(seconds: float, settings: Settings) -> dict[str, float]:
  """Times one update of the policy by itself."""
  config = config_lib.Config(**settings)
  machine.prepare(config)
  from agile_tf.agent import optimizers
  from agile_tf.training import building
  network, _ = building.make_networks(config, building.make_world(config))
  policy = optimizers.SharedParameters(
      network.layout, network.initial(0), building.policy_updates(config))
  gradient = 1e-6 * policy.snapshot()
  return {'milliseconds': 1e3 / repeat(
      lambda: policy.apply(gradient).numpy(), seconds)}
