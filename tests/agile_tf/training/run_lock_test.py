"""Tests for run_lock: one process for each run, and no lock left behind."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys

from absl.testing import parameterized

from agile_tf.training import run_lock
from gridlu import program

_HOLD = """
import sys, time
from agile_tf.training import run_lock
with run_lock.hold(sys.argv[1]):
  print('held', flush=True)
  time.sleep(60)
"""


# A world that starts a process by forking, and dies before that process does.
_FORK = """
import os, signal, sys, time
from agile_tf.training import run_lock
with run_lock.hold(sys.argv[1]):
  child = os.fork()
  if not child:
    print(os.getpid(), flush=True)
    time.sleep(60)
  time.sleep(60)
"""


class OwnershipTest(parameterized.TestCase):

  def test_another_process_is_named_until_it_is_killed(self):
    run_dir = self.create_tempdir().full_path
    with subprocess.Popen(
        [sys.executable, '-c', _HOLD, run_dir], stdout=subprocess.PIPE,
        text=True) as process:
      self.assertEqual(process.stdout.readline(), 'held\n')
      for _ in range(2):  # The first attempt does not change the owner's lock.
        with self.assertRaisesRegex(
            program.UserError,
            rf'in use by process {process.pid} on .*, since 20'):
          with run_lock.hold(run_dir):
            self.fail('two owners')
      process.kill()
    self.assertNotEmpty(os.listdir(run_dir))  # Its file is still there.
    for _ in range(2):
      with run_lock.hold(run_dir):
        pass

  def test_a_fork_of_a_killed_run_does_not_keep_its_lock(self):
    run_dir = self.create_tempdir().full_path
    with subprocess.Popen(
        [sys.executable, '-c', _FORK, run_dir], stdout=subprocess.PIPE,
        text=True) as process:
      child = int(process.stdout.readline())
      self.addCleanup(os.kill, child, signal.SIGKILL)
      with self.assertRaisesRegex(program.UserError, 'in use by'):
        with run_lock.hold(run_dir):  # The fork has not freed it.
          self.fail('two owners')
      process.kill()
      process.wait()
      os.kill(child, 0)  # It is still there.
      with run_lock.hold(run_dir):
        pass
      process.stdout.close()

  def test_a_lock_that_cannot_be_opened_is_named(self):
    folder = self.create_tempdir()
    folder.mkdir('owner.txt')
    with self.assertRaisesRegex(
        program.UserError, 'cannot be written: .*owner.txt'):
      with run_lock.hold(folder.full_path):
        self.fail('no lock')

  def test_a_file_that_is_no_lock_is_refused_and_left_as_it_is(self):
    folder = self.create_tempdir()
    mine = folder.create_file('mine.txt', 'A thesis.')
    path = os.path.join(folder.full_path, 'owner.txt')
    for make, problem in (
        (lambda: os.symlink(mine.full_path, path), 'symbolic link'),
        (lambda: os.symlink('nowhere', path), 'symbolic link'),
        (lambda: os.mkfifo(path), 'no regular file'),
        (lambda: shutil.copy(mine.full_path, path),
         "no run has written: it begins with 'A thesis'")):
      make()
      with self.assertRaisesRegex(
          program.UserError, f'{folder.full_path} .*{problem}'):
        with run_lock.hold(folder.full_path):
          self.fail('no lock')
      self.assertFalse(os.path.exists(folder.full_path + '/nowhere'))
      self.assertEqual(mine.read_text(), 'A thesis.')
      if os.path.isfile(path):
        self.assertEqual(pathlib.Path(path).read_text(), 'A thesis.')
      os.remove(path)

  @parameterized.parameters('', 'proc', 'process 1 on a machine, since 2020')
  def test_a_lock_that_a_killed_run_left_is_taken_over(self, text):
    folder = self.create_tempdir()
    lock = folder.create_file('owner.txt', text)
    with run_lock.hold(folder.full_path):
      self.assertRegex(lock.read_text(), rf'^process {os.getpid()} on .*:\d\d$')

  @parameterized.parameters(300 * 'x', 2500 * 'x/')
  def test_a_name_that_is_too_long_is_refused(self, name):
    run_dir = os.path.join(self.create_tempdir().full_path, name)
    with self.assertRaisesRegex(program.UserError, 'x/? cannot be written'):
      with run_lock.hold(run_dir):
        self.fail('no lock')

  def test_a_directory_with_nothing_but_the_lock_is_removed(self):
    folder = self.create_tempdir().full_path
    for name, content, stays in (('new', (), False),
                                 ('used', ('metrics.csv',), True),
                                 ('', (), True)):  # It was there before.
      run_dir = os.path.join(folder, name)
      with run_lock.hold(run_dir):
        for file in content:
          open(os.path.join(run_dir, file), 'x').close()
      self.assertEqual(os.path.exists(run_dir), stays)

  def test_a_changed_directory_is_named_as_a_cause(self):
    self.enter_context(contextlib.chdir(self.create_tempdir().full_path))
    with run_lock.hold('run') as check, contextlib.chdir('/'):
      with self.assertRaisesRegex(
          program.UserError, 'run was removed .* The current one is /[.]$'):
        check()

  @parameterized.parameters(
      'removed', 'moved', 'made again', 'lock removed', 'lock made again')
  def test_what_is_not_held_any_more_is_noticed(self, how):
    run_dir = os.path.join(self.create_tempdir().full_path, 'run')
    os.mkdir(run_dir)
    lock = os.path.join(run_dir, 'owner.txt')
    with run_lock.hold(run_dir) as check:
      check()
      if how == 'moved':
        os.rename(run_dir, f'{run_dir}_2')
      elif how.startswith('lock'):
        os.remove(lock)
      else:
        shutil.rmtree(run_dir)
      if how.endswith('made again'):
        os.makedirs(run_dir, exist_ok=True)
        pathlib.Path(lock).touch()
      with self.assertRaisesRegex(
          program.UserError, f'{run_dir} was removed or moved while'):
        check()
      if how == 'moved':
        os.rename(f'{run_dir}_2', run_dir)
        check()
