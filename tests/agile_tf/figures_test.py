"""Tests for figures: the drawings and the table."""

import json

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from agile_tf import figures
from agile_tf.reproduction import paper
from agile_tf.reproduction import results
from tests.agile_tf import finished


def _solid(drawing):
  return [line for ax in drawing.axes for line in ax.lines
          if line.get_linestyle() == '-']


def _dashed(drawing):
  return [line for ax in drawing.axes for line in ax.lines
          if line.get_linestyle() == '--' and len(line.get_xdata())]


class FiguresTest(parameterized.TestCase):

  def test_draws_what_there_is(self):
    runs = {
        name: [finished.run(name, seed, success_rate=[.1, .5, .7],
                            reward_model_accuracy=[.5, .8, .9],
                            false_positives=[.4, .1, .1],
                            false_negatives=[.1, .1, 0]) for seed in range(2)]
        for name in ('relations', 'relations_lstm', 'data_512', 'remark_log')}
    drawings = figures.draw(runs)
    self.assertEqual(set(drawings), {
        'figure4_left', 'figure4_middle', 'figure4_right', 'figure7', 'figure8',
        'remarks'})
    whole, complete = _solid(drawings['figure4_left'])
    for ours in whole, complete:
      np.testing.assert_allclose(ours.get_ydata(), [.1, .5, .7])
    # The paper's five curves are drawn even without ours.
    ends = sorted(line.get_ydata()[-1]
                  for line in _dashed(drawings['figure4_left']))
    np.testing.assert_allclose(
        ends, [.874, .876, .947, .990, .996], atol=.001)

  def test_figure_7_has_the_mean_of_the_best_rates(self):
    runs = {'data_512': [
        finished.run('data_512', seed, success_rate=rates)
        for seed, rates in enumerate(([.1, .3, .2], [.1, .2, .5]))]}
    ax, = figures.draw(runs)['figure7'].axes
    ours = ax.containers[0].lines[0]
    self.assertEqual([float(x) for x in ours.get_xdata()], [512])
    self.assertAlmostEqual(float(ours.get_ydata()[0]), .4)

  @parameterized.parameters((1e6, 4e7), (4e7, 8e7), (3e8, 5e8), (6e8, 6e8))
  def test_runs_of_the_papers_job_share_its_axis(self, steps, end):
    run = finished.run('relations', steps=[steps / 2, steps],
                       success_rate=[.1, .2])
    drawing = figures.draw({'relations': [run]})['figure4_left']
    self.assertLen(drawing.axes, 1)
    self.assertEqual(drawing.axes[0].get_title(), '')
    self.assertAlmostEqual(drawing.axes[0].get_xlim()[1] / end, 1, places=2)

  def test_long_runs_are_averaged_as_the_papers_curves(self):
    window = paper.curve('relations', 'success_rate').window
    steps = window * np.array([.5, 1, 1.5, 2])
    rates = [.1, .3, .5, .9]
    run = finished.run('relations', steps=steps, success_rate=rates)
    drawing = figures.draw({'relations': [run]})['figure4_left']
    for line in _solid(drawing):
      np.testing.assert_allclose(line.get_xdata(), steps[1:])
      np.testing.assert_allclose(line.get_ydata(), [.2, .4, .7])
    dotted, = [line for line in drawing.axes[0].lines
               if line.get_linestyle() == ':' and len(line.get_xdata())]
    np.testing.assert_allclose(dotted.get_ydata(), rates)
    # Shorter runs, and smaller jobs, are drawn as they are.
    for changes in {'steps': steps / 2.5}, {'instructions': '^North'}:
      run = finished.run(**{'steps': steps, 'success_rate': rates} | changes)
      for line in _solid(
          figures.draw({'relations': [run]})['figure4_left']):
        np.testing.assert_allclose(line.get_ydata(), rates)

  def test_evaluations_are_dots_with_their_intervals(self):
    evaluation = {'steps': 20, 'success': {
        'all': {'rate': .5, 'interval': [.4, .7]}}}
    runs = [
        finished.run('remark_log', seed, success_rate=[.1, .2],
                     reward_model_accuracy=[.5, .6])._replace(
                         evaluations={'evaluation': evaluation} if seed else {})
        for seed in range(2)]
    drawing = figures.draw({'remark_log': runs})['remarks']
    success, accuracy = drawing.axes
    dot, = success.containers
    self.assertEmpty(accuracy.containers)
    line, _, (interval,) = dot.lines
    np.testing.assert_allclose(line.get_xydata(), [[20, .5]])
    np.testing.assert_allclose(
        interval.get_segments(), [[[20, .4], [20, .7]]])
    for ax, expected in (success, True), (accuracy, False):
      self.assertEqual(
          'ours, evaluated (95 % interval)' in [
              text.get_text() for text in ax.get_legend().get_texts()],
          expected)

  def test_long_names_do_not_take_the_room_of_the_curves(self):
    drawing = figures.draw({'a3c_rp_mean_loss': [
        finished.run('a3c_rp_mean_loss', success_rate=[.1, .2])]}
    )['a3c_rp_readings']
    texts = [text.get_text() for text in
             drawing.axes[0].get_legend().get_texts()]
    self.assertIn(
        'A3C-RP --policy_epsilon=22.5\n--policy_gradient_norm=600\n'
        '--reward_prediction_cost=15 (1)', texts)

  def test_a_smaller_job_has_an_axis_of_its_own_and_says_so(self):
    small = finished.run(
        'relations', success_rate=[.1, .2], instructions='^North')
    drawing = figures.draw({'relations': [small]})['figure4_left']
    self.assertLen(drawing.axes, 2)
    self.assertIn('smaller job', drawing.axes[0].get_title())
    self.assertIn('| `^North` |', figures.table({'relations': [small]}))
    whole = finished.run('relations_a3c', success_rate=[.1, .2])
    with self.assertRaisesRegex(results.ResultError, 'Draw them separately'):
      figures.draw({'relations': [small], 'relations_a3c': [whole]})

  def test_runs_of_our_own_do_not_change_the_papers_figures(self):
    runs = {'relations': [finished.run(success_rate=[.1, .2])],
            'remark_log': [finished.run('remark_log', success_rate=[.1, .2])]}
    expected = figures.draw(runs)['remarks']
    runs['quickstart_rho25'] = [finished.run(
        'quickstart_rho25', instructions='red', success_rate=[.1, .2])]
    drawings = figures.draw(runs)
    self.assertIn('quickstart_rho', drawings)
    for drawing in expected, drawings['remarks']:
      self.assertLen(_solid(drawing), 4)  # A thin and a thick one for each.
      self.assertIn('AGILE, rho 25 % (1)', [
          text.get_text() for text in drawing.axes[0].get_legend().texts])

  @parameterized.parameters(
      ([25e6, 500.1e6], True), ([1e6, 500e6], False), ([25e6, 600e6], False))
  def test_the_papers_rate_is_that_after_each_seeds_steps(self, ends, known):
    runs = [finished.run(seed=i, steps=[end / 2, end], success_rate=[.1, .2])
            for i, end in enumerate(ends)]
    row = [cell.strip() for cell in
           figures.table({'relations': runs}).splitlines()[2].split('|')]
    published = paper.curve('relations', 'success_rate')
    mean = np.mean([
        np.interp(end, published.steps, published.mean) for end in ends])
    self.assertEqual(row[9], f'{100 * mean:.1f} %' if known else '')
    # Its window holds the second row, and of shorter runs a part of the first.
    window = published.window
    averaged = [.2 - .1 * max(1 - end / 2 / window, 0) for end in ends]
    self.assertEqual(
        row[8], f'{100 * np.mean(averaged):.1f} ± '
        f'{100 * np.std(averaged, ddof=1):.1f} %' if known else '')

  def test_a_replica_is_drawn_beside_its_own_base(self):
    for instructions, base in (('', 'AGILE, rho 25 %'),
                               ('^North', 'AGILE, rho 100 %')):
      drawing = figures.draw({
          name: [finished.run(name, success_rate=[.1, .2],
                              instructions=instructions)]
          for name in ('relations', 'relations_rho100', 'remark_log')
      })['remarks']
      legend = [text.get_text() for text in
                drawing.axes[0].get_legend().get_texts()]
      self.assertIn(f'{base} (1)', legend)
      self.assertNotIn('AGILE, rho', ' '.join(legend).replace(base, ''))

  def test_agile_that_predicts_rewards_is_called_agile_rp(self):
    text = figures.table({
        'relations_rho50': [finished.run(
            'relations_rho50', success_rate=[.1],
            changes={'reward_prediction': True})],
        'relations_a3c_rp': [finished.run(
            'relations_a3c_rp', success_rate=[.1],
            changes={'reward_prediction': True, 'reward': 'environment'})],
        'relations_rho100': [finished.run(
            'relations_rho100', success_rate=[.1])]})
    labels = [line.split(' | ')[0] for line in text.splitlines()[2:]]
    self.assertEqual(labels, [
        '| A3C-RP', '| AGILE-RP, rho 50 %', '| AGILE, rho 100 %'])

  def test_runs_of_ones_own_are_in_a_figure_of_their_own(self):
    runs = {
        'quickstart': [finished.run('quickstart', success_rate=[.1, .9],
                                    instructions='^Same')],
        'mine': [finished.run('mine', success_rate=[.1, .2],
                              reward_model_accuracy=[.5, .75])]}
    drawings = figures.draw(runs)
    self.assertEqual([*drawings], ['runs'])
    legend = [text.get_text() for text in
              drawings['runs'].axes[0].get_legend().get_texts()]
    self.assertEqual(legend, ['quickstart (1)', 'mine (1)'])
    text = figures.table(runs)
    self.assertIn('| quickstart | `^Same` | 1 | 20 | 50.0 % | 90.0 % |', text)
    self.assertIn("| mine: the reward model's accuracy |", text)

  def test_table(self):
    text = figures.table({'relations': [
        finished.run(seed=0, success_rate=[.2, .9, .6],
                     reward_model_accuracy=[1, .5, 0]),
        finished.run(seed=1, success_rate=[.2, .7, .4])]})
    _, _, success, accuracy = text.splitlines()
    self.assertEqual(
        success, "| AGILE, rho 25 % | the paper's | 2 | 30 | 50.0 ± 9.4 % | "
        '80.0 ± 14.1 % |  |  |  | 99.0 % | 99.5 % |')  # 1.7 / 3 and 1.3 / 3.
    self.assertEqual(
        accuracy, "| AGILE, rho 25 %: the reward model's accuracy | the "
        "paper's | 1 | 30 | 50.0 % | 100.0 % |  |  |  | 99.0 % | 99.5 % |")

  def test_unfinished_runs_stand_beside_the_paper_after_as_many_steps(self):
    run = finished.run(steps=[1e8, 2e8], success_rate=[.5, .7])
    row = figures.table({'relations': [run]}).splitlines()[-1]
    self.assertTrue(row.endswith('| 93.7 % | 99.0 % | 99.5 % |'), row)

  def _evaluated(self, name, seed, evaluation, success):
    run_dir = self.create_tempdir(f'{name}_seed{seed}')
    run_dir.create_file('metrics.csv', 'steps,success_rate\n10,0.5\n')
    run_dir.create_file(
        f'{evaluation}.json', json.dumps({'success': success}))
    return run_dir.full_path

  def test_bars_of_evaluations(self):
    runs = results.load([
        self._evaluated('immovable', seed, 'tuned',
                        {'all': {'rate': rate, 'solvable': .8}})
        for seed, rate in enumerate((.5, .7))])
    drawing = figures.draw(runs)['figure5']
    heights = sorted(bar.get_height() for bar in drawing.axes[0].patches)
    np.testing.assert_allclose(heights, [.52, .6, .693, .98])
    legend = [text.get_text() for text in
              drawing.axes[0].get_legend().get_texts()]
    self.assertEqual(sorted(legend), ['ours (2 seeds)', 'paper', 'solvable'])
    text = figures.table(runs)
    self.assertIn('| immovable red rects: after fine-tuning | not known | 2 |  '
                  '|  |  | 60.0 ± 14.1 % |  |  |  | 69.3 % |', text)
    self.assertIn('after fine-tuning, solvable | not known | 2 |  |  |  | '
                  '80.0 ± 0.0', text)

  def test_arrangements_are_shown_by_their_blocks(self):
    runs = results.load([self._evaluated('arrangements', 0, 'evaluation', {
        'all': {'rate': .5}, '4 blocks': {'rate': .75},
        '8 blocks': {'rate': .25}})])
    drawing = figures.draw(runs)['arrangements_by_blocks']
    heights = [bar.get_height() for bar in drawing.axes[0].patches]
    np.testing.assert_allclose(heights, [.5, .58, .75, .92, .25, .24])
    legend = [text.get_text() for text in
              drawing.axes[0].get_legend().get_texts()]
    self.assertEqual(
        legend, ['ours (1 seed)', 'paper: best of 10\nseeds, by people'])
    self.assertIn(
        '| Arrangements: 8 blocks (paper: best of 10 seeds, by people) | '
        'not known | 1 |  |  |  | 25.0 % |  |  |  | 24.0 % |',
        figures.table(runs))

  def test_table_has_what_was_evaluated(self):
    runs = results.load([
        self._evaluated(
            'relations', seed, 'evaluation', {'all': {'rate': rate}})
        for seed, rate in enumerate((.5, .7))])
    self.assertIn('| 50.0 ± 0.0 % | 50.0 ± 0.0 % | 60.0 ± 14.1 % |  |  | '
                  '99.0 %', figures.table(runs))


if __name__ == '__main__':
  absltest.main()
