"""Tests for evaluating a run: its episodes, its report and its picture."""

import json
import os
from unittest import mock

import numpy as np
from PIL import Image

import agile_tf
from agile_tf import config as config_lib
from agile_tf import evaluate
from agile_tf import worlds
from agile_tf.evaluation import played
from agile_tf.evaluation import trained
from agile_tf.training import trainer
from agile_tf.worlds import gridlu_world
import gridlu
from gridlu import goal_dataset
from gridlu import program
from gridlu import solver
from gridlu import tasks
from tests.agile_tf import tiny
from tests.gridlu import corners
from tests.gridlu import programs


class HeldOutGoalsTest(tiny.SavedRunTest):
  changes = dict(held_out_goals=0.25, dataset_any_distractors=True)

  def test_a_report_is_about_the_goal_examples_that_the_run_held_out(self):
    with mock.patch.object(evaluate.options.machine, 'prepare'):
      printed = programs.call(
          evaluate, f'--run_dir={self.run_dir}', '--episodes=2',
          '--instructions=red').stdout
    self.assertRegex(printed, r'D > .*held-out goals mismatched goals\n0.5 ')
    parts = trainer.Trainer(tiny.plan(**self.changes))._parts
    apart = parts.data.held_out_goals
    model = agile_tf.load_reward_model(self.run_dir)
    loaded = trained.load(self.run_dir, only='red')
    found = evaluate.held_out_goals(loaded, self.run_dir)
    texts = [apart.dataset.instructions[i] for i in apart.dataset.instruction]
    np.testing.assert_allclose(
        np.sort(found['held_out_goals']),
        np.sort(model(loaded.world.pixels(apart.observations), texts)),
        rtol=1e-4)
    self.assertLen(found['held_out_goals'], 8)
    self.assertLen(found['mismatched_goals'], 8)

  def test_other_goal_examples_than_the_runs_are_left_out(self):
    path = os.path.join(self.create_tempdir().full_path, 'goals.npz')
    kept = goal_dataset.generate('relations', 50, 3, [
        "SameLocation(AGENT, Color('red', SCENE))"])
    goal_dataset.save(path, kept)
    run_dir = tiny.save_for(
        type(self), dataset=path, held_out_goals=0.1, instructions='red',
        steps=64)
    loaded = trained.load(run_dir)
    self.assertLen(
        evaluate.held_out_goals(loaded, run_dir)['held_out_goals'], 5)
    goal_dataset.save(path, goal_dataset.generate('relations', 50, 4, [
        "SameLocation(AGENT, Color('red', SCENE))"]))
    for problem in 'the SHA-256', 'there is no such file':
      with self.assertLogs(level='WARNING') as logs:
        self.assertEmpty(evaluate.held_out_goals(loaded, run_dir))
      self.assertRegex(''.join(logs.output), f'left out of .*{problem}')
      if os.path.exists(path):
        os.remove(path)


