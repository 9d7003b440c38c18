"""Tests for the wheel: what `pip install .` leaves is whole."""

import configparser
import importlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

from absl.testing import absltest
import pytest

_ROOT = pathlib.Path(__file__).parent.parent


def _source() -> set[str]:
  """Returns the files of both packages that belong into the wheel."""
  flagfiles = {f'agile_tf/flagfiles/{path.name}'
               for path in (_ROOT / 'launch').glob('*.flags')}
  trained = _ROOT / 'launch/results/trained'
  files = [trained / 'config.json', *trained.glob('checkpoints/*/*')]
  return flagfiles | {
      f'agile_tf/trained/{path.relative_to(trained).as_posix()}'
      for path in files} | {
      path.relative_to(_ROOT).as_posix()
      for package in ('agile_tf', 'gridlu')
      for path in (_ROOT / package).rglob('*')
      if path.suffix in ('.py', '.html', '.css', '.js', '.csv', '.typed')}


class WheelTest(absltest.TestCase):

  @pytest.mark.slow
  def test_has_every_module_page_curve_and_marker(self):
    folder = self._copy()
    subprocess.run(
        [sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps',
         f'--wheel-dir={folder}', str(folder)], check=True)
    wheel, = folder.glob('*.whl')
    with zipfile.ZipFile(wheel) as archive:
      content = {name for name in archive.namelist()
                 if '.dist-info/' not in name}
      archive.extractall(folder / 'installed')
    self.assertEqual(content, _source())
    for name in ('agile_tf/py.typed', 'gridlu/py.typed',
                 'agile_tf/evaluation/judge_page.html',
                 'agile_tf/demo_page/page.js',
                 'agile_tf/flagfiles/quickstart.flags',
                 'agile_tf/reproduction/paper_curves/relations.success_rate.csv'):
      self.assertIn(name, content)
    paths = subprocess.run(
        [sys.executable, '-c', 'import agile_tf; from agile_tf import presets; '
         'print(presets.flagfile("relations"), agile_tf.TRAINED)'],
        cwd=folder / 'installed', env=os.environ | {'PYTHONPATH': ''},
        stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    self.assertEqual(paths, [
        str(folder / 'installed/agile_tf' / name)
        for name in ('flagfiles/relations.flags', 'trained')])

  def _copy(self) -> pathlib.Path:
    """Copies the source: a build leaves files beside it, and takes up old."""
    folder = pathlib.Path(self.create_tempdir().full_path)
    for name in ('setup.cfg', 'pyproject.toml', 'README.md', 'LICENSE'):
      shutil.copy(_ROOT / name, folder)
    for name in ('agile_tf', 'gridlu', 'launch'):
      shutil.copytree(_ROOT / name, folder / name, symlinks=True)
    return folder

  @pytest.mark.slow
  @pytest.mark.skipif(importlib.util.find_spec('mypy') is None,
                      reason='needs mypy')
  def test_type_checkers_and_editors_find_an_editable_install(self):
    folder = self._copy()
    python = folder / 'environment/bin/python'
    program = folder / 'elsewhere/program.py'
    program.parent.mkdir()
    program.write_text('import agile_tf\nimport gridlu\n'
                       'reveal_type(gridlu.satisfied)\n', 'utf-8')
    for arguments in (
        [sys.executable, '-m', 'venv', folder / 'environment'],
        [python, '-m', 'pip', 'install', '--quiet', '--no-deps', '-e', folder]):
      subprocess.run(arguments, check=True)
    printed = subprocess.run(
        [sys.executable, '-m', 'mypy', f'--python-executable={python}',
         '--cache-dir=/dev/null', program],
        cwd=program.parent, stdout=subprocess.PIPE, text=True, check=False
        ).stdout
    self.assertIn('Revealed type is "def (instruction:', printed)
    self.assertNotIn('import-not-found', printed)

  def test_every_command_starts_a_program(self):
    settings = configparser.ConfigParser()
    settings.read(_ROOT / 'setup.cfg')
    commands = settings['options.entry_points']['console_scripts'].split('\n')
    programs = {
        f'{package}.{path.stem}' for package in ('agile_tf', 'gridlu')
        for path in (_ROOT / package).glob('*.py')
        if '\n@program.main(' in path.read_text('utf-8')}
    for command in filter(None, commands):
      name, path = command.split(' = ')
      module, function = path.split(':')
      self.assertEqual(
          module.replace('agile_tf.', 'agile-').replace('gridlu.', 'gridlu-')
          .replace('_', '-'), name)
      self.assertTrue(callable(
          getattr(importlib.import_module(module), function)))
      programs.remove(module)
    self.assertEmpty(programs)

  @pytest.mark.slow
  def test_help_of_every_command_exits_with_0(self):
    settings = configparser.ConfigParser()
    settings.read(_ROOT / 'setup.cfg')
    for command in filter(None, settings['options.entry_points'][
        'console_scripts'].split('\n')):
      module = command.split(' = ')[1].split(':')[0]
      result = subprocess.run(
          [sys.executable, '-m', module, '--help'], capture_output=True,
          text=True, check=False)
      self.assertEqual((result.returncode, result.stderr), (0, ''), module)
      self.assertIn('--help', result.stdout)

  def test_windows_is_refused_by_name(self):
    result = subprocess.run(
        [sys.executable, '-c', 'import gridlu, sys; sys.platform = "win32"; '
         'import agile_tf'], stderr=subprocess.PIPE, text=True, check=False)
    self.assertIn('ImportError: agile_tf does not run on Windows. Use Linux',
                  result.stderr)
