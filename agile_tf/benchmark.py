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

from collections.abc import Sequence
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import resource
import subprocess
import sys
import time
import traceback
from typing import Any, TYPE_CHECKING

from absl import flags
import numpy as np
import tqdm

from agile_tf import config as config_lib
from agile_tf.speed import parts
from agile_tf.training import machine
from agile_tf.training import threads
from gridlu import program

# What needs TensorFlow is imported where it is used, after the flags are read.
if TYPE_CHECKING:
  from agile_tf.training import trainer as trainer_lib

# What one environment step costs. Of a state in MFLOP: a 5x5 layer from 64 to
# 64 channels 1.84 by plain convolution and 0.40 by minimal filtering, whose
# transforms are 0.054 each; the stem 0.76. So the policy's seven layers cost
# 13.7 or 4.2 forward, the reward model's five 3.2, and backward they are 8.2
# and 6.0. Acting, the reward and the gradient, which takes acting's outputs and
# computes only the last of 16 states forward:
ACTING_MFLOP = 4.2
POLICY_MFLOP = 16
# Acting in batches of fewer than five is by plain convolution.
FILTERED_ROWS = 5
ALONE_POLICY_MFLOP = 26
# An update of the discriminator rates 640 states and trains on 256 of them; one
# every 225 steps, with the 15 steps that its worker makes, adds 17.
DISCRIMINATOR_MFLOP = 17
UPDATE_MFLOP = 3600
ITERATION_MFLOP = 3800
# All leave out that each program transforms its kernels (7.2 for W_m): 3 % of
# what a thread of five workers does, 6 % of a thread of one.

# How often a checkout and this one are measured in turn, and what of.
_PAIRS = 5
_KINDS = ('steps_per_second', 'milliseconds', 'gflops')


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