class EvaluateTest(tiny.SavedRunTest):

  def test_evaluate_reports_and_draws(self):
    folder = self.create_tempdir().full_path
    path = os.path.join(folder, 'report.json')
    for kind in 'gif', 'png':
      picture = os.path.join(folder, f'final.{kind}')
      with mock.patch.object(evaluate.options.machine, 'prepare'):
        printed = programs.call(
            evaluate, f'--run_dir={self.run_dir}', '--episodes=10',
            f'--picture={picture}', f'--output={path}', '--instructions=red',
            '--physics=immovable_red_rects', '--solved_starts').stdout
      with Image.open(picture) as image:
        self.assertEqual(getattr(image, 'n_frames', 1) > 1, kind == 'gif')
    with open(path, encoding='utf-8') as file:
      report = json.load(file)
    self.assertEqual(report['steps'], 0)
    self.assertEqual((report['world'], report['physics']),
                     ('relations', 'immovable_red_rects'))
    self.assertEqual(report['instructions'], 'red')
    self.assertTrue(report['solved_starts'])
    self.assertEqual(report['success']['all']['episodes'], 10)
    self.assertEqual(
        report['success']['SameLocation'], report['success']['all'])
    self.assertBetween(report['success']['all']['solvable'], .3, 1)
    self.assertIn(evaluate.table(report), printed)
    self.assertRegex(
        printed, rf'{self.run_dir} at step 0: world relations, \d+ instruct'
        r"ions that match 'red', immovable_red_rects physics, 4 steps, "
        r'a reward model that accepts D > 0.5, sampled actions, also from st')
    # Without directions and with one operand there are no other exchanges.
    self.assertLen(report['exchanges'], 6)
    self.assertLen(report['crowds'], 9)
    for name, row in (report['exchanges'] | report['crowds']).items():
      self.assertGreater(row['states'], 100)
      self.assertRegex(
          printed, rf'{name} +{row["states"]} +\d+\.\d %')
    self.assertRegex(printed, r'all +10 +\d+\.\d %.* to .* % +\d+\.\d %')

  def test_starts_without_a_ground_truth_cannot_be_chosen(self):
    run_dir = tiny.save_for(
        type(self), world='arrangements', instructions='Snake')
    with mock.patch.object(evaluate.options.machine, 'prepare'):
      result = programs.call(
          evaluate, f'--run_dir={run_dir}', '--nosolved_starts')
    self.assertEqual(result.returncode, 1)
    self.assertStartsWith(
        result.stderr,
        'Error: --nosolved_starts: --world=arrangements has no ground truth')

  def test_flags_reach_the_episodes(self):
    with (mock.patch.object(evaluate.options.machine, 'prepare'),
          mock.patch.object(evaluate.options, 'check') as check,
          mock.patch.object(trained, 'load') as load):
      load.return_value.world = mock.Mock(spec=gridlu_world.GridLUWorld)
      load.return_value.world.has_ground_truth = True
      load.return_value.play.side_effect = program.UserError('enough')
      programs.call(evaluate, '--run_dir=a', '--held_out', '--greedy',
                    '--seed=7', '--episodes=3', '--nosolved_starts',
                    '--physics=normal')
      asked = load.call_args.kwargs
      programs.call(evaluate, '--run_dir=a')
    self.assertEqual(asked, dict(
        world='', model='', only='', held_out_instructions=True,
        physics='normal', solved_starts=False))
    self.assertEqual(check.call_args.args, ('a', None, '', '', ''))
    self.assertEqual([call.args for call in load().play.call_args_list],
                     [(3, 7, True), (1000, 1_000_003, False)])

  def test_a_picture_shows_final_states_and_verdicts(self):
    world = worlds.GridLUWorld()
    states = goal_dataset.generate('relations', 6, seed=1).states
    episodes = [
        played.Episode('go', states[i:i + 2], np.zeros([1], bool), truth)
        for i, truth in ((0, np.array([True])), (2, np.array([False])),
                         (4, None))]
    with mock.patch.object(evaluate.rendering, 'contact_sheet') as sheet:
      evaluate.picture(episodes, world)
    (images, captions), _ = sheet.call_args
    np.testing.assert_array_equal(images, world.pixels(states[1::2]))
    self.assertEqual(
        captions, ['go: reached', 'go: not reached', 'go: no ground truth'])

  def test_an_animation_shows_d_and_what_it_accepts(self):
    states = goal_dataset.generate('relations', 3, seed=1).states
    agent = mock.Mock(
        world=worlds.GridLUWorld(), config=tiny.config(reward_threshold=0.3))
    agent.as_reward_model.return_value = lambda *_: np.array([.2, .8])
    with mock.patch.object(evaluate.rendering, 'contact_sheet') as sheet:
      self.assertLen(list(evaluate.animate(
          [played.Episode('a', states[:1], None, None),
           played.Episode('b', states[1:], None, None)], agent)), 2)
    images, captions = sheet.call_args.args
    self.assertEqual(captions, ['D = 0.20\na', 'D = 0.80, accepted\nb'])
    np.testing.assert_array_equal(
        images[:, :56], agent.world.pixels(states[[0, 2]]))
    for image, end, level in zip(images, (12, 45), (140, 0), strict=True):
      self.assertTrue(np.all(image[57:, :end] == level))
      self.assertTrue(np.all(image[57:, end:] == 225))

  def test_files_that_cannot_be_written_are_named_first(self):
    for flag in ('--picture=final.jpg', '--picture=.gif',
                 '--output=/no/folder/report.json', '--output=/dev/null'):
      run = programs.call(evaluate, '--run_dir=/no/run', flag)
      self.assertEqual(run.returncode, 1)
      self.assertStartsWith(run.stderr, f'Error: {flag}')

  def test_no_output_replaces_a_file_of_the_run_or_another_output(self):
    with open(os.path.join(self.run_dir, 'config.json'), 'rb') as file:
      config = file.read()
    link = os.path.join(self.create_tempdir().full_path, 'link')
    os.symlink(self.run_dir, link)
    for path in (f'{self.run_dir}/config.json', f'{link}/metrics.csv',
                 f'{self.run_dir}/checkpoints/report.json'):
      result = programs.call(
          evaluate, f'--run_dir={self.run_dir}', f'--output={path}')
      self.assertRegex(result.stderr, 'is a file of the run itself')
      self.assertEqual(result.returncode, 1)
    with open(os.path.join(self.run_dir, 'config.json'), 'rb') as file:
      self.assertEqual(file.read(), config)
    path = self.create_tempfile('both.png').full_path
    result = programs.call(
        evaluate, f'--run_dir={self.run_dir}', f'--output={path}',
        f'--picture={path}')
    self.assertRegex(result.stderr, 'is also --output: name two files')

  def test_a_report_counts_last_states_and_all_decisions(self):
    def episode(decisions, truth):
      image = np.zeros([24, 24, 3], np.uint8)
      return played.Episode(
          'go', image[None], np.array(decisions, bool), np.array(truth, bool))

    report = evaluate.summarize([
        episode([0, 0, 1], [1, 0, 1]),  # Both accept the last state.
        episode([1, 0], [0, 1]),
        episode([1, 1, 0], [0, 1, 0]),  # A goal state is left again.
        episode([0], [0])])
    self.assertEqual(report['success']['all']['rate'], 0.5)
    self.assertEqual(report['reached'], played.rate([True, True, True, False]))
    self.assertEqual(report['modelled_success'], 0.25)
    self.assertEqual(report['modelled_interval'], played.interval(1, 4))
    errors = report['reward_model']
    # Of nine states two are accepted wrongly, and two rejected wrongly.
    self.assertAlmostEqual(errors['false_positives'], 2 / 9)
    self.assertAlmostEqual(errors['false_negatives'], 2 / 9)
    self.assertAlmostEqual(errors['reward_model_accuracy'], 5 / 9)
    self.assertEqual(evaluate.table(report).splitlines()[-4:], [
        'A goal state was reached at some step, the last or another, in 75.0 % '
        'of episodes (30.1 to 95.4 %).', '',
        'The reward model accepts 25.0 % of final states (4.6 to 69.9 %).',
        'On all states that the policy reached it is right in 55.6 %; false '
        'positives 22.2 %, false negatives 22.2 %.'])

  def test_a_judgement_is_of_all_states_and_by_the_runs_threshold(self):
    def episode(probabilities, truth):
      image = np.zeros([24, 24, 3], np.uint8)
      return played.Episode(
          'go', image[None], probabilities=np.array(probabilities, np.float32),
          truth=None if truth is None else np.array(truth, bool))

    pairs = [([.1, .97], [0, 1]), ([.6], [1]), ([.85, .55, .2], [0, 0, 1])]
    own = tiny.config(reward_threshold=0.57)
    report = evaluate.judgement(
        [episode(*pair) for pair in pairs], own,
        {'held_out_goals': np.array([.3, .96]),
         'mismatched_goals': np.array([.3, .2])})
    self.assertEqual([row['threshold'] for row in report['thresholds']],
                     [0.5, 0.57, 0.8, 0.9, 0.95])
    for name, expected in (
        ('policy_states_accepted', [4, 3, 2, 1, 1]),
        ('false_positives', [2, 1, 1, 0, 0]),
        ('false_negatives', [1, 1, 2, 2, 2])):
      self.assertEqual([round(6 * row[name], 5) for row in report['thresholds']
                       ], expected, name)
    self.assertEqual(
        [(row['low'], row['states'], row['goal_states'])
         for row in report['reliability']],
        [(.1, 1, 0), (.2, 1, 1), (.5, 1, 0), (.6, 1, 1), (.8, 1, 0),
         (.9, 1, 1)])
    lines = evaluate.table({'episodes': 3} | report).splitlines()
    self.assertIn(
        "D >     policy's states wrongly accepted wrongly rejected   held-out "
        'goals mismatched goals', lines)
    self.assertIn(
        '0.57             50.0 %           16.7 %           16.7 %           '
        '50.0 %            0.0 %', lines)
    self.assertIn('0.9 to 1          1    0.970      100.0 %', lines)
    unknown = evaluate.judgement(
        [episode(values, None) for values, _ in pairs], own, {})
    self.assertEqual([*unknown], ['thresholds'])
    self.assertEqual(
        unknown['thresholds'][0],
        {'threshold': 0.5, 'policy_states_accepted': 4 / 6})
    self.assertEmpty(evaluate.judgement(
        [played.Episode('go', np.zeros([1, 9], np.uint8))], own, {}))

  def test_groups_of_other_worlds_are_not_gridlus(self):
    image = np.zeros([24, 24, 3], np.uint8)
    for text, expected in (
        ("NorthFrom(Shape('rect', SCENE), AGENT)",
         ['all', 'go to', 'NorthFrom']),
        ("NorthFrom(Shape('rect', SCENE), Color('red', SCENE))",
         ['all', 'bring to', 'NorthFrom']),
        ('open(door)', ['all', 'open']), ('Line(door)', ['all', 'Line']),
        ('Line(AGENT, SCENE)', ['all', 'Line']), ('go to the door', ['all'])):
      groups = evaluate.summarize([played.Episode(
          text, image[None], None, np.array([True]))])['success']
      self.assertEqual(list(groups), expected)

  def test_groups_of_a_new_task_are_its_own(self):
    drawn = corners.instances(np.random.default_rng(0), 40)
    starts = gridlu.world.pack(drawn.state)
    texts = [str(i) for i in corners.all_instructions()]
    episodes = [
        played.Episode(texts[drawn.instruction[i]], starts[i:i + 1], None,
                       np.array([True])) for i in range(40)]
    with mock.patch.dict(
        tasks.TASKS, corners=tasks.from_module(corners)):
      groups = evaluate.summarize(episodes)['success']
      possible = evaluate.solvable(episodes, config_lib.Config(
          world='corners', episode_length=20))
    self.assertEqual(list(groups), ['all', 'red', 'other'])
    self.assertEqual(
        groups['red']['episodes'], np.sum(drawn.instruction == 0))
    self.assertTrue(np.all(possible))

  def test_each_group_has_its_own_ceiling(self):
    episodes = [
        played.Episode(text, np.zeros([2, 27], np.uint8), None,
                       np.array([True]))
        for text in ("NorthFrom(Color('red', SCENE), Shape('circle', SCENE))",
                     "SouthFrom(AGENT, Color('red', SCENE))")]
    groups = evaluate.summarize(
        episodes, np.array([True, False]))['success']
    self.assertEqual({name: group['solvable'] for name, group in groups.items()
                      }, {'all': .5, 'go to': 0, 'bring to': 1,
                          'NorthFrom': 1, 'SouthFrom': 0})

  def test_episodes_without_pictures_keep_their_first_and_last_state(self):
    episodes = [
        played.Episode('go', np.array([[i], [9], [i + 5]], np.uint8))
        for i in range(3)]
    with mock.patch.object(evaluate.options, 'PICTURED', 1):
      made = evaluate.options.play(
          mock.Mock(**{'play.return_value': episodes}), mock.Mock(episodes=3))
    self.assertEqual([episode.states[:, 0].tolist() for episode in made],
                     [[0, 9, 5], [1, 6], [2, 7]])

  def test_ceilings_are_of_the_episodes_start_and_length(self):
    red = gridlu.world.block('rect', 'red')
    text = "NorthFrom(Color('red', SCENE), Shape('circle', SCENE))"
    blocks = np.zeros([5, 5], np.int32)
    blocks[2, 2], blocks[4, 4] = red, gridlu.world.block('circle', 'blue')
    start = gridlu.world.pack(gridlu.world.State(
        blocks, np.array([2, 0], np.int32), np.array(False)))
    # Two steps to the block, lift it, and one down and two to the right.
    episode = played.Episode(text, start[None], None, np.array([True]))
    for length, physics, expected in (
        (6, 'normal', True), (5, 'normal', False),
        (30, 'immovable_red_rects', True), (6, 'immovable_red_rects', False)):
      self.assertEqual(evaluate.solvable([episode], config_lib.Config(
          episode_length=length, physics=physics)), [expected])
    with mock.patch.object(evaluate.solver, 'shortest', return_value=np.array(
        [solver.UNKNOWN, solver.UNSOLVABLE, 3])):
      self.assertEqual(list(evaluate.solvable(
          3 * [episode], config_lib.Config())), [False, False, True])
    self.assertIsNone(evaluate.solvable(
        [episode], config_lib.Config(world='agile_tf.own_world:make_world')))
