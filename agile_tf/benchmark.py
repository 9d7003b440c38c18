"""Measures how fast everything is on this machine.

  python -m agile_tf.benchmark
  python -m agile_tf.benchmark --only='training' --json
  python -m agile_tf.benchmark --only='training' --against=../before

Each line is measured in a process of its own, one after another. A matrix
product is timed too: its FLOP/s, divided by the FLOPs of a step, are the
ceiling in steps/s. The share of the ceiling is the share of the
machine's product rate that a path reaches in the arithmetic that it does.

--against measures another checkout in turn with this one, through its own
command line. On a machine with other work only such ratios mean something.
"""

from collections.abc import Callable, Sequence
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import resource
import socket
import subprocess
import sys
import time
import traceback
from typing import Any, TYPE_CHECKING

from absl import flags
import numpy as np
import tqdm

from agile_tf import config as config_lib
from agile_tf.training import machine
from agile_tf.training import saturation
from agile_tf.training import threads
import gridlu
from gridlu import program
from gridlu import vectorized

# What needs TensorFlow is imported where it is used, after the flags are read.
# pylint: disable=g-import-not-at-top
if TYPE_CHECKING:
  from agile_tf.training import trainer as trainer_lib

# What one environment step costs. Of a state in MFLOP: a 5x5 layer from 64 to
# 64 channels 1.84 by plain convolution and 0.40 by minimal filtering, whose
# transforms are 0.054 each; the stem 0.76. So the policy's seven layers cost
# 13.7 or 4.2 forward, the reward model's five 3.2, and backward they are 8.2
# and 6.0. Acting, the gradient of 16 states for 15 steps and the reward:
POLICY_MFLOP = 16
# Acting in batches of fewer than five is by plain convolution.
ALONE_POLICY_MFLOP = 26
# An update of the discriminator rates 640 states and trains on 256 of them; one
# every 225 steps, with the 15 steps that its worker makes, adds 17.
DISCRIMINATOR_MFLOP = 17
UPDATE_MFLOP = 3600

# The network and TensorFlow's thread pools, as `Config` names them.
_Settings = dict[str, Any]
# From the seconds to measure for to what was measured.
_Measure = Callable[[float, _Settings], dict[str, float]]


# How often a checkout and this one are measured in turn, and what of.
_PAIRS = 5
_KINDS = ('steps_per_second', 'milliseconds', 'gflops')


def _repeat(function: Callable[[], Any], seconds: float) -> float:
  """Calls a function for a while, after two warm-ups; returns calls/s."""
  function()
  function()  # The first time half of the workers sit out.
  calls, start = 0, time.perf_counter()
  while time.perf_counter() - start < seconds:
    function()
    calls += 1
  return calls / (time.perf_counter() - start)


def matrix_product(seconds: float, settings: _Settings) -> dict[str, float]:
  """Times a 2048 x 2048 float32 product on the default device."""
  machine.prepare(config_lib.Config(**settings))
  tf = machine.import_tensorflow()
  size = 2048
  x = tf.random.normal([size, size])
  rate = _repeat(lambda: tf.linalg.matmul(x, x)[0, 0].numpy(), seconds)
  return {'gflops': 2e-9 * size**3 * rate}


def environment_steps(seconds: float, settings: _Settings) -> dict[str, float]:
  """Steps one dm_env environment, images included."""
  del settings  # Plain NumPy.
  environment = gridlu.GridLU(seed=0)
  actions = np.random.default_rng(0).integers(6, size=1000)

  def play():
    for action in actions:
      if environment.step(action).last():
        environment.reset()

  environment.reset()
  return {'steps_per_second': len(actions) * _repeat(play, seconds)}


def _vectorized_steps(images: bool) -> '_Measure':
  """Makes the measurement of 1,024 boards at once in NumPy, on one core."""
  def vectorized_steps(seconds: float, settings: _Settings) -> dict[str, float]:
    del settings  # Plain NumPy.
    boards = vectorized.VectorGridLU(1024, seed=0, images=images)
    actions = np.random.default_rng(0).integers(6, size=[30, 1024])
    boards.reset()

    def play():
      for action in actions:
        boards.step(action)

    return {'steps_per_second': actions.size * _repeat(play, seconds)}

  return vectorized_steps


def _trainer(**changes: Any) -> 'trainer_lib.Trainer':
  config = config_lib.Config(
      dataset_size=4096, run_dir='unused', **changes)
  machine.prepare(config)
  from agile_tf.training import trainer as trainer_lib
  frozen = None
  if config.reward == 'frozen':
    frozen = trainer_lib.Trainer(
        config_lib.Config(dataset_size=16, policy_threads=1,
                          model=config.model)).checkpoint()
  return trainer_lib.Trainer(config, frozen)


