"""Tests for pools: where the runs of a sweep are carried out."""

import csv
import glob
import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import pytest

from agile_tf import sweep
from agile_tf.reproduction import pools
from tests.agile_tf import tiny
from tests.gridlu import programs

_HAS_RAY = importlib.util.find_spec('ray') is not None

# A program that saves for a moment when it is asked to end.
_SAVES = """
import signal, sys, time
def save(*_):
  time.sleep(1)
  open(sys.argv[1] + '.saved', 'w').close()
  sys.exit(3)
signal.signal(signal.SIGTERM, save)
open(sys.argv[1] + '.begun', 'w').close()
time.sleep(60)
"""


def _wait_for(condition, seconds=60):
  deadline = time.monotonic() + seconds
  while not condition():
    if time.monotonic() > deadline:
      raise TimeoutError
    time.sleep(0.05)


class PoolsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = self.create_tempdir().full_path

  def _path(self, name):
    return os.path.join(self._folder, name)

  def _task(self, name, code):
    return pools.Task(name, ['-c', code, self._path(name)],
                      self._path(f'{name}.log'))

  def _ended(self, pool, count):
    ended = {}

    def all_have():
      ended.update(pool.ended())
      return len(ended) >= count

    _wait_for(all_have)
    return ended

  @parameterized.parameters(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
  def test_a_signal_lets_the_program_save(self, number):
    path = self._path('run')

    def interrupt():
      _wait_for(lambda: os.path.exists(f'{path}.begun'))
      os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    thread = threading.Thread(target=interrupt, daemon=True)
    process = pools.start(['-c', _SAVES, path])
    thread.start()
    self.assertTrue(pools.wait(process))
    thread.join()
    self.assertTrue(os.path.exists(f'{path}.saved'))
    self.assertEqual(process.returncode, 3)
    self.assertEqual(signal.getsignal(number), before)

  def test_a_program_does_not_outlive_its_parent(self):
    code = ('from agile_tf.reproduction import pools\n'
            'import os, signal, time\n'
            'print(pools.start(["-c", "import time; time.sleep(60)"]).pid,'
            ' flush=True)\n'
            'time.sleep(1)\n'
            'os.kill(os.getpid(), signal.SIGKILL)\n')
    parent = subprocess.run([sys.executable, '-c', code],
                            stdout=subprocess.PIPE, text=True, check=False)
    path = f'/proc/{int(parent.stdout)}/stat'

    def has_ended():
      try:
        with open(path, encoding='utf-8') as file:
          return file.read().rpartition(')')[2].split()[0] == 'Z'
      except FileNotFoundError:
        return True

    _wait_for(has_ended, 10)

  def test_tasks_share_the_machine_and_fail_alone(self):
    code = ('import os, sys\n'
            'print(sorted(os.sched_getaffinity(0)),'
            ' os.environ["CUDA_VISIBLE_DEVICES"])\n'
            'sys.exit(sys.argv[1].endswith("bad"))\n')
    cores = sorted(os.sched_getaffinity(0))[:2]
    with (mock.patch.object(os, 'sched_getaffinity', return_value=cores),
          mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES='3,5,8')):
      pool = pools.Local(len(cores))
    for name in ('bad', 'good')[:len(cores)]:
      self.assertTrue(pool.has_room())
      pool.start(self._task(name, code))
    self.assertFalse(pool.has_room())
    ended = self._ended(pool, len(cores))
    self.assertTrue(pool.has_room())
    self.assertEmpty(pool.ended())
    self.assertRegex(ended['bad'], 'exit code 1; .*bad.log ends with:\n')
    if len(cores) == 2:
      self.assertEqual(ended['good'], '')
      for name, core, gpus in ('bad', cores[0], '3'), ('good', cores[1], '5,8'):
        with open(self._path(f'{name}.log'), encoding='utf-8') as file:
          self.assertEqual(
              file.read().splitlines()[-1], f'[{core}] {gpus}')

  @parameterized.parameters(
      (8, 3, [2, 3, 3]), (2, 3, [1, 1, 1]), (4, 4, [1, 1, 1, 1]),
      (1, 1, [1]))
  def test_shares_are_equal(self, items, count, sizes):
    shares = [pools._share(range(items), i, count) for i in range(count)]
    self.assertEqual([len(share) for share in shares], sizes)
    self.assertEqual({i for share in shares for i in share}, {*range(items)})

  def test_more_runs_than_cores_are_refused(self):
    with self.assertRaisesRegex(pools.PoolError, '--jobs=9999: this program'):
      pools.Local(9999)

  def test_stopped_tasks_save(self):
    pool = pools.Local(1)
    pool.start(self._task('run', _SAVES))
    _wait_for(lambda: os.path.exists(self._path('run.begun')))
    pool.stop()
    self.assertIn('exit code 3', self._ended(pool, 1)['run'])
    self.assertTrue(os.path.exists(self._path('run.saved')))

  def test_without_ray_the_extra_is_named(self):
    with mock.patch.dict(sys.modules, ray=None):
      with self.assertRaisesRegex(
          pools.PoolError, r'pip install "agile-tf\[ray\]"'):
        with pools.cluster('auto', 1, 0, self._folder):
          pass


