"""Tests for whole runs: repeatable, resumable, and with correct metrics."""

import json
from unittest import mock

from absl.testing import parameterized
import numpy as np
import pytest

from agile_tf import config as config_lib
from agile_tf.agent import optimizers
from agile_tf.agent import rollouts
from agile_tf.agent import workers
from agile_tf.fast import networks as fast
from agile_tf.training import building
from agile_tf.training import checkpoints
from agile_tf.training import trainer as trainer_lib
import gridlu
from gridlu import program
from gridlu import tasks
from tests.agile_tf import tiny


def _run(**changes) -> trainer_lib.Trainer:
  """A run in lockstep from its start to its end."""
  trainer = trainer_lib.Trainer(tiny.plan(**changes))
  tiny.drive(trainer)
  return trainer


def _saved(trainer: trainer_lib.Trainer) -> checkpoints.Checkpoint:
  """A checkpoint as JSON leaves it."""
  checkpoint = trainer.checkpoint()
  return checkpoint._replace(values=json.loads(json.dumps(checkpoint.values)))


class TrainingTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    # The second of two workers sits out the first round: 2 + 16 * 4 steps.
    cls.trainer = _run()
    cls.end = _saved(cls.trainer)

  def test_resuming_changes_nothing(self):
    saved = _saved(_run(steps=32))
    resumed = trainer_lib.Trainer(tiny.plan())
    resumed.load(saved)
    tiny.drive(resumed)
    end = _saved(resumed)
    self.assertEqual(end.values, self.end.values)
    tiny.assert_equal_arrays(end, self.end)
    # The equality is not trivial: both networks have changed since.
    for group in ('policy', 'discriminator'):
      before = saved.group(group)
      after = end.group(group)
      for name in before:
        self.assertTrue((before[name] != after[name]).any(), name)

  @parameterized.parameters(1, 2, 6)
  def test_a_run_goes_on_in_another_number_of_threads(self, count):
    changes = dict(policy_workers=6, steps_per_discriminator_update=24)
    before = trainer_lib.Trainer(tiny.plan(policy_threads=3, **changes))
    for thread in 1, 2, 0, 2:  # Each has other episodes and generators then.
      before.iterate_policy(thread, before.snapshot())
    before.iterate_discriminator(before.snapshot())
    saved = _saved(before)
    after = trainer_lib.Trainer(tiny.plan(policy_threads=count, **changes))
    with self.assertLogs('absl', 'INFO') as logs:
      after.load(saved)
    self.assertIn(f'--policy_threads={count}; it had 3 before', logs.output[0])
    self.assertIn('would not be repeated bit for bit', logs.output[0])
    taken = _saved(after)
    tiny.assert_equal_arrays(taken, saved)
    *policy, of_d = taken.values['actors']
    self.assertEqual(list(map(len, policy)), [6 // count] * count)
    # Worker 0 to 5 in this order, and then that of the discriminator.
    self.assertEqual(sum(policy, []), sum(saved.values['actors'][:3], []))
    self.assertEqual(of_d, saved.values['actors'][3])
    self.assertEqual(
        taken.values['generators'][-1], saved.values['generators'][-1])
    self.assertEqual(taken.values['generators'][:min(count, 3)],
                     saved.values['generators'][:min(count, 3)])
    self.assertLen({str(each) for each in taken.values['generators']},
                   count + 1)
    before.load(taken)  # And back again.
    self.assertEqual(_saved(before).values['actors'], saved.values['actors'])
    after.schedule._total_steps = after.schedule.steps + 48
    tiny.drive(after)
    self.assertGreaterEqual(after.schedule.steps, 48)

  def test_a_checkpoint_of_fewer_actors_is_damaged(self):
    values = self.end.values | {'actors': self.end.values['actors'][:1]}
    with self.assertRaisesRegex(
        checkpoints.DamagedError, 'it has 2 workers; expected 3'):
      trainer_lib.Trainer(tiny.plan()).load(self.end._replace(values=values))

  def test_a_changed_world_is_not_called_damage(self):
    trainer = trainer_lib.Trainer(tiny.plan())
    world, slots = trainer.world, trainer.world.grammar.slots
    for attribute, of, value, message in (
        ('num_actions', world, 4, '5 actions; this world has 4'),
        ('observation_shape', world, (40, 40, 3),
         '27 numbers in an observation; this world has 40 x 40 x 3'),
        ('slots', world.grammar, (*slots, slots[0]),
         f'{len(slots)} positions in the trees.* has {len(slots) + 1}')):
      with (mock.patch.object(of, attribute, value),
            self.assertRaisesRegex(
                checkpoints.CheckpointError, f'with {message}') as caught):
        trainer.load(self.end)
      self.assertNotIsInstance(caught.exception, checkpoints.DamagedError)

  def test_half_of_the_workers_begin_a_rollout_later(self):
    for count in 1, 2, 4:
      trainer = trainer_lib.Trainer(
          tiny.plan(policy_workers=4, policy_threads=count))
      self.assertEqual(
          [row['delayed'] for worker in trainer.policy_workers
           for row in worker.actor.state()], [False, True] * 2)

  def test_counters_count_steps_episodes_and_updates(self):
    values = self.end.values
    self.assertEqual(values['steps'], 66)
    self.assertEqual(values['iterations'], 8)
    self.assertEqual(values['totals'], {
        'episodes': 16, 'discriminator_steps': 16,
        # A draw is 4 pairs, which B has after two rollouts of 2 steps.
        'discriminator_updates': 7})
    # Only the discriminator's worker writes to B.
    self.assertLen(self.trainer.learner.buffer, 8 * 2)

  @parameterized.parameters(True, False)
  def test_workers_that_share_b_iterate_one_after_the_other(self, shared):
    trainer = trainer_lib.Trainer(tiny.plan(all_workers_write=shared))
    self.assertEqual(trainer.crew.side_by_side, not shared)
    with mock.patch.object(trainer, 'world', mock.Mock(compiled=None)):
      # The environments of an own world may share something.
      self.assertFalse(trainer.crew.side_by_side)
    self.assertIs(trainer.policy_workers[0]._learner,
                  trainer.learner if shared else None)

  def test_closes_its_environments(self):
    trainer = trainer_lib.Trainer(tiny.plan())
    with mock.patch.object(gridlu.GridLU, 'close') as close:
      trainer.close()
      self.assertEqual(close.call_count, 2 + 1)
      with trainer.schedule.turn('policy'):  # As if it hung.
        trainer.close()
      self.assertEqual(close.call_count, 2 + 1)

  def test_rows_have_the_metrics_of_both_networks(self):
    trainer = trainer_lib.Trainer(tiny.plan())
    trainer.load(self.end)
    row = trainer.row()
    self.assertEqual(row['steps'], 66)
    self.assertEqual(row['episodes'], 16)
    self.assertEqual(row['steps_per_discriminator_update'], 66 / 8)
    self.assertAlmostEqual(
        row['reward_model_accuracy'],
        1 - row['false_positives'] - row['false_negatives'])
    for name in ('success_rate', 'reward_prediction_loss',
                 'discriminator_gradient_norm'):
      self.assertIn(name, row)
    self.assertNotIn('policy_loss', trainer.row())  # Taken is taken.

  def _recorded(self, played, **changes):
    """A row of a trainer whose worker returns these iterations of 3 steps.

    Args:
      played: For each iteration, for each of 4 workers: its steps, a loss, and
        its last state's truth and decision. Only these last states can be
        rewarded. Episodes end with them.
      **changes: Of the trainer's settings.
    """
    trainer = trainer_lib.Trainer(tiny.plan(policy_workers=4, **changes))
    worker, = trainer.policy_workers
    codes = np.zeros([4, len(trainer.world.grammar.slots)], np.int32)
    iterations = []
    for parts in played:
      steps, losses, truth, decided = map(np.array, zip(*parts))
      mask = np.arange(3)[:, None] < steps
      last = np.arange(3)[:, None] == steps - 1
      iterations.append(workers.Iteration(
          rollouts.Rollout(
              np.zeros([4, 4, 27], np.uint8), codes, np.zeros([3, 4], np.int32),
              np.float32(last & truth), np.ones([3, 4], np.float32),
              np.float32(mask), steps > 0, ('go',) * 4, truth=last & truth),
          {'loss': np.mean(losses[steps > 0])}, last & (decided > 0)))
    with mock.patch.object(worker, 'iterate', side_effect=iterations):
      steps = [trainer.iterate_policy(0, trainer.snapshot()) for _ in played]
    self.assertEqual(steps, [sum(part[0] for part in row) for row in played])
    return trainer.row()

  def test_metrics_are_means_over_workers_and_over_steps(self):
    row = self._recorded([
        [(3, 8.0, 1, 1), (0, 0.0, 0, 0)] * 2,
        [(3, 2.0, 1, 0), (1, 2.0, 0, 1)] * 2])
    self.assertEqual(row['loss'], 4)  # Of 8 twice and 2 four times.
    self.assertEqual(row['episodes'], 6)
    self.assertAlmostEqual(row['success_rate'], 4 / 6)
    self.assertAlmostEqual(row['true_reward'], 4 / 14)
    self.assertAlmostEqual(row['modelled_reward'], 4 / 14)
    self.assertAlmostEqual(row['false_positives'], 2 / 14)
    self.assertAlmostEqual(row['false_negatives'], 2 / 14)

  def test_workers_know_the_steps(self):
    trainer = trainer_lib.Trainer(tiny.plan(discriminator_head_start=3))
    worker = trainer.discriminator_worker
    rollout, read = mock.Mock(steps=2), trainer.snapshot()
    with mock.patch.object(worker, 'iterate', return_value=workers.Iteration(
        rollout, {'discriminator_loss': 1.0}, None)) as iterate:
      for steps in 0, 70:
        trainer.schedule.steps = steps
        trainer.iterate_discriminator(read)
    self.assertEqual(
        [call.args for call in iterate.call_args_list], [(read, 0), (read, 70)])
    policy, = trainer.policy_workers
    with mock.patch.object(policy, 'iterate', return_value=workers.Iteration(
        mock.Mock(steps=0), {})) as iterate:
      trainer.iterate_policy(0, read)
    self.assertEqual(iterate.call_args.args, (read, 70))
    # The head start's iterations are not in the ratio.
    trainer.schedule.iterations = 3 + 10
    self.assertEqual(trainer.row()['steps_per_discriminator_update'], 7)

  def test_a_number_that_is_not_finite_names_its_worker(self):
    trainer = trainer_lib.Trainer(
        tiny.plan(policy_workers=6, policy_threads=2))
    for worker, row, name in (
        (0, 2, 'policy worker 2'), (1, 0, 'policy worker 3'),
        (1, 1, 'policy worker 4'), (1, None, 'the averaged update')):
      error = workers.NumericsError('the loss', row, np.nan)
      of_thread = trainer.policy_workers[worker]
      with mock.patch.object(of_thread, 'iterate', side_effect=error):
        with self.assertRaisesRegex(program.UserError, f'of {name} is nan'):
          trainer.iterate_policy(worker, trainer.snapshot())

  def test_ground_truth_reward_needs_no_discriminator(self):
    row = self._recorded([[(3, 0.0, 1, 1)] * 4], reward='environment')
    self.assertEqual(row['success_rate'], 1)
    self.assertNotIn('reward_model_accuracy', row)
    trainer = trainer_lib.Trainer(tiny.plan(reward='environment'))
    self.assertFalse(trainer.checkpoint().group('discriminator'))

  def test_nothing_is_traced_again(self):
    trainer = _run(steps=40)
    trainer.schedule._total_steps = 120
    # These are called where programs and updates are traced.
    with (mock.patch.object(fast.FastNetwork, '_by_worker') as network,
          mock.patch.object(optimizers, 'clip_gradient') as update):
      tiny.drive(trainer)
    self.assertGreaterEqual(trainer.schedule.steps, 120)
    network.assert_not_called()
    update.assert_not_called()

  def test_begins_with_another_runs_policy(self):
    trainer = trainer_lib.Trainer(
        tiny.plan(initial_policy='elsewhere'), initial=self.end)
    state = trainer.policy.state()
    for name in trainer.policy.layout.names:
      np.testing.assert_array_equal(
          state[name], self.end.arrays[f'policy:{name}'], name)
      np.testing.assert_array_equal(state[f'{name}/mean_square'], 1, name)
    self.assertEqual(trainer.schedule.steps, 0)

  def test_a_branch_goes_on_with_what_another_run_had_learned(self):
    branch = trainer_lib.Trainer(tiny.plan(
        branch_from='runs/other@66', seed=5,
        steps_per_discriminator_update=11, steps=130))
    start = _saved(branch)
    branch.branch(self.end)
    taken = _saved(branch)
    self.assertEqual(taken.arrays.keys(), self.end.arrays.keys())
    tiny.assert_equal_arrays(taken, self.end)
    self.assertEqual(taken.values['steps'], 66)
    # At 66 steps a run with this ratio would have made 6 iterations.
    self.assertEqual(taken.values['iterations'], 6)
    for name in 'actors', 'generators':
      self.assertEqual(taken.values[name], start.values[name])
    tiny.drive(branch)
    end = _saved(branch)
    self.assertGreaterEqual(end.values['steps'], 130)
    made = end.values['totals']['discriminator_updates'] - 7
    self.assertBetween(made, 5, 7)

  def test_a_branch_from_another_network_is_refused(self):
    branch = trainer_lib.Trainer(tiny.plan(
        branch_from='runs/other@66', model='lstm'))
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'has no policy that fits.*same networks'):
      branch.branch(self.end)

  def test_a_branch_may_hold_out_only_what_the_other_run_did(self):
    branch = trainer_lib.Trainer(tiny.plan(
        branch_from='runs/other@66', held_out_goals=0.25))
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'held_out_goals=0.25 .* had 0.0, so its'):
      branch.branch(self.end)
    same = {**self.end.values['config'], 'held_out_goals': 0.25}
    branch.branch(
        self.end._replace(values={**self.end.values, 'config': same}))

  def test_a_run_from_before_the_late_settings_is_resumed(self):
    values = {**self.end.values, 'config': {
        name: value for name, value in self.end.values['config'].items()
        if name not in config_lib.marked('late')}}
    self.assertLess(len(values['config']), len(self.end.values['config']))
    resumed = trainer_lib.Trainer(tiny.plan())
    resumed.load(self.end._replace(values=values))
    self.assertEqual(resumed.schedule.steps, self.end.values['steps'])

  def test_policies_that_do_not_fit_are_refused(self):
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'another --model'):
      trainer_lib.Trainer(tiny.plan(model='lstm'), initial=self.end)

  def test_checkpoints_of_another_world_are_refused(self):
    tokens = self.end.values['tokens'][::-1]
    other = self.end._replace(values={**self.end.values, 'tokens': tokens})
    with self.assertRaisesRegex(checkpoints.CheckpointError, 'the tokens'):
      self.trainer.load(other)
    with self.assertRaisesRegex(checkpoints.CheckpointError, 'the tokens'):
      trainer_lib.Trainer(tiny.plan(
          reward='frozen', reward_model='elsewhere'), other)
    values = {**self.end.values}
    del values['generators']
    with self.assertRaisesRegex(checkpoints.CheckpointError, 'generators'):
      trainer_lib.Trainer(tiny.plan()).load(
          self.end._replace(values=values))

  @parameterized.parameters(
      ('policy:policy/hidden/w', lambda x: x[:-1]),
      ('policy:policy/hidden/w/mean_square', lambda x: x.astype(np.float64)),
      ('discriminator:discriminator/logit/w', lambda x: x.T),
      ('buffer:observations', lambda x: x[:-1]),
      ('buffer:codes', lambda x: x.astype(np.int64)),
      ('buffer:added', lambda x: x[None]),
      ('predictions:positive', lambda x: x.astype(np.uint8)))
  def test_arrays_that_do_not_fit_are_damage(self, name, change):
    self.assertIn(name, self.end.arrays)
    trainer = trainer_lib.Trainer(tiny.plan())
    changed = {**self.end.arrays, name: change(self.end.arrays[name])}
    with self.assertRaisesRegex(
        checkpoints.DamagedError, f'{name.partition(":")[2]} is .*; expected'):
      trainer.load(self.end._replace(arrays=changed))
    del changed[name]
    with self.assertRaisesRegex(
        checkpoints.DamagedError, f'lacks {name.partition(":")[2]}'):
      trainer.load(self.end._replace(arrays=changed))
    trainer.load(self.end)  # Overwrites the parts of the damaged state.
    restored = _saved(trainer)
    self.assertEqual(restored.values, self.end.values)
    tiny.assert_equal_arrays(restored, self.end)

  @parameterized.parameters(
      ('buffer:observations', 255, r'observations\[0, 0\] is 255; expected a '
       'number from 0 to 9'),
      ('predictions:observations', 16, 'from 0 to 9'),
      ('buffer:codes', 10**6, r'codes\[0, 0\] is 1000000; .* from -1 to'),
      ('predictions:codes', -2, r'codes\[0, 0\] is -2'))
  def test_pairs_that_no_world_has_are_damage(self, name, value, problem):
    trainer = trainer_lib.Trainer(tiny.plan())
    changed = {**self.end.arrays, name: np.full_like(
        self.end.arrays[name], value)}
    for load in trainer.load, trainer.branch:
      with self.assertRaisesRegex(checkpoints.CheckpointError, problem):
        load(self.end._replace(arrays=changed))

  def test_an_observation_that_no_board_has_is_damage(self):
    values = json.loads(json.dumps(self.end.values))
    values['actors'][0][1]['observation'][26] = 2
    with self.assertRaisesRegex(
        checkpoints.DamagedError,
        'observation of worker 1 has 2 at 26; expected at most 1'):
      trainer_lib.Trainer(tiny.plan()).load(self.end._replace(values=values))

  def test_a_state_that_is_no_longer_json_is_named(self):
    trainer = trainer_lib.Trainer(tiny.plan())
    with (mock.patch.object(trainer.policy_workers[0].actor, 'state',
                            return_value=[{'steps': np.int64(3)}]),
          self.assertRaisesRegex(
              checkpoints.CheckpointError, 'cannot be saved: .*int64')):
      trainer.checkpoint()

  def test_each_worker_of_each_seed_plays_episodes_of_its_own(self):
    trainers = [trainer_lib.Trainer(tiny.plan(
        seed=seed, policy_workers=4, policy_threads=2)) for seed in (0, 1)]
    actors = [
        worker.actor for trainer in trainers
        for worker in (*trainer.policy_workers, trainer.discriminator_worker)]
    self.assertLen({str(row['generator']) for actor in actors
                    for row in actor.state()}, 2 * 5)
    self.assertLen({str(environment.get_state()) for actor in actors
                    for environment in actor.environments}, 2 * 5)
    self.assertLen({str(rng.bit_generator.state) for trainer in trainers
                    for rng in trainer._generators}, 2 * 3)
    self.assertFalse(np.array_equal(*(
        trainer.policy.state()['policy/hidden/w'] for trainer in trainers)))

  @pytest.mark.slow
  def test_the_checker_of_arrangements_only_watches(self):
    task = tasks.TASKS['arrangements']
    runs = []
    for verdict in (False, True):
      def satisfied(codes, states, xp=np, verdict=verdict):
        del codes, xp
        return np.full(np.shape(states.carrying), verdict)

      building._gridlu_world.cache_clear()
      self.addCleanup(building._gridlu_world.cache_clear)
      with mock.patch.dict(
          tasks.TASKS, arrangements=task._replace(satisfied=satisfied)):
        trainer = trainer_lib.Trainer(tiny.plan(
            world='arrangements', instructions='Snake', rollout_length=4,
            episode_length=6, all_workers_write=True))
        tiny.drive(trainer)
        row = trainer.row()
      self.assertEqual(row['success_rate'], verdict)
      self.assertEqual(row['true_reward'], verdict)
      self.assertGreater(row['discriminator_updates'], 0)
      runs.append(trainer.checkpoint())
    tiny.assert_equal_arrays(*runs)
    self.assertEqual(*(run.values['actors'] for run in runs))