def compiled_rollouts(seconds: float, settings: _Settings) -> dict[str, float]:
  """Plays 15 workers' rollouts, acting included, and learns nothing."""
  trainer = _trainer(reward='environment', policy_threads=1, **settings)
  actor, theta = trainer.policy_workers[0].actor, trainer.policy.snapshot()
  return {'steps_per_second': 225 * _repeat(
      lambda: actor.play(theta), seconds)}


def _drive(trainer: 'trainer_lib.Trainer', seconds: float) -> dict[str, float]:
  """Trains until everything is compiled, and then for a while longer."""
  schedule = trainer.schedule
  built = time.perf_counter()
  first: list[float] = []
  start: list[tuple[float, int]] = []

  def tick():
    now = time.perf_counter()
    if schedule.steps and not first:
      first.append(now)
    warm = schedule.steps >= 900 and (
        trainer.discriminator_worker is None or
        trainer.discriminator_updates > 1)
    if warm and not start:
      start.append((now, schedule.steps))
    if start and now - start[0][0] > seconds:
      start.append((now, schedule.steps))
      schedule.stop()

  threads.drive(trainer, tick)
  (begin, before), (end, after) = start[0], start[-1]
  return {
      'steps_per_second': (after - before) / (end - begin),
      'compile_seconds': first[0] - built,
      'peak_gigabytes': 1e-6 * resource.getrusage(
          resource.RUSAGE_SELF).ru_maxrss,
  }


def _policy_side(threads: int) -> _Measure:
  return lambda seconds, settings: _drive(
      _trainer(reward='frozen', reward_model='itself', policy_threads=threads,
               **settings), seconds)


def _whole_training(threads: int) -> _Measure:
  return lambda seconds, settings: _drive(
      _trainer(policy_threads=threads, **settings), seconds)


def discriminator_iteration(
    seconds: float, settings: _Settings) -> dict[str, float]:
  """Times the discriminator's worker: 15 steps, 512 rated, 256 trained on."""
  trainer = _trainer(policy_threads=1, **settings)
  worker = trainer.discriminator_worker
  assert worker is not None
  while not worker.iterate().metrics:  # Until B is full enough.
    pass
  return {'milliseconds': 1e3 / _repeat(worker.iterate, seconds)}


def discriminator_update(
    seconds: float, settings: _Settings) -> dict[str, float]:
  """Times the discriminator's gradient and update by themselves."""
  trainer = _trainer(policy_threads=1, **settings)
  from agile_tf.agent import gradients as gradients_lib
  from agile_tf.agent import signatures
  from agile_tf.training import building
  discriminator = trainer.discriminator
  assert discriminator is not None
  config = config_lib.Config(**settings)
  goals = building.make_goal_examples(
      config_lib.Config(dataset_size=4096, **settings), trainer.world).sample(
          np.random.default_rng(0), config.batch_size // 2)
  count = round(config.batch_size / (2 * config.anticipated_negative_rate))
  candidates = signatures.Pairs(*(
      np.resize(x, [count, *x.shape[1:]]) for x in goals))
  program = gradients_lib.discriminator_gradients_program(
      building.make_networks(config, trainer.world)[1], trainer.world)

  def update():
    gradient, _ = program(
        discriminator.snapshot(), goals, candidates, np.int32(count))
    discriminator.apply(gradient).numpy()

  return {'milliseconds': 1e3 / _repeat(update, seconds)}


def policy_round(seconds: float, settings: _Settings) -> dict[str, float]:
  """Times a round of 15 workers in lockstep, from acting to 15 updates."""
  trainer = _trainer(
      reward='frozen', reward_model='itself', policy_threads=1, **settings)
  return {'milliseconds': 1e3 / _repeat(
      trainer.policy_workers[0].iterate, seconds)}


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
      building.policy_updates(config))
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


def one_round(seconds: float, settings: _Settings) -> dict[str, float]:
  """Times that program."""
  config = config_lib.Config(**settings)
  machine.prepare(config)
  program, arguments = compiled_round(config)
  start = time.perf_counter()
  program(*arguments)
  compiled = time.perf_counter() - start
  return {
      'milliseconds': 1e3 / _repeat(
          lambda: program(*arguments).norms.numpy(), seconds),
      'compile_seconds': compiled}