def compiled_rollouts(
    seconds: float, settings: parts.Settings) -> dict[str, float]:
  """Plays 15 workers' rollouts, acting included, and learns nothing."""
  trainer = _trainer(reward='environment', policy_threads=1, **settings)
  actor, theta = trainer.policy_workers[0].actor, trainer.policy.snapshot()
  return {'steps_per_second': 225 * parts.repeat(
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


def _policy_side(threads: int) -> parts.Measure:
  return lambda seconds, settings: _drive(
      _trainer(reward='frozen', reward_model='itself', policy_threads=threads,
               **settings), seconds)


def _whole_training(threads: int) -> parts.Measure:
  return lambda seconds, settings: _drive(
      _trainer(policy_threads=threads, **settings), seconds)


def discriminator_iteration(
    seconds: float, settings: parts.Settings) -> dict[str, float]:
  """Times the discriminator's worker: 15 steps, 512 rated, 256 trained on."""
  trainer = _trainer(policy_threads=1, **settings)
  worker = trainer.discriminator_worker
  assert worker is not None
  while not worker.iterate().metrics:  # Until B is full enough.
    pass
  return {'milliseconds': 1e3 / parts.repeat(worker.iterate, seconds)}


def discriminator_update(
    seconds: float, settings: parts.Settings) -> dict[str, float]:
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

  return {'milliseconds': 1e3 / parts.repeat(update, seconds)}


def policy_round(seconds: float, settings: parts.Settings) -> dict[str, float]:
  """Times a round of 15 workers in lockstep, from acting to 15 updates."""
  trainer = _trainer(
      reward='frozen', reward_model='itself', policy_threads=1, **settings)
  return {'milliseconds': 1e3 / parts.repeat(
      trainer.policy_workers[0].iterate, seconds)}


_THREADS = {'15 threads': 15, '5 threads': 5, '3 threads': 3, 'lockstep': 1}


def _policy_mflop(threads: int) -> int:
  return (POLICY_MFLOP if 15 // threads >= FILTERED_ROWS
          else ALONE_POLICY_MFLOP)


# Name, what is measured, and the cost in MFLOP that gives its ceiling.
MEASUREMENTS: dict[str, tuple[parts.Measure, float | None]] = {
    'matrix product': (parts.matrix_product, None),
    'dm_env steps': (parts.environment_steps, None),
    '1,024 boards': (parts.vectorized_steps(images=False), None),
    '1,024 boards, images': (parts.vectorized_steps(images=True), None),
    'compiled rollouts': (compiled_rollouts, ACTING_MFLOP),
    'round of 15 workers': (policy_round, 225 * POLICY_MFLOP),
    'round as one program': (parts.one_round, 225 * POLICY_MFLOP),
    'policy update': (parts.policy_update, None),
    'discriminator iteration': (discriminator_iteration, ITERATION_MFLOP),
    'discriminator update': (discriminator_update, UPDATE_MFLOP),
    **{f'policy side, {name}': (_policy_side(threads), _policy_mflop(threads))
       for name, threads in _THREADS.items()},
    **{f'training, {name}': (
        _whole_training(threads), _policy_mflop(threads) + DISCRIMINATOR_MFLOP)
       for name, threads in _THREADS.items()},
}


def _in_process(name: str, seconds: float, settings: parts.Settings,
                pipe: multiprocessing.connection.Connection) -> None:
  """Measures one thing in a process that does nothing else."""
  try:
    # Compilation is measured too.
    pipe.send(MEASUREMENTS[name][0](
        seconds, {**settings, 'compilation_cache': False}))
  except BaseException:
    pipe.send(traceback.format_exc())


def measure(names: Sequence[str], seconds: float,
            settings: parts.Settings) -> dict[str, dict[str, float]]:
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
  if settings.get('model') != 'lstm':
    _add_ceilings(results)
  return results


def _add_ceilings(results: dict[str, dict[str, float]]) -> None:
  """Adds what the matrix product's rate allows, and the share reached of it."""
  gflops = results.get('matrix product', {}).get('gflops')
  for name, result in results.items():
    cost = MEASUREMENTS[name][1]
    if not gflops or not cost:
      continue
    if 'milliseconds' in result:
      result['ceiling'] = cost / gflops  # In milliseconds.
      result['share'] = result['ceiling'] / result['milliseconds']
    else:
      result['ceiling'] = 1e3 * gflops / cost
      result['share'] = result['steps_per_second'] / result['ceiling']


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
  checkout = os.path.abspath(checkout)
  if not os.path.exists(os.path.join(checkout, 'agile_tf', 'benchmark.py')):
    raise config_lib.ConfigError(
        f'{checkout} has no agile_tf/benchmark.py: expected the directory of '
        'another checkout of this repository.')
  result = subprocess.run(
      [sys.executable, '-m', 'agile_tf.benchmark', '--json', *arguments],
      cwd=checkout, env=os.environ | {'PYTHONPATH': checkout},
      capture_output=True, text=True, check=False)
  if result.returncode:
    raise config_lib.ConfigError(
        f'{checkout} cannot be measured: {result.stderr[-2000:]}')
  return json.loads(result.stdout)


def compare(names: Sequence[str], checkout: str, seconds: float,
            settings: parts.Settings) -> dict[str, dict[str, float]]:
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


def select(pattern: str, always: Sequence[str] = ('matrix product',)
          ) -> list[str]:
  """Returns the names of what to measure.

  Args:
    pattern: A regular expression, which is to be found in a name.
    always: The names of what is measured in any case.

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
          if found(name) or name in always]


def export(path: str, config: config_lib.Config) -> None:
  """Writes the compiled round of a configuration as a serialized HLO module.

  Raises:
    ConfigError: if the file cannot be written.
  """
  try:
    with open(path, 'wb') as file:
      program, arguments = parts.compiled_round(config)
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
      values.only, always=() if values.against else ('matrix product',))
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


def start() -> None:
  """Starts the program."""
  program.run(main, define_flags)


if __name__ == '__main__':
  start()
