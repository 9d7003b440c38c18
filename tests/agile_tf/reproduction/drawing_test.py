"""Tests for the drawing of figures: their lines, names, bars and dots."""

import io
from unittest import mock
import warnings

from absl.testing import absltest
from absl.testing import parameterized
from matplotlib import colors
import numpy as np

from agile_tf.evaluation import played
from agile_tf.reproduction import drawing
from agile_tf.reproduction import results


def _lines(*rates, agent='AGILE', source=results.OURS, low=np.nan):
  """Returns a line for each seed, with a point at each whole step."""
  return [results.Line.of(
      agent, source, i, 'success_rate', np.arange(1, len(y) + 1), y, low,
      np.add(y, .1)) for i, y in enumerate(rates)]


def _drawn(ax, color):
  """Returns the points of a panel's lines of a colour, without empty ones."""
  return [line.get_xydata() for line in ax.lines
          if colors.same_color(line.get_color(), color)
          and len(line.get_xdata())]


def _panels(drawn):
  return [ax for ax in drawn.axes if ax.get_visible()]


def _texts(ax):
  return [text.get_text() for text in ax.texts]


class CurvesTest(parameterized.TestCase):

  def test_seeds_are_light_and_their_mean_is_strong(self):
    lines = _lines([.1, .2, .6], [.3, .6])
    ax, = _panels(drawing.draw(lines))
    np.testing.assert_allclose(
        _drawn(ax, drawing._LIGHT)[0], lines[0].points[:, :2])
    np.testing.assert_allclose(
        _drawn(ax, drawing._LIGHT)[1], lines[1].points[:, :2])
    # The mean is where both are.
    np.testing.assert_allclose(
        _drawn(ax, drawing._OURS), [[[1, .2], [2, .4]]])
    self.assertEqual(ax.get_title('left'), 'AGILE (2 seeds)')

  def test_the_mean_of_long_curves_lies_between_their_points(self):
    x = np.arange(0, 40, 2)
    lines = [results.Line.of('A3C', results.OURS, 0, 'success_rate', x, x / 40),
             results.Line.of('A3C', results.OURS, 1, 'success_rate', x + 1,
                             (x + 1) / 80)]
    ax, = _panels(drawing.draw(lines))
    mean, = _drawn(ax, drawing._OURS)
    np.testing.assert_allclose(mean[:, 0], np.arange(1, 39))
    np.testing.assert_allclose(mean[:, 1], np.arange(1, 39) * (1/40 + 1/80) / 2)

  def test_the_averaged_line_is_the_strong_one(self):
    ax, = _panels(drawing.draw(
        _lines([.1, .2]) + _lines([.3, .4], source=results.AVERAGED) +
        _lines([.4, .5], source=results.PAPER, low=.3) +
        _lines([.25], source=results.EVALUATED, low=.2)))
    np.testing.assert_allclose(
        _drawn(ax, drawing._LIGHT)[0], [[1, .1], [2, .2]])
    np.testing.assert_allclose(
        _drawn(ax, drawing._OURS)[0], [[1, .3], [2, .4]])
    np.testing.assert_allclose(_drawn(ax, drawing._PAPER), [[[1, .4], [2, .5]]])
    dot, = ax.containers
    np.testing.assert_allclose(
        dot.lines[2][0].get_segments(), [[[1, .2], [1, .35]]])
    self.assertEqual(_texts(ax), ['ours, 40.0 %', 'the paper'])

  def test_each_agent_has_a_panel_with_the_others_in_grey(self):
    x = np.arange(20)
    one, other = (results.Line.of(
        name, results.OURS, 0, 'success_rate', x, x / size)
                  for name, size in (('A3C', 20), ('AGILE', 40)))
    panels = _panels(drawing.draw([one, other]))
    self.assertEqual(
        [ax.get_title('left') for ax in panels], ['A3C', 'AGILE'])
    for ax, own, grey in zip(panels, (one, other), (other, one), strict=True):
      np.testing.assert_allclose(_drawn(ax, drawing._OURS)[0],
                                 own.points[:, :2])
      np.testing.assert_allclose(_drawn(ax, drawing._GREY)[0],
                                 grey.points[:, :2])

  def test_a_single_point_of_the_paper_is_a_height(self):
    end = results.Line.of('AGILE', results.PAPER, '', 'success_rate', 5e8, .99)
    ax, = _panels(drawing.draw([*_lines([.1, .2]), end]))
    height, = _drawn(ax, drawing._PAPER)
    np.testing.assert_allclose(height[:, 1], .99)
    self.assertIn('the paper at its end', _texts(ax))
    self.assertLess(ax.get_xlim()[1], 3)

  def test_names_at_the_ends_of_lines_are_apart(self):
    ax, = _panels(drawing.draw(
        _lines([.1, .5]) + _lines([.2, .5], source=results.PAPER)))
    low, high = sorted(text.xy[1] for text in ax.texts)
    self.assertGreater(high - low, .02)

  @parameterized.parameters(('_old', '_old'), ('$x$', '$x$'))
  def test_names_are_drawn_as_they_are(self, name, expected):
    ax, = _panels(drawing.draw(_lines([.1], agent=name)))
    self.assertEqual(ax.get_title('left'), expected)
    self.assertFalse(ax._left_title.get_parse_math())

  def test_a_title_is_wrapped(self):
    drawn = drawing.draw(_lines([.1]), 'word ' * 40)
    self.assertGreater(drawn.get_suptitle().count('\n'), 1)
    self.assertEqual(drawn.get_suptitle().split(), ['word'] * 40)

  def test_bounds_that_miss_a_rate_by_rounding_are_drawn(self):
    zero, = _panels(drawing.draw([results.Line.of(
        'AGILE', results.OURS, 0, 'success_rate', [1, 2], [0., 0.])]))
    self.assertEqual(zero.get_ylim(), (0, .01))
    for successes, count in (0, 1000), (200, 200):
      low, high = played.interval(successes, count)
      ax, = _panels(drawing.draw([results.Line.of(
          'AGILE', results.EVALUATED, 0, 'success_rate', 1, successes / count,
          low, high)]))
      np.testing.assert_allclose(
          ax.containers[0].lines[2][0].get_segments(),
          [[[1, low], [1, high]]], atol=1e-6)

  @parameterized.parameters((.2, .9), (.88, .85))
  def test_the_axis_of_accuracy_leaves_out_few_points_far_below(
      self, lowest, expected):
    rates = np.where(np.arange(100) < 5, lowest, .95)
    ax, = _panels(drawing.draw([results.Line.of(
        'AGILE', results.OURS, 0, 'reward_model_accuracy', np.arange(100),
        rates)]))
    self.assertAlmostEqual(ax.get_ylim()[0], expected)

  def test_letters_beyond_english_are_drawn(self):
    lines = _lines([.1], agent='красный') + _lines([.2], agent='a\x1bb')
    with warnings.catch_warnings():
      warnings.simplefilter('error')  # Matplotlib's, of missing letters.
      drawn = drawing.draw(lines)
      drawn.savefig(io.BytesIO())
    self.assertEqual([ax.get_title('left') for ax in _panels(drawn)],
                     ['красный', r'a\x1bb'])
    with mock.patch.object(drawing.fonts, 'choose', lambda texts: (
        '', [ascii(text)[1:-1] for text in texts])):
      ax, = _panels(drawing.draw(lines[:1]))
      self.assertEqual(ax.get_title('left').replace('\n', ''),
                       ascii('красный')[1:-1])


