"""Tests that the agent that comes with the code does what README.md says."""

import contextlib
import io
import os
import pathlib
import re

from absl.testing import parameterized
import numpy as np
import pytest

from agile_tf.evaluation import trained

_ROOT = pathlib.Path(__file__).parent.parent


class ReadmeTest(parameterized.TestCase):

  @pytest.mark.slow
  def test_reward_model_answers(self):
    example, = re.findall(
        r'```python\n(.*?)```', (_ROOT / 'README.md').read_text('utf-8'),
        re.DOTALL)
    printed = io.StringIO()
    before = os.getcwd()
    os.chdir(_ROOT)
    self.addCleanup(os.chdir, before)
    with contextlib.redirect_stdout(printed):
      exec(example, {})
    red, green, blue = np.array(
        printed.getvalue().strip('[]\n').split(), float)
    self.assertGreater(red, .5)
    self.assertLess(max(green, blue), .5)

  @parameterized.parameters(('trained', .85, .95),
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
