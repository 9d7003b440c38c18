"""Measures how fast training is on this machine.

  python -m agile_tf.benchmark
  python -m agile_tf.benchmark --only='training' --against=../before

It takes the flags of agile_tf.launch; --reward=frozen --reward_model=itself
measures the policy's side only. Each line is measured in a process of its own.
Its "share" is the rate of the arithmetic divided by the machine's rate of
matrix products. It counts the arithmetic of relations.flags (without D's
updates if D does not learn), so it is wrong for other networks and ratios.
--against measures another checkout in turn with this one and prints ratios: on
a busy machine only they mean much.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

from absl import flags
import numpy as np
import tqdm

from agile_tf import config as config_lib
from agile_tf import presets
from agile_tf.recipe import settings
from agile_tf.training import machine
from gridlu import program
from gridlu import tasks

Result = dict[str, float]

# What the arithmetic costs with minimal filtering. Of a state in MFLOP: a 5x5
# layer from 64 to 64 channels 0.40, its transforms 0.054 each; the stem 0.76.
# So the policy's seven layers cost 4.2 forward, the reward model's five 3.2,
# and backward 8.2 and 6.0. A policy step is acting, the reward and the
# gradient, which takes acting's outputs and computes only the last of 16 states
# forward. A worker alone in its thread acts by plain convolution. An update of
# the discriminator computes 640 states forward (512 that it rates and 128 goal
# examples) and trains on 256; one every 225 steps, with the 15 steps that its
# worker makes, adds 17 to a step.
_POLICY_MFLOP, _ALONE_POLICY_MFLOP = 16, 26
_DISCRIMINATOR_MFLOP, _ITERATION_MFLOP = 17, 3800

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PAIRS = 5  # How often a checkout and this one are measured in turn.


def _repeat(function: Callable[[], Any], seconds: float) -> float:
  """Calls a function for a while, after two warm-ups; returns calls/s."""
  function()
  function()  # The first time half of the workers sit out.
  calls, start = 0, time.perf_counter()
  while time.perf_counter() - start < seconds:
    function()
    calls += 1
  return calls / (time.perf_counter() - start)


def _trainer(config: config_lib.Config, threads: int) -> Any:
  recipe = config_lib.from_flags(flags.FLAGS, settings.Recipe)
  config = dataclasses.replace(
      config, run_dir='unused', policy_threads=threads, steps=10**11)
  if config.world in tasks.TASKS:
    config = dataclasses.replace(config, dataset_size=4096)
  machine.prepare(config)
  from agile_tf.recipe import builder
  from agile_tf.training import trainer
  frozen = None
  if config.reward == 'frozen':  # A discriminator as it is initialised.
    frozen = trainer.Trainer(builder.make(dataclasses.replace(
        config, reward='discriminator', reward_model=''), recipe)).checkpoint()
  return trainer.Trainer(builder.make(config, recipe), frozen)


def matrix_product(config: config_lib.Config, seconds: float) -> Result:
  """Times a 2048 x 2048 float32 product on the default device."""
  machine.prepare(config)
  tf = machine.import_tensorflow()
  x = tf.random.stateless_normal([2048, 2048], [0, 0])
  rate = _repeat(lambda: tf.linalg.matmul(x, x)[0, 0].numpy(), seconds)
  return {'gflops': 2e-9 * 2048**3 * rate}


def round_parts(config: config_lib.Config, seconds: float) -> Result:
  """Times the parts of a round of 15 workers in lockstep, and the whole."""
  trainer = _trainer(config, threads=1)
  worker, = trainer.policy_workers
  calls: dict[str, list[float]] = {}

  def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
      start = time.perf_counter()
      result = function(*args, **kwargs)
      calls.setdefault(f'{name}_milliseconds', []).append(
          1e3 * (time.perf_counter() - start))
      return result

    return call

  for owner, name in (
      (worker.actor, 'play'), (worker._programs, 'reward'),
      (worker._programs, 'policy_gradients'), (trainer.policy, 'apply')):
    setattr(owner, name, timed(name, getattr(owner, name)))
  rate = _repeat(lambda: worker.iterate(trainer.read()), seconds)
  return {'milliseconds': 1e3 / rate, **{
      name: float(np.median(times)) for name, times in calls.items()}}


def discriminator(config: config_lib.Config, seconds: float) -> Result:
  """Times the discriminator's worker: 15 steps, 512 rated, 256 trained on."""
  trainer = _trainer(config, threads=1)

  def iterate() -> Any:
    return trainer.discriminator_worker.iterate(trainer.read())

  while not iterate().metrics:  # Until B is full enough.
    pass
  return {'milliseconds': 1e3 / _repeat(iterate, seconds)}


def training(num_threads: int, config: config_lib.Config, seconds: float
            ) -> Result:
  """Trains until everything is compiled, and then for a while longer."""
  trainer = _trainer(config, num_threads)
  schedule = trainer.schedule
  seen: list[tuple[float, int]] = []  # When it began and ended to measure.

  def tick() -> None:
    now = time.perf_counter(), schedule.steps
    warm = schedule.steps >= 900 and (
        trainer.discriminator_worker is None or
        trainer._tally.counts['discriminator_updates'] > 1)
    if (len(seen) == 1 and now[0] - seen[0][0] > seconds or
        not seen and warm):
      seen.append(now)
    if len(seen) == 2:
      schedule.stop()

  trainer.drive(tick)
  (begin, before), (end, after) = seen
  return {
      'steps_per_second': (after - before) / (end - begin),
      'peak_gigabytes': 1e-6 * resource.getrusage(
          resource.RUSAGE_SELF).ru_maxrss,
  }


