"""Tests for pools: where the runs of a sweep are carried out."""

import glob
import importlib.util
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from unittest import mock

from absl.testing import parameterized
import pytest

from agile_tf import sweep
from agile_tf.reproduction import curves
from agile_tf.reproduction import pools
from gridlu import program
from tests.agile_tf import tiny
from tests.gridlu import programs

_HAS_RAY = importlib.util.find_spec('ray') is not None

# A program that saves for a moment when it is asked to end.
_SAVES = """
import os, signal, sys, time
def save(*_):
  time.sleep(1)
  open(sys.argv[1] + '.saved', 'w').close()
  sys.exit(3)
signal.signal(signal.SIGTERM, save)
print(*os.sched_getaffinity(0), flush=True)
open(sys.argv[1] + '.begun', 'w').close()
time.sleep(60)
"""


def _wait_for(condition, seconds=60):
  deadline = time.monotonic() + seconds
  while not condition():
    if time.monotonic() > deadline:
      raise TimeoutError
    time.sleep(0.05)


class _Case(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._runs = self.create_tempdir().full_path

  def _path(self, name):
    return os.path.join(self._runs, name)

  def _task(self, name, code):
    return pools.Task(name, ['-c', code, self._path(name)],
                      self._path(f'{name}.log'))

  def _printed(self, name):
    """Returns the last line of what a task has printed."""
    with open(self._path(f'{name}.log'), encoding='utf-8') as file:
      return file.read().splitlines()[-1]

  def _ends(self, *started):
    """Waits for tasks; returns their problems."""
    problems = {}

    def all_have():
      for i, running in enumerate(started):
        if problems.get(i) is None:
          problems[i] = running.poll()
      return None not in problems.values()

    _wait_for(all_have)
    return [problems[i] for i in range(len(started))]

  def _check_that_runs_save(self, number, runs, *flags):
    """Starts a sweep of one or two runs and sends it a signal."""
    settings = tiny.flags(steps=10**6)
    sweeping = subprocess.Popen(
        [sys.executable, '-m', 'agile_tf.sweep', 'figure4_right',
         '--only=relations', f'--seeds={runs}', f'--runs={self._runs}', *flags,
         *(flag.replace('--', '--set=', 1) for flag in settings)],
        stderr=subprocess.PIPE, text=True)

    def runs_are_under_way():
      return len(glob.glob(f'{self._runs}/*/metrics.csv')) == runs and all(
          len(curves.read(path)['steps'])
          for path in glob.glob(f'{self._runs}/*'))

    _wait_for(runs_are_under_way, 300)
    sweeping.send_signal(number)
    _, errors = sweeping.communicate(timeout=120)
    self.assertEqual(sweeping.returncode, 130)
    self.assertEndsWith(errors, 'Stopped; the same command resumes.\n')
    for seed in range(runs):
      self.assertIn('everything is saved',
                    self._printed(f'relations_seed{seed}/sweep'))
      self.assertNotEmpty(os.listdir(
          self._path(f'relations_seed{seed}/checkpoints')))


class LocalTest(_Case):

  def test_output_is_not_appended_to_links_and_pipes(self):
    folder = self.create_tempdir()
    other = folder.create_file('other', 'mine').full_path
    link, pipe = (os.path.join(folder.full_path, name)
                  for name in ('link.log', 'pipe.log'))
    os.symlink(other, link)
    os.mkfifo(pipe)
    for path in link, pipe, folder.full_path:
      with self.assertRaisesRegex(program.UserError, 'no regular file'):
        pools.local(1)(pools.Task('run', ['-c', 'print(1)'], path))
    with open(other, encoding='utf-8') as file:
      self.assertEqual(file.read(), 'mine')

  def test_a_program_does_not_outlive_its_parent(self):
    code = ('from agile_tf.reproduction import pools\n'
            'import os, signal, sys, time\n'
            'pools.local(1)(pools.Task("", ["-c", "import os, time\\n'
            'print(os.getpid(), flush=True)\\ntime.sleep(60)"],'
            ' sys.argv[1]))\n'
            'while not open(sys.argv[1]).read().splitlines()[-1].isdigit():\n'
            '  time.sleep(.05)\n'
            'os.kill(os.getpid(), signal.SIGKILL)\n')
    subprocess.run(
        [sys.executable, '-c', code, self._path('it.log')], check=False)
    path = f'/proc/{int(self._printed("it"))}/stat'

    def has_ended():
      try:
        with open(path, encoding='utf-8') as file:
          return file.read().rpartition(')')[2].split()[0] == 'Z'
      except FileNotFoundError:
        return True

    _wait_for(has_ended, 10)

  def test_a_program_whose_parent_has_ended_before_does_not_begin(self):
    result = subprocess.run(
        [sys.executable, '-c', pools._STARTER, '0', str(os.getpid() + 1), '-c',
         'print("trains on alone")'],
        capture_output=True, text=True, check=False)
    self.assertEqual((result.returncode, result.stdout), (1, ''))
    self.assertIn('has ended', result.stderr)

  def test_an_attempt_is_explained_by_its_own_lines(self):
    quick = ('import os, sys, time\nprint(sys.argv[1], flush=True)\n'
             'while not os.path.exists(sys.argv[1] + "{}"):\n'
             '  time.sleep(.02)\nsys.exit(f"failed {}")\n')

    def task(number):  # All have the same file.
      return pools.Task('run', ['-c', quick.format(number, number),
                                self._path('run')], self._path('run.log'))

    one, two = pools.local(1)(task(1)), pools.local(1)(task(2))
    problems = []
    for number, running in (2, two), (1, one):
      open(self._path(f'run{number}'), 'w').close()
      problems += self._ends(running)
    self.assertRegex(problems[0], r'run\.2\.log ends with:\n.*\n  failed 2\n$')
    self.assertRegex(problems[1], r'run\.log ends with:\n.*\n  failed 1\n$')
    # A later attempt that says nothing is not explained by an earlier one.
    silent = pools.Task('run', ['-c', 'import os; os._exit(4)'],
                        self._path('run.log'))
    problem, = self._ends(pools.local(1)(silent))
    self.assertStartsWith(problem, 'exit code 4; ')
    self.assertNotIn('failed', problem)

  def test_tasks_share_the_machine_and_fail_alone(self):
    code = ('import os, sys\n'
            'print(sorted(os.sched_getaffinity(0)),'
            ' os.environ["CUDA_VISIBLE_DEVICES"])\n'
            'sys.exit(sys.argv[1].endswith("bad"))\n')
    cores = sorted(os.sched_getaffinity(0))[:2]
    names = ('bad', 'good')[:len(cores)]
    with (mock.patch.object(os, 'sched_getaffinity', return_value=cores),
          mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES='3,5,8')):
      pool = pools.local(len(cores))
    started = [pool(self._task(name, code)) for name in names]
    self.assertIsNone(pool(self._task('late', code)))
    problems = self._ends(*started)
    self.assertEqual(self._ends(pool(self._task('late', code))), [''])
    self.assertRegex(problems[0], 'exit code 1; .*bad.log ends with:\n')
    self.assertEqual(problems[1:], [''] * (len(cores) - 1))
    shares = ('3', '5,8') if len(cores) > 1 else ('3,5,8',)
    for name, core, gpus in zip(names, cores, shares):
      self.assertEqual(self._printed(name), f'[{core}] {gpus}')

  def test_shares_are_equal_within_one(self):
    for gpus, jobs in itertools.product(range(1, 9), range(1, 20)):
      shares = [pools._share(range(gpus), i, jobs) for i in range(jobs)]
      tasks = [sum(gpu in share for share in shares) for gpu in range(gpus)]
      for counts in tasks, list(map(len, shares)):
        self.assertBetween(min(counts), max(1, max(counts) - 1), max(counts))

  def test_more_runs_than_cores_are_refused(self):
    with self.assertRaisesRegex(program.UserError, '--jobs=9999: this program'):
      pools.local(9999)

  def test_reserved_cores_are_ones_own_as_long_as_there_are_enough(self):
    folder = self.create_tempdir().full_path
    with (mock.patch.object(os, 'sched_getaffinity', return_value={2, 5, 7}),
          mock.patch.object(tempfile, 'gettempdir', return_value=folder)):
      with pools._reserved(2) as one, pools._reserved(1) as other:
        self.assertEqual((one, other), ([2, 5], [7]))
        with pools._reserved(1) as shared:
          self.assertEqual(shared, [2])
      with pools._reserved(3) as again:
        self.assertEqual(again, [2, 5, 7])

  def test_the_locks_folder_is_the_users_own(self):
    folder = self.create_tempdir().full_path
    locks = os.path.join(folder, f'agile_tf_cores_{os.getuid()}')
    precious = self.create_tempfile('precious', 'text').full_path
    self.enter_context(
        mock.patch.object(tempfile, 'gettempdir', return_value=folder))
    with pools._reserved(1) as first:
      self.assertEqual(os.stat(locks).st_mode & 0o777, 0o700)
    # Nothing is opened through a link, and a FIFO keeps nobody waiting.
    lock = os.path.join(locks, str(first[0]))
    os.remove(lock)
    os.symlink(precious, lock)
    with self.assertRaises(OSError), pools._reserved(1):
      pass
    with open(precious, encoding='utf-8') as file:
      self.assertEqual(file.read(), 'text')
    os.remove(lock)
    os.mkfifo(lock)
    with pools._reserved(1) as again:
      self.assertEqual(again, first)
    # Somebody else made it, or it is a link to somewhere.
    with (mock.patch.object(os, 'getuid', return_value=os.getuid() + 1),
          self.assertRaises(program.UserError) as raised):
      os.rename(locks, f'{folder}/agile_tf_cores_{os.getuid()}')
      with pools._reserved(1):
        pass
    self.assertIn('is not a folder of this user', str(raised.exception))
    os.symlink(folder, locks)
    with self.assertRaisesRegex(program.UserError, 'set TMPDIR'):
      with pools._reserved(1):
        pass

  @parameterized.parameters(signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
  def test_signals_are_counted_and_handlers_restored(self, number):
    before = signal.signal(number, signal.default_int_handler)
    self.addCleanup(signal.signal, number, before)
    with pools.signals() as arrived:
      os.kill(os.getpid(), number)
      self.assertEqual(arrived, [number])
    self.assertIs(signal.getsignal(number), signal.default_int_handler)

  def test_a_stopped_task_saves(self):
    running = pools.local(1)(self._task('run', _SAVES))
    _wait_for(lambda: os.path.exists(self._path('run.begun')))
    running.stop()
    self.assertIn('exit code 3', self._ends(running)[0])
    self.assertTrue(os.path.exists(self._path('run.saved')))

  @pytest.mark.slow
  def test_ctrl_c_lets_runs_save(self):
    jobs = min(2, len(os.sched_getaffinity(0)))
    self._check_that_runs_save(signal.SIGINT, jobs, f'--jobs={jobs}')

  def test_without_ray_the_extra_is_named(self):
    with mock.patch.dict(sys.modules, ray=None):
      with self.assertRaisesRegex(
          program.UserError, r"pip install -e '.\[ray\]'"):
        with pools.cluster('auto', 1, 0, self._runs):
          pass


@pytest.mark.slow
@pytest.mark.skipif(not _HAS_RAY, reason='Ray is not installed: pip install '
                    '"agile-tf[ray]"')
class ClusterTest(_Case):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    from ray import cluster_utils
    cls._cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={'num_cpus': 0})
    cls.addClassCleanup(cls._cluster.shutdown)
    cls._nodes = [cls._cluster.add_node(num_cpus=1) for _ in range(3)]

  def _connected(self, cpus=1):
    return pools.cluster(self._cluster.address, cpus, 0, self._runs)

  def test_stopped_tasks_save_and_others_never_start(self):
    with self._connected() as pool:
      started = [pool(self._task(str(i), _SAVES)) for i in range(4)]

      def begun():
        return sorted(glob.glob(f'{self._runs}/*.begun'))

      _wait_for(lambda: len(begun()) == len(self._nodes))
      for running in started:
        running.stop()
      self.assertTrue(all(self._ends(*started)))
      self.assertLen(glob.glob(f'{self._runs}/*.saved'), len(begun()))
      self.assertLess(len(begun()), len(started))
    # Each had a core of its own, as far as there are enough.
    cores = [int(self._printed(os.path.basename(path).removesuffix('.begun')))
             for path in begun()]
    self.assertLen({*cores}, min(len(cores), len(os.sched_getaffinity(0))))

  def test_sigterm_lets_runs_save(self):
    self._check_that_runs_save(
        signal.SIGTERM, 2, f'--ray={self._cluster.address}')

  def test_nodes_must_have_room_and_see_the_runs(self):
    with self.assertRaisesRegex(
        program.UserError, '--cpus=2 --gpus=0: no node'):
      with self._connected(cpus=2):
        pass
    with mock.patch.object(os, 'getcwd', return_value='/nowhere'):
      with self.assertRaisesRegex(program.UserError, 'cannot use /nowhere'):
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
      steps = curves.read(run_dir)['steps'].tolist()
      self.assertEqual(steps, sorted(set(steps)))
      if begun[-1] > 2:
        self.assertRegex(log, 'Resuming from step [1-9]')
    # Training and evaluation began once, and the dead node's run again.
    self.assertEqual(sorted(begun), [2, 2, 2, 3])
