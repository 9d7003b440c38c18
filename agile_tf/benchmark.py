"""Measures how fast training is on this machine.

  python -m agile_tf.benchmark
  python -m agile_tf.benchmark --only='training' --json
  python -m agile_tf.benchmark --only='training' --against=../before

It takes the flags of agile_tf.launch for what is trained. Each line is measured
in a process of its own, one after another. The share of the ceiling is the
share of the machine's rate of matrix products that a path reaches in the
arithmetic that it does.

--against measures another checkout in turn with this one, through its own
command line. On a machine with other work only such ratios mean something.
--export writes a round of 15 workers, up to its gradients, as an XLA program.
"""

from collections.abc import Callable, Sequence
import dataclasses
import json
import os
import re
import resource
import subprocess
import sys
import time
from typing import Any, TYPE_CHECKING

from absl import flags
import numpy as np
import tqdm

from agile_tf import config as config_lib
from agile_tf import presets
from agile_tf.recipe import settings
from agile_tf.training import machine
from gridlu import program

# What needs TensorFlow is imported where it is used, after the flags are read.
if TYPE_CHECKING:
  from agile_tf.training import trainer as trainer_lib

Result = dict[str, float]

# What the arithmetic costs with minimal filtering. Of a state in MFLOP: a 5x5
# layer from 64 to 64 channels 0.40, whose transforms are 0.054 each; the stem
# 0.76. So the policy's seven layers cost 4.2 forward, the reward model's five
# 3.2, and backward they are 8.2 and 6.0. A policy step is acting, the reward
# and the gradient, which takes acting's outputs and computes only the last of
# 16 states forward. Acting in batches of fewer than five is by plain
# convolution. An update of the discriminator rates 640 states and trains on
# 256 of them; one every 225 steps, with the 15 steps that its worker makes,
# adds 17 to a step.
_POLICY_MFLOP, _ALONE_POLICY_MFLOP, _FILTERED_ROWS = 16, 26, 5
_DISCRIMINATOR_MFLOP, _ITERATION_MFLOP = 17, 3800

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PAIRS = 5  # How often a checkout and this one are measured in turn.
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


def _trainer(config: config_lib.Config, **changes: Any
            ) -> 'trainer_lib.Trainer':
  config = dataclasses.replace(
      config, run_dir='unused', dataset_size=4096, **changes)
  recipe = config_lib.from_flags(flags.FLAGS, settings.Recipe)
  machine.prepare(config)
  from agile_tf.recipe import builder
  from agile_tf.training import trainer
  frozen = None
  if config.reward == 'frozen':
    frozen = trainer.Trainer(builder.make(dataclasses.replace(
        config, reward='discriminator', reward_model=''), recipe)).checkpoint()
    recipe = dataclasses.replace(recipe, discriminator_head_start=0)
  return trainer.Trainer(builder.make(config, recipe), frozen)


def matrix_product(config: config_lib.Config, seconds: float) -> Result:
  """Times a 2048 x 2048 float32 product on the default device."""
  machine.prepare(config)
  tf = machine.import_tensorflow()
  size = 2048
  x = tf.random.stateless_normal([size, size], [0, 0])
  rate = _repeat(lambda: tf.linalg.matmul(x, x)[0, 0].numpy(), seconds)
  return {'gflops': 2e-9 * size**3 * rate}


def round_parts(config: config_lib.Config, seconds: float) -> Result:
  """Times the parts of a round of 15 workers in lockstep, and the whole."""
  trainer = _trainer(
      config, reward='frozen', reward_model='itself', policy_threads=1)
  worker, = trainer.policy_workers
  calls: dict[str, list[float]] = {}

  def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
      start = time.perf_counter()
      result = function(*args, **kwargs)
      calls.setdefault(name, []).append(time.perf_counter() - start)
      return result

    return call

  worker.iterate()
  worker.iterate()
  programs: Any = worker._programs
  for owner, name in (
      (worker.actor, 'play'), (programs, 'reward'),
      (programs, 'policy_gradients'), (trainer.policy, 'apply')):
    setattr(owner, name, timed(name, getattr(owner, name)))
  whole = _repeat(worker.iterate, seconds)
  return {'milliseconds': 1e3 / whole} | {
      f'{name}_milliseconds': 1e3 * float(np.median(times))
      for name, times in calls.items()}


