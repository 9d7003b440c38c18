"""Measures how fast training is on this machine.

  python -m agile_tf.benchmark
  python -m agile_tf.benchmark --only='training' --against=../before

It takes the flags of agile_tf.launch. --reward=frozen --reward_model=unused
measures the policy's side only: its reward model has learned nothing, and no
directory is read. Each measurement has a process of its own. --against measures
another checkout in turn with this one and prints ratios: on a busy machine only
they mean much.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import json
import os
import resource
import subprocess
import time
from typing import Any

from absl import flags
import numpy as np
import tqdm

from agile_tf import config as config_lib
from agile_tf import presets
from agile_tf.recipe import settings
from agile_tf.reproduction import pools
from agile_tf.training import machine
from gridlu import program
from gridlu import tasks

Result = dict[str, float]

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PAIRS = 5  # How often a checkout and this one are measured in turn.
# So many steps are four rollouts of 15 steps by each of 15 workers. By then all
# programs are compiled.
_WARM_STEPS = 900


def _repeat(function: Callable[[], Any], seconds: float) -> float:
  """Calls a function for a while, after two warm-ups; returns calls/s."""
  function()
  function()  # Half of the policy workers do not play in the first round.
  calls, start = 0, time.perf_counter()
  while time.perf_counter() - start < seconds:
    function()
    calls += 1
  return calls / (time.perf_counter() - start)


def _trainer(config: config_lib.Config, threads: int) -> Any:
  """Builds what trains by these settings, without a run's directory."""
  recipe = config_lib.from_flags(flags.FLAGS, settings.Recipe)
  # The number of steps is one that no measurement reaches.
  config = dataclasses.replace(
      config, run_dir='unused', policy_threads=threads, steps=10**11)
  if config.world in tasks.TASKS:
    # It takes less time to make fewer goal examples.
    config = dataclasses.replace(config, dataset_size=4096)
  machine.prepare(config)
  from agile_tf.recipe import variations
  from agile_tf.training import building
  from agile_tf.training import trainer

  def make(config: config_lib.Config, frozen: Any = None) -> Any:
    return trainer.Trainer(
        building.Plan(config, variations.make(config, recipe), recipe), frozen)

  if config.reward != 'frozen':
    return make(config)
  # The frozen discriminator is one that has learned nothing.
  return make(config, make(dataclasses.replace(
      config, reward='discriminator', reward_model='')).checkpoint())


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

  for owner, method, name in (
      (worker.actor, 'play', 'play'),
      (worker._discriminator_programs, 'rewards', 'reward'),
      (worker._policy_programs, 'gradients', 'policy_gradients'),
      (trainer.policy, 'update', 'apply')):
    setattr(owner, method, timed(name, getattr(owner, method)))
  rate = _repeat(lambda: worker.iterate(trainer.snapshot()), seconds)
  return {'milliseconds': 1e3 / rate, **{
      name: float(np.median(times)) for name, times in calls.items()}}


def discriminator(config: config_lib.Config, seconds: float) -> Result:
  """Times an iteration of the discriminator's worker.

  By default it plays 15 steps and rates 512 pairs from B. The discriminator is
  trained on the 128 that it rates lowest and on 128 goal examples.
  """
  trainer = _trainer(config, threads=1)

  def iterate() -> Any:
    return trainer.discriminator_worker.iterate(trainer.snapshot())

  while not iterate().metrics:  # B is not full enough yet.
    pass
  return {'milliseconds': 1e3 / _repeat(iterate, seconds)}


def training(num_threads: int, config: config_lib.Config, seconds: float
            ) -> Result:
  """Trains until everything is compiled, and then for a while longer."""
  trainer = _trainer(config, num_threads)
  schedule = trainer.schedule
  # The time and the steps when the measurement begins and when it ends.
  ends: list[tuple[float, int]] = []

  def tick() -> None:
    now = time.perf_counter(), schedule.steps
    is_warm = schedule.steps >= _WARM_STEPS and (
        trainer.discriminator_worker is None or
        trainer._tally.counts['discriminator_updates'] > 1)
    if not ends and is_warm:
      ends.append(now)
    elif len(ends) == 1 and now[0] - ends[0][0] > seconds:
      ends.append(now)
    if len(ends) == 2:
      schedule.stop()

  from agile_tf.training import train
  train.loop(trainer.schedule, trainer.crew, tick)
  (begin, before), (end, after) = ends
  return {
      'steps_per_second': (after - before) / (end - begin),
      'peak_gigabytes': 1e-6 * resource.getrusage(
          resource.RUSAGE_SELF).ru_maxrss,
  }


