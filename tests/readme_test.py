"""Tests that the agents and commands of the READMEs do what these say."""

import contextlib
import functools
import importlib
import io
import pathlib
import re
from unittest import mock

from absl import flags
from absl.testing import parameterized
import numpy as np
import pytest

from agile_tf import records
from agile_tf.evaluation import trained
from gridlu import program

_ROOT = pathlib.Path(__file__).parent.parent


@functools.cache
def _flags(module):
  """Returns the names of a program's flags."""
  known = set()

  def run(function, flags_parser):
    del function, flags_parser
    known.update(flags.FLAGS)

  with mock.patch.object(program.app, 'run', run):
    importlib.import_module(module).main()
  return known


class ReadmeTest(parameterized.TestCase):

  def test_commands_have_flags_that_exist(self):
    seen = 0
    for path in [_ROOT / 'README.md', *_ROOT.glob('*/*.md'),
                 *_ROOT.glob('launch/*/*.md'), *_ROOT.glob('launch/*.flags')]:
      text = path.read_text('utf-8').replace('\\\n', ' ')
      for module, arguments in re.findall(
          r'((?:agile_tf|gridlu)\.[a-z_]+)((?:(?: +|\s+(?=-))[^\s`|)#]+)+)',
          text):
        if not re.search(r'\s-', arguments):
          continue
        known = _flags(module) | {'flagfile', 'help'}
        for name in re.findall(r'\s--?([a-z_]+)', arguments):
          seen += 1
          self.assertIn(name if name in known else name.removeprefix('no'),
                        known, f'{path}: {module}{arguments}')
    self.assertGreater(seen, 60)

  def test_published_figures_have_their_data_and_their_sentence(self):
    folder = _ROOT / 'launch/results/figures'
    names = {path.stem for path in folder.glob('*.png')}
    self.assertNotEmpty(names)
    for kind in 'csv', 'txt':
      self.assertEqual({path.stem for path in folder.glob(f'*.{kind}')}, names)
    shown = ''.join(path.read_text('utf-8') for path in (
        _ROOT / 'README.md', _ROOT / 'launch/results/README.md',
        *(_ROOT / 'docs').glob('*.md')))
    for name in names:
      self.assertIn(f'figures/{name}.png', shown)

  def test_published_curves_are_of_published_runs(self):
    folder = _ROOT / 'launch/results'
    runs = {row['run'] for row in records.rows(str(folder / 'runs.csv'))}
    curves = {row['run'] for row in records.rows(str(folder / 'scores.csv'))}
    self.assertContainsSubset(curves, runs)

  def test_gridlu_examples_run(self):
    text = (_ROOT / 'docs/gridlu.md').read_text('utf-8')
    first, second, _ = re.findall(r'```python\n(.*?)```', text, re.DOTALL)
    for example in first, second:  # The third needs Stable-Baselines3.
      exec(example, {})

  @pytest.mark.slow
  def test_reward_model_answers(self):
    example, = re.findall(
        r'```python\n(.*?)```', (_ROOT / 'README.md').read_text('utf-8'),
        re.DOTALL)
    printed = io.StringIO()
    with contextlib.chdir(_ROOT), contextlib.redirect_stdout(printed):
      exec(example, {})
    red, green, blue = np.array(
        printed.getvalue().strip('[]\n').split(), float)
    self.assertGreater(red, .5)
    self.assertLess(max(green, blue), .5)

  @parameterized.parameters(('trained', .85, .95),
                            ('trained_recipe', .85, .85),
                            ('trained_arrangements', .6, .9))
  @pytest.mark.slow
  def test_agent_succeeds(self, name, least, right):
    run = trained.load(str(_ROOT / 'launch/results' / name))
    episodes = list(run.play(200, 0, greedy=False))
    # It would be much less if actions, tokens, pixels or parameters meant
    # something else than when it was trained.
    self.assertGreater(np.mean([each.success for each in episodes]), least)
    self.assertGreater(np.mean([
        each.decisions[-1] == each.success for each in episodes]), right)

  def test_agent_is_small(self):
    files = [path for path in (_ROOT / 'launch/results/trained').rglob('*')
             if path.is_file()]
    self.assertLess(sum(path.stat().st_size for path in files), 4.7e6)
