"""Compares tiny runs of two commits, number by number.

  python -m tests.equal_runs OLD_COMMIT NEW_COMMIT
  python -m tests.equal_runs OLD_COMMIT NEW_COMMIT --only=relations,lstm

Both commits are checked out and run on this machine, because rounding depends
on the processor. Every row of metrics.csv, but not its times, and every array
of the last checkpoint must be equal to the last bit. Each run is also stopped
in the middle and resumed. The whole list takes more than an hour on two cores,
so neither pytest nor CI runs this.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
import csv
import glob
import os
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

from absl import app
from absl import flags
import numpy as np

flags.DEFINE_list('only', [], 'Compare only these runs. By default all.')
flags.DEFINE_integer(
    'jobs', 1, 'How many runs to carry out at the same time.', lower_bound=1)
flags.DEFINE_float(
    'tolerance', 0.0, 'The largest difference that is allowed, as a share of '
    'the largest number in the array or in the column.', lower_bound=0)
flags.DEFINE_multi_string(
    'renamed', [], 'A part of the name of arrays or columns that has changed, '
    'as OLD=NEW.')

_STEPS = 4000
_TIMES = ('seconds', 'steps_per_second')
# The whole size of a run would prove nothing: relations.flags first updates the
# discriminator at step 7,875 and first writes a row at 10,000.
_TINY = ('--batch_size=32', '--log_steps=450', '--policy_threads=1')
_DATA = ('--dataset_size=2000',)
_HEAD_START = ('--discriminator_head_start=5',)
_FEWEST = 5  # Rows of a run, and updates of a discriminator that is trained.


class _Run(NamedTuple):
  """A flagfile of launch/, and what makes a tiny run of it."""
  flagfile: str
  flags: tuple[str, ...] = _DATA
  # The command that must run before.
  needs: tuple[str, ...] = ()
  trains_discriminator: bool = True


_RUNS = {
    'relations': _Run('relations'),
    'rho100': _Run('relations_rho100'),
    'all_workers': _Run('remark_all_workers'),
    'a3c_rp': _Run('relations_a3c_rp', trains_discriminator=False),
    'lstm': _Run('relations_lstm'),
    'arrangements': _Run('arrangements'),
    'quickstart': _Run('quickstart', _DATA + _HEAD_START),
    'relations_evening': _Run('relations_evening', _DATA + _HEAD_START),
    'arrangements_evening': _Run('arrangements_evening', _DATA + _HEAD_START),
    'own_world': _Run('own_world', _HEAD_START, needs=('agile_tf.own_world',)),
    # It begins with the networks of the tiny run `relations`.
    'immovable': _Run('immovable', trains_discriminator=False),
}
_LAST, _ITS_NETWORKS = 'immovable', 'relations'

# An installed package in development mode answers for each module that is not
# in the checkout. This runs at the start of Python, after it was installed.
_SITE = """
import sys
sys.meta_path = [
    finder for finder in sys.meta_path
    if '__editable__' not in getattr(finder, '__module__', '')]
"""


class _Side:
  """A commit, checked out in a folder of its own, and its runs."""

  def __init__(self, commit: str, folder: str):
    self.commit = commit
    self._tree = os.path.join(folder, 'tree')
    self._site = os.path.join(folder, 'site')
    self._work = os.path.join(folder, 'work')
    os.makedirs(self._work)
    _git('worktree', 'add', '--quiet', '--detach', self._tree, commit)
    # setup.cfg maps these packages to folders outside agile_tf.
    for name, home in (('flagfiles', 'launch'),
                       ('trained', 'launch/results/trained')):
      os.symlink(os.path.join(self._tree, home),
                 os.path.join(self._tree, 'agile_tf', name))
    os.makedirs(self._site)
    with open(os.path.join(self._site, 'sitecustomize.py'), 'w',
              encoding='utf-8') as file:
      file.write(_SITE)
    where = self._python('-c', 'import agile_tf; print(agile_tf.__file__)')
    if not where.startswith(self._tree):
      raise RuntimeError(f'{commit} would run {where}, not {self._tree}.')

  def close(self) -> None:
    """Removes the checkout."""
    _git('worktree', 'remove', '--force', self._tree)

  def run(self, name: str) -> None:
    """Carries out a run without a break, and again with one."""
    run = _RUNS[name]
    for module in run.needs:
      self._python('-m', module)
    for run_dir, ends in ((name, [_STEPS]),
                          (f'{name}_resumed', [_STEPS // 2, _STEPS])):
      for steps in ends:
        self._python(
            '-m', 'agile_tf.launch',
            f'--flagfile={self._tree}/launch/{run.flagfile}.flags', *_TINY,
            *run.flags, f'--steps={steps}', f'--run_dir=runs/{run_dir}')

  def rows(self, run_dir: str) -> list[dict[str, str]]:
    """Returns the rows of metrics.csv without their times."""
    with open(os.path.join(self._work, 'runs', run_dir, 'metrics.csv'),
              encoding='utf-8') as file:
      return [{column: value for column, value in row.items()
               if column not in _TIMES} for row in csv.DictReader(file)]

  def arrays(self, run_dir: str) -> dict[str, np.ndarray]:
    """Returns the arrays of the last checkpoint."""
    path = max(glob.glob(os.path.join(
        self._work, 'runs', run_dir, 'checkpoints', '*', 'arrays.npz')))
    with np.load(path) as arrays:
      return dict(arrays)

  def _python(self, *arguments: str) -> str:
    made = subprocess.run(
        [sys.executable, *arguments], cwd=self._work, text=True,
        env=os.environ | {
            'PYTHONPATH': os.pathsep.join([self._site, self._tree]),
            'CUDA_VISIBLE_DEVICES': ''},
        capture_output=True, check=False)
    if made.returncode:
      raise RuntimeError(
          f'{self.commit}, {" ".join(arguments)}: {made.stderr[-3000:]}')
    return made.stdout.strip()


def _git(*arguments: str) -> None:
  subprocess.run(['git', *arguments], check=True)


def _as_renamed(values: Mapping[str, object], renamed: Sequence[str]) -> dict:
  """Returns the old side's values by the names that the new side has."""
  result = {}
  for name, value in values.items():
    for pair in renamed:
      name = name.replace(*pair.split('=', 1))
    result[name] = value
  return result