# --against asks another checkout for a measurement by its name.
MEASUREMENTS: dict[str, Callable[[config_lib.Config, float], Result]] = {
    'matrix product': matrix_product,
    'round of 15 workers': round_parts,
    'discriminator iteration': discriminator,
    'training, 15 threads': functools.partial(training, 15),
    'training, 5 threads': functools.partial(training, 5),
    'training, 3 threads': functools.partial(training, 3),
    'training, lockstep': functools.partial(training, 1),
}


def measure(name: str, arguments: Sequence[str], checkout: str = _HERE
           ) -> Result:
  """Measures one of `MEASUREMENTS` by a checkout's own command line."""
  if not os.path.exists(os.path.join(checkout, 'agile_tf', 'benchmark.py')):
    raise config_lib.ConfigError(
        f'{checkout} has no agile_tf/benchmark.py: expected the directory of '
        'another checkout of this repository.')
  made = subprocess.run(
      pools.command(['-P', '-m', 'agile_tf.benchmark', '--json',
                     f'--only={name}', *arguments], os.sched_getaffinity(0)),
      env=os.environ | {'PYTHONPATH': checkout},
      capture_output=True, text=True, check=False)
  if made.returncode:
    raise config_lib.ConfigError(
        f'{name} of {checkout} cannot be measured: {made.stderr[-2000:]}')
  return json.loads(made.stdout)[name]


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
    compared = next(iter(pairs[0][0]))  # This is the key of the first number.
    before, after = np.array([[result[compared] for result in pair]
                              for pair in pairs]).T
    ratio = before / after if compared == 'milliseconds' else after / before
    results[name] = {key: float(np.median(numbers)) for key, numbers in (
        ('before', before), ('after', after), ('ratio', ratio))}
  return results


def _define_flags() -> None:
  settings.define_flags()
  flags.DEFINE_string('only', '', 'Measure only what has this in its name.')
  flags.DEFINE_float(
      'seconds', 10.0, 'How long each is measured, once it is compiled.',
      lower_bound=0.1, upper_bound=3600)
  program.define_path(
      'against', '', 'The directory of another checkout, to measure it in turn '
      'with this one.')
  flags.DEFINE_bool('json', False, 'Print JSON instead of a table.')


@program.main(_define_flags, expand=presets.expand)
def main() -> None:
  """Measures and prints."""
  values = flags.FLAGS
  config = config_lib.from_flags(values)
  imitates = config_lib.from_flags(values, settings.Recipe).imitation_cost
  possible = [
      name for name in MEASUREMENTS if config.trains_discriminator or
      name != 'discriminator iteration']
  names = [name for name in possible if values.only in name]
  if not names:
    raise config_lib.ConfigError(
        f'--only={values.only} is found in none of: {", ".join(possible)}.')
  if imitates and any(name.startswith('round') for name in names):
    raise config_lib.ConfigError(
        'A round with --imitation_cost needs what the head start finds out: '
        'give --only=training or --only=discriminator.')
  arguments = [f'--seconds={values.seconds}'] + [
      f'--{field.name}={getattr(values, field.name)}'
      for settings_class in (config_lib.Config, settings.Recipe)
      for field in dataclasses.fields(settings_class)
      if values[field.name].present]
  if values.against:
    results = compare(names, values.against, arguments)
  elif len(names) == 1:
    results = {names[0]: MEASUREMENTS[names[0]](config, values.seconds)}
  else:
    results = {name: measure(name, arguments)
               for name in tqdm.tqdm(names, leave=False, disable=None)}
  print(json.dumps(results, indent=2) if values.json else table(results))


if __name__ == '__main__':
  main()