def _serve(address: str) -> None:
  """Runs a server until the process is killed."""
  import tensorflow as tf
  tf.distribute.Server({'worker': [address]}).join()


def remote_rollout(seconds: float, settings: _Settings) -> dict[str, float]:
  """Measures what a rollout of 5 workers on a server costs the chief.

  The programs there have the arguments and results of the real ones, and
  compute nothing. So nearly all of the time is that of the chief's processor.
  """
  width, config = 5, config_lib.Config(**settings)
  machine.prepare(config)
  import tensorflow as tf

  from agile_tf.agent import optimizers
  from agile_tf.training import building
  from agile_tf.training import remote
  with socket.socket() as listener:
    listener.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{listener.getsockname()[1]}'
  process = multiprocessing.get_context('spawn').Process(
      target=_serve, args=(address,), daemon=True)
  process.start()
  world = building.make_world(config)
  policy, discriminator = (
      optimizers.SharedParameters(network.layout, network.initial(0), updates)
      for network, updates in zip(
          building.make_networks(config, world),
          (building.policy_updates(config),
           building.discriminator_updates(config))))
  shape = [config.rollout_length, width]
  observations = np.zeros([width, *world.observation_shape], np.uint8)
  codes = np.zeros([width, len(world.grammar.slots)], np.int32)
  gumbel = np.zeros([*shape, world.num_actions], np.float32)
  mask = np.ones(shape, np.float32)

  @tf.function(autograph=False)
  def play(theta, observations, codes, truth_codes, gumbel, mask):
    states = tf.tile(
        observations[None], [mask.shape[0] + 1] + [1] * len(observations.shape))
    return (states, tf.argmax(gumbel, -1, output_type=tf.int32), mask > 0,
            (theta,))

  @tf.function(autograph=False)
  def reward(phi, observations, codes):
    return phi[0] * mask, mask > 0

  @tf.function(autograph=False)
  def gradients(theta, observations, codes, actions, rewards, discounts, mask,
                results, replayed):
    return [theta * float(w) for w in range(width)], {'loss': rewards[0]}

  device = remote.RemoteDevice(
      'the server', f'grpc://{address}',
      '/job:worker/replica:0/task:0/device:CPU:0', 600.0)

  def rollout():
    states, actions, _, results = device.play(
        play, policy.snapshot(), observations, codes, codes, gumbel, mask)
    states = states.numpy()
    device.reward(reward, discriminator.snapshot(), states, codes)
    found, _ = device.gradients(
        gradients, policy.snapshot(), states, codes, actions.numpy(), mask,
        mask, mask, results, None)
    policy.apply(*found).numpy()

  try:
    rollout()
    device.sent = device.received = 0
    rollout()
    transferred = device.sent + device.received
    start = time.process_time()
    rate = _repeat(rollout, seconds)
    calls = round(rate * seconds) + 2
    return {
        'milliseconds': 1e3 * (time.process_time() - start) / calls,
        'bytes': transferred, 'steps': width * config.rollout_length}
  finally:
    process.kill()


def policy_update(seconds: float, settings: _Settings) -> dict[str, float]:
  """Times one update of the policy by itself."""
  config = config_lib.Config(**settings)
  machine.prepare(config)
  from agile_tf.agent import optimizers
  from agile_tf.training import building
  network, _ = building.make_networks(config, building.make_world(config))
  policy = optimizers.SharedParameters(
      network.layout, network.initial(0), building.policy_updates(config))
  gradient = 1e-6 * policy.snapshot()
  return {'milliseconds': 1e3 / _repeat(
      lambda: policy.apply(gradient).numpy(), seconds)}


_THREADS = {'15 threads': 15, '5 threads': 5, '3 threads': 3, 'lockstep': 1}


def _policy_mflop(threads: int) -> int:
  return POLICY_MFLOP if threads <= 3 else ALONE_POLICY_MFLOP


# Name, what is measured, and the cost in MFLOP that gives its ceiling.
MEASUREMENTS: dict[str, tuple[_Measure, int | None]] = {
    'matrix product': (matrix_product, None),
    'dm_env steps': (environment_steps, None),
    '1,024 boards': (_vectorized_steps(images=False), None),
    '1,024 boards, images': (_vectorized_steps(images=True), None),
    'compiled rollouts': (compiled_rollouts, None),
    'round of 15 workers': (policy_round, None),
    'round as one program': (one_round, None),
    'policy update': (policy_update, None),
    'remote rollout, 5 workers': (remote_rollout, None),
    'discriminator iteration': (discriminator_iteration, None),
    'discriminator update': (discriminator_update, UPDATE_MFLOP),
    **{f'policy side, {name}': (_policy_side(threads), _policy_mflop(threads))
       for name, threads in _THREADS.items()},
    **{f'training, {name}': (
        _whole_training(threads), _policy_mflop(threads) + DISCRIMINATOR_MFLOP)
       for name, threads in _THREADS.items()},
}