class RatesTest(absltest.TestCase):

  def test_bars_have_the_interval_of_each_seed(self):
    column = 'success rate'
    ax, = drawing.draw([
        results.Line.of('before', results.EVALUATED, 0, column, 0, .5, .4, .6),
        results.Line.of('before', results.EVALUATED, 1, column, 0, .7, .6, .8),
        results.Line.of('before', results.PAPER, '', column, 0, .98)]).axes
    np.testing.assert_allclose(
        [bar.get_height() for bar in ax.patches], [.6, .98])
    dots, = [container for container in ax.containers
             if len(container) == 3]  # The error bars.
    np.testing.assert_allclose(
        [segment[:, 1] for segment in dots.lines[2][0].get_segments()],
        [[.4, .6], [.6, .8]])
    self.assertEqual(_texts(ax), ['60.0 %', 'ours', '98.0 %', 'the paper'])

  def test_many_rates_are_rows_of_dots(self):
    column = 'success'
    lines = [results.Line.of(str(i), results.EVALUATED, 0, column, i, i / 10,
                             i / 10 - .05, i / 10 + .05) for i in range(1, 6)]
    ax, = drawing.draw(lines).axes
    self.assertEqual([label.get_text() for label in ax.get_yticklabels()],
                     list('12345'))
    np.testing.assert_allclose(
        [dots.lines[0].get_xdata() for dots in ax.containers],
        [[.1], [.2], [.3], [.4], [.5]])
    # The first row's rate is the one to compare with.
    self.assertEqual(ax.lines[-1].get_xdata(), [.1, .1])
    ax, = drawing.draw([*lines, results.Line.of(
        '1', results.PAPER, '', column, 1, .9)]).axes
    self.assertIn('orange diamond: the paper', _texts(ax))


if __name__ == '__main__':
  absltest.main()