# Name, what is measured, and the cost in MFLOP that gives its ceiling.
MEASUREMENTS: dict[str, tuple[Callable[..., Result], float | None]] = {
    'matrix product': (matrix_product, None),
    'round of 15 workers': (round_parts, 225 * _POLICY_MFLOP),
    'discriminator iteration': (discriminator, _ITERATION_MFLOP),
    **{f'training, {name}': (
        functools.partial(training, threads), _DISCRIMINATOR_MFLOP + policy)
       for name, threads, policy in (
           ('15 threads', 15, _ALONE_POLICY_MFLOP),
           ('5 threads', 5, _POLICY_MFLOP), ('3 threads', 3, _POLICY_MFLOP),
           ('lockstep', 1, _POLICY_MFLOP))},
}


def measure(name: str, arguments: Sequence[str], checkout: str = _HERE
           ) -> Result:
  """Measures one of `MEASUREMENTS` by a checkout's own command line."""
  if not os.path.exists(os.path.join(checkout, 'agile_tf', 'benchmark.py')):
    raise config_lib.ConfigError(
        f'{checkout} has no agile_tf/benchmark.py: expected the directory of '
        'another checkout of this repository.')
  made = subprocess.run(
      [sys.executable, '-P', '-m', 'agile_tf.benchmark', '--json',
       f'--only={name}', *arguments], env=os.environ | {'PYTHONPATH': checkout},
      capture_output=True, text=True, check=False)
  if made.returncode:
    raise config_lib.ConfigError(
        f'{name} of {checkout} cannot be measured: {made.stderr[-2000:]}')
  return json.loads(made.stdout)[name]


def _add_shares(results: dict[str, Result], trains: bool) -> None:
  """Adds the share reached of what the matrix product's rate allows.

  `trains` says whether there is a discriminator to train.
  """
  gflops = results['matrix product']['gflops']
  for name, result in results.items():
    if cost := MEASUREMENTS[name][1]:
      if 'steps_per_second' in result and not trains:
        cost -= _DISCRIMINATOR_MFLOP
      rate = (result['steps_per_second'] if 'steps_per_second' in result else
              1e3 / result['milliseconds'])
      result['share'] = 1e-3 * cost * rate / gflops


def table(results: dict[str, Result]) -> str:
  """Formats the results for people, a line for each number."""
  return '\n'.join(
      f'{name:26} {key:32} {value:12,.{0 if value > 100 else 2}f}'
      for name, result in results.items() for key, value in result.items())


def compare(names: Sequence[str], checkout: str, arguments: Sequence[str]
           ) -> dict[str, Result]:
  """Measures another checkout and this one in turn, five times each.

  Returns for each name the medians 'before' (the other's) and 'after' (this
  one's), and 'ratio', the median of how many times as fast this one is.
  """
  results = {}
  for name in names:
    pairs = [
        [measure(name, arguments, each)
         for each in (os.path.abspath(checkout), _HERE)]
        for _ in range(_PAIRS)]
    kind = next(iter(pairs[0][0]))  # The first one counts.
    before, after = np.array([[result[kind] for result in pair]
                              for pair in pairs]).T
    ratio = before / after if kind == 'milliseconds' else after / before
    results[name] = {key: float(np.median(numbers)) for key, numbers in (
        ('before', before), ('after', after), ('ratio', ratio))}
  return results


def _define_flags() -> None:
  settings.define_flags()
  flags.DEFINE_string('only', '', 'Measure only what has this in its name.')
  flags.DEFINE_float('seconds', 10.0, 'Seconds of each, once it is compiled.',
                     lower_bound=0.1, upper_bound=3600)
  program.define_path('against', '', 'The directory of another checkout.')
  flags.DEFINE_bool('json', False, 'Print JSON instead of a table.')


@program.main(_define_flags, preset=presets.flagfile)
def main() -> None:
  """Measures and prints."""
  values = flags.FLAGS
  config = config_lib.from_flags(values)
  imitates = config_lib.from_flags(values, settings.Recipe).imitation_cost
  known = [name for name in MEASUREMENTS if config.trains_discriminator or
           name != 'discriminator iteration']
  names = [name for name in known if values.only in name]
  if not names:
    raise config_lib.ConfigError(
        f'--only={values.only} is found in none of: {", ".join(known)}.')
  if imitates and any(name.startswith('round') for name in names):
    raise config_lib.ConfigError(
        'A round with --imitation_cost needs what the head start finds out: '
        'give --only=training or --only=discriminator.')
  arguments = [f'--seconds={values.seconds}'] + [
      f'--{field.name}={getattr(values, field.name)}'
      for kind in (config_lib.Config, settings.Recipe)
      for field in dataclasses.fields(kind) if values[field.name].present]
  if values.against:
    results = compare(names, values.against, arguments)
  elif len(names) == 1:
    results = {names[0]: MEASUREMENTS[names[0]][0](config, values.seconds)}
  else:
    names = list(dict.fromkeys(['matrix product', *names]))
    results = {name: measure(name, arguments)
               for name in tqdm.tqdm(names, leave=False)}
    _add_shares(results, config.trains_discriminator)
  print(json.dumps(results, indent=2) if values.json else table(results))


if __name__ == '__main__':
  main()