def _in_process(name: str, seconds: float, settings: _Settings,
                pipe: multiprocessing.connection.Connection) -> None:
  """Measures one thing in a process that does nothing else."""
  try:
    # Compilation is measured too.
    pipe.send(MEASUREMENTS[name][0](
        seconds, {**settings, 'compilation_cache': False}))
  except BaseException:
    pipe.send(traceback.format_exc())


def measure(names: Sequence[str], seconds: float,
            settings: _Settings) -> dict[str, dict[str, float]]:
  """Measures what is named.

  Args:
    names: Keys of `MEASUREMENTS`.
    seconds: How long, for each after it has been compiled.
    settings: The network and TensorFlow's thread pools, as `Config` names
      them.

  Raises:
    RuntimeError: if a measurement fails; with its traceback.
  """
  context = multiprocessing.get_context('spawn')
  results = {}
  for name in (bar := tqdm.tqdm(names, leave=False)):
    bar.set_description(name)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_in_process, args=(name, seconds, settings, sender))
    process.start()
    sender.close()
    try:
      result = receiver.recv()
    except EOFError:
      result = 'its process died.'
    process.join()
    if isinstance(result, str):
      raise RuntimeError(f'{name}: {result}')
    results[name] = result
  gflops = results.get('matrix product', {}).get('gflops')
  for name, result in results.items():
    cost = MEASUREMENTS[name][1]
    if gflops and cost and settings.get('model') != 'lstm':
      if 'milliseconds' in result:
        result['ceiling'] = cost / gflops  # In milliseconds.
        result['share'] = result['ceiling'] / result['milliseconds']
      else:
        result['ceiling'] = 1e3 * gflops / cost
        result['share'] = result['steps_per_second'] / result['ceiling']
  return results


def table(results: dict[str, dict[str, float]]) -> str:
  """Formats the results for people."""
  lines = [f'{"":26} {"":>22} {"of ceiling":>11} {"compile":>8} {"memory":>8}']
  for name, result in results.items():
    value = (
        f'{result["gflops"]:.0f} GFLOP/s' if 'gflops' in result else
        f'{result["milliseconds"]:.1f} ms' if 'milliseconds' in result else
        f'{result["steps_per_second"]:,.0f} steps/s')
    share = f'{result["share"]:.0%}' if 'share' in result else ''
    compiled = (
        f'{result["compile_seconds"]:.0f} s' if 'compile_seconds' in result
        else '')
    memory = (
        f'{result["peak_gigabytes"]:.1f} GB' if 'peak_gigabytes' in result
        else '')
    lines.append(
        f'{name:26} {value:>22} {share:>11} {compiled:>8} {memory:>8}')
  return '\n'.join(lines)


def _measure_checkout(checkout: str, arguments: Sequence[str]
                     ) -> dict[str, dict[str, float]]:
  """Measures by a checkout's own command line."""
  result = subprocess.run(
      [sys.executable, '-m', 'agile_tf.benchmark', '--json', *arguments],
      cwd=checkout, env=os.environ | {'PYTHONPATH': checkout},
      capture_output=True, text=True, check=False)
  if result.returncode:
    raise config_lib.ConfigError(
        f'{checkout} cannot be measured: {result.stderr[-2000:]}')
  return json.loads(result.stdout)


def compare(names: Sequence[str], checkout: str, seconds: float,
            settings: _Settings) -> dict[str, dict[str, float]]:
  """Measures another checkout and this one in turn, five times each.

  Args:
    names: Of what to measure.
    checkout: A folder with an `agile_tf` that has a benchmark.
    seconds: As for `measure`.
    settings: As for `measure`.

  Returns:
    For each name the medians 'before' (the checkout's) and 'after' (this
    one's), and 'ratio', the median of the pairs' ratios, how many times as fast
    this one is.

  Raises:
    ConfigError: if a checkout cannot be measured.
  """
  here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
  there = os.path.abspath(checkout)
  results = {}
  for name in (bar := tqdm.tqdm(names, leave=False)):
    bar.set_description(name)
    arguments = [f'--only=^{re.escape(name)}$', f'--seconds={seconds}'] + [
        f'--{key}={value}' for key, value in settings.items()]
    pairs = []
    for _ in range(_PAIRS):
      pair = []
      for each in (there, here):
        result = _measure_checkout(each, arguments)[name]
        pair.append(next(
            result[kind] for kind in _KINDS if kind in result))
      pairs.append(pair)
    before, after = np.median(pairs, axis=0)
    ratios = [new / old for old, new in pairs]
    if 'milliseconds' in result:
      ratios = [1 / ratio for ratio in ratios]
    results[name] = {
        'before': float(before), 'after': float(after),
        'ratio': float(np.median(ratios))}
  return results