@pytest.mark.slow
@pytest.mark.skipif(not _HAS_RAY, reason='Ray is not installed: pip install '
                    '"agile-tf[ray]"')
class ClusterTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    from ray import cluster_utils
    cls._cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={'num_cpus': 0})
    cls.addClassCleanup(cls._cluster.shutdown)
    cls._nodes = [cls._cluster.add_node(num_cpus=1) for _ in range(3)]

  def setUp(self):
    super().setUp()
    self._runs = self.create_tempdir().full_path

  def _connected(self, cpus=1):
    return pools.cluster(self._cluster.address, cpus, 0, self._runs)

  def test_stopped_tasks_save_and_others_never_start(self):
    with self._connected() as pool:
      tasks = [pools.Task(str(i), ['-c', _SAVES, f'{self._runs}/{i}'],
                          f'{self._runs}/{i}.log') for i in range(4)]
      for task in tasks:
        pool.start(task)

      def begun():
        return glob.glob(f'{self._runs}/*.begun')

      _wait_for(lambda: len(begun()) == len(self._nodes))
      pool.stop()
      ended = {}

      def all_have_ended():
        ended.update(pool.ended())
        return len(ended) == len(tasks)

      _wait_for(all_have_ended)
      self.assertTrue(all(ended.values()))
      self.assertLen(glob.glob(f'{self._runs}/*.saved'), len(begun()))
      self.assertLess(len(begun()), len(tasks))

  def test_nodes_must_have_room_and_see_the_runs(self):
    with self.assertRaisesRegex(pools.PoolError, '--cpus=2 --gpus=0: no node'):
      with self._connected(cpus=2):
        pass
    with mock.patch.object(os, 'getcwd', return_value='/nowhere'):
      with self.assertRaisesRegex(pools.PoolError, 'cannot use /nowhere'):
        with self._connected():
          pass
    self.assertEmpty(os.listdir(self._runs))

  def test_when_a_node_dies_every_run_is_finished_once(self):
    settings = tiny.flags(steps=2500, checkpoint_minutes=0.1, instructions='')
    killed = []

    def kill_a_node():
      def runs_are_under_way():
        saved = glob.glob(f'{self._runs}/*/checkpoints/step_*[1-9]*')
        return len({path.split('/checkpoints/')[0] for path in saved}) >= 3

      _wait_for(runs_are_under_way, 900)
      killed.append(self._nodes.pop())
      self._cluster.remove_node(killed[0], allow_graceful=False)

    thread = threading.Thread(target=kill_a_node, daemon=True)
    thread.start()
    result = programs.call(
        sweep, 'figure4_right', '--seeds=1', f'--runs={self._runs}',
        f'--ray={self._cluster.address}',
        *(flag.replace('--', '--set=', 1) for flag in settings))
    thread.join()
    self.assertLen(killed, 1)
    self.assertEqual(result.returncode, 0, result.stderr)
    begun = []
    for run_dir in glob.glob(f'{self._runs}/*'):
      self.assertTrue(sweep.is_trained(run_dir))
      self.assertTrue(os.path.exists(f'{run_dir}/evaluation.json'))
      with open(f'{run_dir}/sweep.log', encoding='utf-8') as file:
        log = file.read()
      begun.append(len(re.findall(r'(?m)^.* \d{4} on \S+$', log)))
      with open(f'{run_dir}/metrics.csv', encoding='utf-8') as file:
        steps = [int(row['steps']) for row in csv.DictReader(file)]
      self.assertEqual(steps, sorted(set(steps)))
      if begun[-1] > 1:
        self.assertRegex(log, 'Resuming from step [1-9]')
    # Each began once, and the one of the dead node again.
    self.assertEqual(sorted(begun), [1, 1, 1, 2])


if __name__ == '__main__':
  absltest.main()