def discriminator_iteration(config: config_lib.Config, seconds: float
                           ) -> Result:
  """Times the discriminator's worker: 15 steps, 512 rated, 256 trained on."""
  worker = _trainer(config, policy_threads=1).discriminator_worker
  assert worker is not None
  while not worker.iterate().metrics:  # Until B is full enough.
    pass
  return {'milliseconds': 1e3 / _repeat(worker.iterate, seconds)}


def _drive(trainer: 'trainer_lib.Trainer', seconds: float) -> Result:
  """Trains until everything is compiled, and then for a while longer."""
  schedule, built = trainer.schedule, time.perf_counter()
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

  trainer.drive(tick)
  (begin, before), (end, after) = start[0], start[-1]
  return {
      'steps_per_second': (after - before) / (end - begin),
      'compile_seconds': first[0] - built,
      'peak_gigabytes': 1e-6 * resource.getrusage(
          resource.RUSAGE_SELF).ru_maxrss,
  }


def _policy_side(threads: int) -> Callable[..., Result]:
  return lambda config, seconds: _drive(_trainer(
      config, reward='frozen', reward_model='itself', policy_threads=threads),
                                        seconds)


def _training(threads: int) -> Callable[..., Result]:
  return lambda config, seconds: _drive(
      _trainer(config, policy_threads=threads), seconds)


def _policy_mflop(threads: int) -> int:
  return (_POLICY_MFLOP if 15 // threads >= _FILTERED_ROWS
          else _ALONE_POLICY_MFLOP)


_THREADS = {'15 threads': 15, '5 threads': 5, '3 threads': 3, 'lockstep': 1}

# Name, what is measured, and the cost in MFLOP that gives its ceiling.
MEASUREMENTS: dict[str, tuple[Callable[..., Result], float | None]] = {
    'matrix product': (matrix_product, None),
    'round of 15 workers': (round_parts, 225 * _POLICY_MFLOP),
    'discriminator iteration': (discriminator_iteration, _ITERATION_MFLOP),
    **{f'policy side, {name}': (_policy_side(threads), _policy_mflop(threads))
       for name, threads in _THREADS.items()},
    **{f'training, {name}': (
        _training(threads), _policy_mflop(threads) + _DISCRIMINATOR_MFLOP)
       for name, threads in _THREADS.items()},
}


def measure(names: Sequence[str], arguments: Sequence[str],
            checkout: str = _HERE) -> dict[str, Result]:
  """Measures each in a process of its own, by a checkout's command line.

  Args:
    names: Keys of `MEASUREMENTS`.
    arguments: Flags for all of them.
    checkout: The directory of a checkout of this repository.

  Raises:
    ConfigError: if it cannot be measured.
  """
  if not os.path.exists(os.path.join(checkout, 'agile_tf', 'benchmark.py')):
    raise config_lib.ConfigError(
        f'{checkout} has no agile_tf/benchmark.py: expected the directory of '
        'another checkout of this repository.')
  results: dict[str, Result] = {}
  for name in (bar := tqdm.tqdm(names, leave=False)):
    bar.set_description(name)
    made = subprocess.run(
        [sys.executable, '-m', 'agile_tf.benchmark', '--json',
         f'--only=^{re.escape(name)}$', *arguments],
        cwd=checkout, env=os.environ | {'PYTHONPATH': checkout},
        capture_output=True, text=True, check=False)
    if made.returncode:
      raise config_lib.ConfigError(
          f'{name} of {checkout} cannot be measured: {made.stderr[-2000:]}')
    results[name] = json.loads(made.stdout)[name]
  return results


def _add_shares(results: dict[str, Result]) -> None:
  """Adds the share reached of what the matrix product's rate allows."""
  gflops = results.get('matrix product', {}).get('gflops')
  for name, result in results.items():
    cost = MEASUREMENTS[name][1]
    if not gflops or not cost:
      continue
    seconds = (1e-3 * result['milliseconds'] if 'milliseconds' in result
               else 1 / result['steps_per_second'])
    result['share'] = 1e-3 * cost / gflops / seconds


def table(results: dict[str, Result]) -> str:
  """Formats the results for people, a line for each number."""
  return '\n'.join(
      f'{name:26} {key:32} {value:12,.{0 if value > 100 else 2}f}'
      for name, result in results.items() for key, value in result.items())