def comparison_table(results: dict[str, dict[str, float]]) -> str:
  """Formats what `compare` returns for people."""
  lines = [f'{"":26} {"before":>12} {"after":>12} {"times as fast":>14}']
  lines += [
      f'{name:26} {result["before"]:12,.1f} {result["after"]:12,.1f} '
      f'{result["ratio"]:14.2f}' for name, result in results.items()]
  return '\n'.join(lines)


def select(pattern: str) -> list[str]:
  """Returns the names of what to measure; the matrix product is among them.

  Raises:
    ConfigError: if the pattern is no regular expression, or found in no name.
  """
  try:
    found = re.compile(pattern).search
  except re.error as error:
    raise config_lib.ConfigError(
        f'--only={pattern} is not a regular expression: {error}.') from error
  if not any(map(found, MEASUREMENTS)):
    raise config_lib.ConfigError(
        f'--only={pattern} is found in none of: {", ".join(MEASUREMENTS)}.')
  return [name for name in MEASUREMENTS
          if found(name) or name == 'matrix product']


def export(path: str, config: config_lib.Config) -> None:
  """Writes the compiled round of a configuration as a serialized HLO module.

  Raises:
    ConfigError: if the file cannot be written.
  """
  try:
    with open(path, 'wb') as file:
      program, arguments = compiled_round(config)
      file.write(program.experimental_get_compiler_ir(*arguments)(
          stage='hlo_serialized'))
  except OSError as error:
    raise config_lib.ConfigError(
        f'--export={path} cannot be written: {error}.') from error


def define_flags() -> None:
  """Defines the program's flags."""
  flags.DEFINE_float(
      'seconds', 20.0, 'How long to measure each thing.', lower_bound=0.1)
  flags.DEFINE_string(
      'only', '', 'Measure only what this regular expression is found in (and '
      'the matrix product).')
  flags.DEFINE_string(
      'against', '', 'Another checkout of this repository: measure both in '
      'turn, five times each, and print how many times as fast this one is.')
  flags.DEFINE_float(
      'device_milliseconds', 0.0, 'Print the speed of clusters of 1 to 64 '
      'servers whose devices need this time for a rollout of 5 policy workers, '
      'by a simulation with the measured "remote rollout".', lower_bound=0)
  flags.DEFINE_bool('json', False, 'Print JSON instead of a table.')
  flags.DEFINE_string(
      'export', '', 'Measure nothing; write a round of training to this file, '
      'as a serialized XLA HLO module.')
  flags.DEFINE_enum(
      'model', 'nmn', ('nmn', 'lstm'), 'As for agile_tf.launch. There are '
      'ceilings for "nmn" alone.')
  flags.DEFINE_integer(
      'intra_op_threads', 0, 'As for agile_tf.launch.', lower_bound=0)
  flags.DEFINE_integer(
      'inter_op_threads', 0, 'As for agile_tf.launch.', lower_bound=0)


@program.main()
def main(argv: Sequence[str]) -> None:
  """Measures and prints."""
  del argv
  values = flags.FLAGS
  if values.export:
    export(values.export, config_lib.Config(model=values.model))
    return
  names = select(
      '^remote rollout' if values.device_milliseconds else values.only)
  settings = {
      name: getattr(values, name)
      for name in ('model', 'intra_op_threads', 'inter_op_threads')}
  if values.against:
    comparison = compare(names, values.against, values.seconds, settings)
    print(json.dumps(comparison, indent=2) if values.json
          else comparison_table(comparison))
    return
  results = measure(names, values.seconds, settings)
  print(json.dumps(results, indent=2) if values.json else table(results))
  if values.device_milliseconds:
    chief = results['remote rollout, 5 workers']
    print(saturation.table(saturation.Inputs(
        1e-3 * values.device_milliseconds, 1e-3 * chief['milliseconds'],
        chief['bytes'], chief['steps'])))


def start() -> None:
  """Starts the program."""
  program.run(main, define_flags)


if __name__ == '__main__':
  start()