def _difference(old: np.ndarray, new: np.ndarray, tolerance: float) -> str:
  """Says how two arrays differ, or returns an empty string."""
  if (old.shape, old.dtype) != (new.shape, new.dtype):
    return (f'{old.dtype} {list(old.shape)} became '
            f'{new.dtype} {list(new.shape)}')
  if old.tobytes() == new.tobytes():
    return ''
  if old.dtype.kind != 'f':
    return f'{np.count_nonzero(old != new)} of {old.size} numbers differ'
  if not np.array_equal(np.isnan(old), np.isnan(new)):
    return 'other numbers are missing'
  share = np.nanmax(np.abs(old - new)) / (np.nanmax(np.abs(old)) or 1)
  return '' if share <= tolerance else f'differs by {share:.2g} of the largest'


def _compare(run_dir: str, old: _Side, new: _Side, tolerance: float,
             renamed: Sequence[str], trains: bool) -> Iterator[str]:
  """Yields what differs between two sides of a run."""
  rows = [side.rows(run_dir) for side in (old, new)]
  columns = [{name: np.array([float(row[name] or 'nan') for row in side])
              for name in side[0]} for side in rows]
  updates = columns[0].get('discriminator_updates')
  if len(rows[0]) < _FEWEST or trains and (
      updates is None or updates[-1] < _FEWEST):
    raise RuntimeError(f'{run_dir} is too short to prove anything: '
                       f'{len(rows[0])} rows, {updates} updates.')
  for kind, (one, other) in (
      ('column', columns),
      ('array', [side.arrays(run_dir) for side in (old, new)])):
    one = _as_renamed(one, renamed)
    for name in one.keys() - other.keys():
      yield f'only the old commit has the {kind} {name}'
    for name in other.keys() - one.keys():
      yield f'only the new commit has the {kind} {name}'
    for name in one.keys() & other.keys():
      if found := _difference(one[name], other[name], tolerance):
        yield f'the {kind} {name}: {found}'


def main(argv: Sequence[str]) -> None:
  values = flags.FLAGS
  if len(argv) != 3:
    raise app.UsageError('Expected two commits, the old one and the new one.')
  unknown = sorted(set(values.only) - _RUNS.keys())
  if unknown:
    raise app.UsageError(
        f'--only={",".join(unknown)}: expected some of {", ".join(_RUNS)}.')
  wanted = [name for name in _RUNS if not values.only or name in values.only]
  needed = [name for name in _RUNS if name != _LAST and (
      name in wanted or name == _ITS_NETWORKS and _LAST in wanted)]
  folder = tempfile.mkdtemp()
  sides = []
  try:
    for word, commit in zip(('old', 'new'), argv[1:]):
      sides.append(_Side(commit, os.path.join(folder, word)))
    with futures.ThreadPoolExecutor(values.jobs) as pool:
      for names in needed, [name for name in wanted if name == _LAST]:
        list(pool.map(  # Raises their errors.
            lambda job: job[0].run(job[1]),
            [(side, name) for name in names for side in sides]))
    found = False
    for name in wanted:
      for run_dir in name, f'{name}_resumed':
        lines = sorted(_compare(
            run_dir, *sides, values.tolerance, values.renamed,
            _RUNS[name].trains_discriminator))
        found |= bool(lines)
        print(f'{run_dir}: {"differs" if lines else "equal"}',
              *lines, sep='\n  ', flush=True)
  finally:
    for side in sides:
      side.close()
    shutil.rmtree(folder)
  if found:
    sys.exit(1)


if __name__ == '__main__':
  app.run(main)