def compare(names: Sequence[str], checkout: str, arguments: Sequence[str]
           ) -> dict[str, Result]:
  """Measures another checkout and this one in turn, five times each.

  Returns:
    For each name the medians 'before' (the checkout's) and 'after' (this
    one's), and 'ratio', the median of the pairs' ratios, how many times as fast
    this one is.
  """
  results = {}
  for name in names:
    pairs = [
        [measure([name], arguments, each)[name]
         for each in (os.path.abspath(checkout), _HERE)]
        for _ in range(_PAIRS)]
    kind = next(kind for kind in _KINDS if kind in pairs[0][0])
    numbers = np.array([[result[kind] for result in pair] for pair in pairs])
    before, after = np.median(numbers, axis=0)
    ratio = float(np.median(numbers[:, 1] / numbers[:, 0]))
    results[name] = {
        'before': float(before), 'after': float(after),
        'ratio': 1 / ratio if kind == 'milliseconds' else ratio}
  return results


def export(path: str, config: config_lib.Config) -> None:
  """Writes a round of training as a serialized HLO module.

  It plays, rewards and computes the gradients of all workers in lockstep.
  """
  trainer = _trainer(
      config, reward='frozen', reward_model='itself', policy_threads=1)
  tf = machine.import_tensorflow()
  worker, = trainer.policy_workers
  programs, world = worker._programs, trainer.world
  worker.iterate()
  rollout = worker.actor.play(trainer.policy.snapshot())
  assert world.compiled is not None
  assert trainer.discriminator is not None
  gumbel = np.zeros([*rollout.mask.shape, world.num_actions], np.float32)
  replayed = None
  if worker.predictions is not None:
    replayed = worker.predictions.exchange(rollout, rollout.true_rewards > 0)
  inputs = (trainer.policy.snapshot(), trainer.discriminator.snapshot(),
            rollout._replace(instructions=(), results=()),
            world.compiled.truth_codes(rollout.instructions), gumbel, replayed)

  @tf.function(autograph=False, jit_compile=True)
  def one_round(theta, phi, rollout, truth_codes, gumbel, replayed):
    states, actions, _, results = programs.play(
        theta, rollout.observations[0], rollout.codes, truth_codes, gumbel,
        rollout.mask > 0)
    values, _ = programs.reward(phi, states, rollout.codes)
    gradients, _ = programs._policy_gradients(
        theta, rollout._replace(
            observations=states, actions=actions, results=results),
        values * rollout.mask, config.entropy_weight, replayed)
    return tf.stack(gradients)

  with open(path, 'wb') as file:
    file.write(one_round.experimental_get_compiler_ir(*inputs)(
        stage='hlo_serialized'))


def define_flags() -> None:
  """Defines the program's flags."""
  config_lib.define_flags()
  config_lib.define_flags(settings.Recipe)
  presets.define_flag()
  flags.DEFINE_string('only', '', 'Measure only what matches this expression.')
  flags.DEFINE_float('seconds', 10.0, 'Seconds of each, once it is compiled.',
                     lower_bound=0.1)
  flags.DEFINE_string('against', '', 'The directory of another checkout.')
  flags.DEFINE_bool('json', False, 'Print JSON instead of a table.')
  flags.DEFINE_string('export', '', 'Measure nothing; write a round here.')


@program.main()
def main(argv: Sequence[str]) -> None:
  """Measures and prints."""
  del argv
  values = flags.FLAGS
  config = config_lib.from_flags(values)
  if values.export:
    export(values.export, config)
    return
  try:
    names = list(filter(re.compile(values.only).search, MEASUREMENTS))
  except re.error as error:
    raise config_lib.ConfigError(
        f'--only={values.only} is not a regular expression: {error}.'
        ) from error
  if not names:
    raise config_lib.ConfigError(
        f'--only={values.only} is found in none of: {", ".join(MEASUREMENTS)}.')
  arguments = [f'--seconds={values.seconds}'] + [
      f'--{field.name}={getattr(values, field.name)}'
      for kind in (config_lib.Config, settings.Recipe)
      for field in dataclasses.fields(kind) if values[field.name].present]
  if values.against:
    results = compare(names, values.against, arguments)
  elif len(names) == 1:
    results = {names[0]: MEASUREMENTS[names[0]][0](config, values.seconds)}
  else:
    results = measure(
        list(dict.fromkeys(['matrix product', *names])), arguments)
    _add_shares(results)
  print(json.dumps(results, indent=2) if values.json else table(results))


def start() -> None:
  """Starts the program."""
  program.run(main, define_flags, presets.expand)


if __name__ == '__main__':
  start()
