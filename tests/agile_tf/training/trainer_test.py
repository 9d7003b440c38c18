"""Tests for whole runs: repeatable, resumable, and with correct metrics."""

import json
from unittest import mock

from absl.testing import parameterized
import numpy as np
import pytest

from agile_tf.agent import optimizers
from agile_tf.agent import rollouts
from agile_tf.agent import workers
from agile_tf.agent.fast import functional
from agile_tf.training import checkpoints
from agile_tf.training import threads
from agile_tf.training import trainer as trainer_lib
import gridlu
from gridlu import program
from gridlu import tasks
from tests.agile_tf import tiny


def _no_tick():
  pass


def _run(**changes) -> trainer_lib.Trainer:
  """A run in lockstep from its start to its end."""
  trainer = trainer_lib.Trainer(tiny.builder(**changes))
  trainer.drive(_no_tick)
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
    resumed = trainer_lib.Trainer(tiny.builder())
    resumed.load(saved)
    resumed.drive(_no_tick)
    end = _saved(resumed)
    self.assertEqual(end.values, self.end.values)
    tiny.assert_equal_arrays(end, self.end)
    # The equality is not trivial: both networks have changed since.
    for group in ('policy', 'discriminator'):
      before = saved.group(group)
      after = end.group(group)
      for name in before:
        self.assertTrue((before[name] != after[name]).any(), name)

  def test_half_of_the_workers_begin_a_rollout_later(self):
    for count in 1, 2, 4:
      trainer = trainer_lib.Trainer(
          tiny.builder(policy_workers=4, policy_threads=count))
      self.assertEqual(
          [row['delayed'] for worker in trainer.policy_workers
           for row in worker.actor.state()], [False, True] * 2)

  def test_counters(self):
    values = self.end.values
    self.assertEqual(values['steps'], 66)
    self.assertEqual(values['iterations'], 8)
    self.assertEqual(values['totals'], {
        'episodes': 16, 'discriminator_steps': 16,
        # A draw is 4 pairs, which B has after two rollouts of 2 steps.
        'discriminator_updates': 7})
    # Only the discriminator's worker writes to B.
    self.assertLen(self.trainer.buffer, 8 * 2)

  @parameterized.parameters(True, False)
  def test_workers_that_share_b_iterate_one_after_the_other(self, shared):
    trainer = trainer_lib.Trainer(tiny.builder(all_workers_write=shared))
    with mock.patch.object(threads, 'drive') as drive:
      trainer.drive(_no_tick)
      with mock.patch.object(trainer, 'world', mock.Mock(compiled=None)):
        trainer.drive(_no_tick)
    gridlu_run, own_world = (
        call.args[5] for call in drive.call_args_list)
    self.assertEqual(gridlu_run, not shared)
    self.assertFalse(own_world)  # Its environments may share something.
    self.assertIs(trainer.policy_workers[0]._buffer,
                  trainer.buffer if shared else None)

  def test_closes_its_environments(self):
    trainer = trainer_lib.Trainer(tiny.builder())
    with mock.patch.object(gridlu.GridLU, 'close') as close:
      trainer.close()
      self.assertEqual(close.call_count, 2 + 1)
      with trainer.schedule.turn('policy'):  # As if it hung.
        trainer.close()
      self.assertEqual(close.call_count, 2 + 1)

  def test_rows_have_the_metrics_of_both_networks(self):
    trainer = trainer_lib.Trainer(tiny.builder())
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
    trainer = trainer_lib.Trainer(tiny.builder(policy_workers=4, **changes))
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
              np.float32(mask), steps > 0, ('go',) * 4),
          {'loss': np.mean(losses[steps > 0])}, last & (decided > 0)))
    with mock.patch.object(worker, 'iterate', side_effect=iterations):
      steps = [trainer.iterate_policy(0, trainer.read()) for _ in played]
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
    trainer = trainer_lib.Trainer(tiny.builder(discriminator_head_start=3))
    worker = trainer.discriminator_worker
    rollout, read = mock.Mock(steps=2), trainer.read()
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
        tiny.builder(policy_workers=6, policy_threads=2))
    for worker, row, name in (
        (0, 2, 'policy worker 2'), (1, 0, 'policy worker 3'),
        (1, 1, 'policy worker 4'), (1, None, 'the averaged update')):
      error = workers.NumericsError('the loss', row, np.nan)
      of_thread = trainer.policy_workers[worker]
      with mock.patch.object(of_thread, 'iterate', side_effect=error):
        with self.assertRaisesRegex(program.UserError, f'of {name} is nan'):
          trainer.iterate_policy(worker, trainer.read())

  def test_ground_truth_reward_needs_no_discriminator(self):
    row = self._recorded([[(3, 0.0, 1, 1)] * 4], reward='environment')
    self.assertEqual(row['success_rate'], 1)
    self.assertNotIn('reward_model_accuracy', row)
    trainer = trainer_lib.Trainer(tiny.builder(reward='environment'))
    self.assertFalse(trainer.checkpoint().group('discriminator'))

  def test_nothing_is_traced_again(self):
    trainer = _run(steps=40)
    trainer.schedule._total_steps = 120
    # These are called where programs and updates are traced.
    with (mock.patch.object(functional.Network, 'apply') as network,
          mock.patch.object(optimizers, 'clip_gradient') as update):
      trainer.drive(_no_tick)
    self.assertGreaterEqual(trainer.schedule.steps, 120)
    network.assert_not_called()
    update.assert_not_called()

  def test_begins_with_another_runs_policy(self):
    trainer = trainer_lib.Trainer(
        tiny.builder(initial_policy='elsewhere'), initial=self.end)
    state = trainer.policy.state()
    for name in trainer.policy.layout.names:
      np.testing.assert_array_equal(
          state[name], self.end.arrays[f'policy:{name}'], name)
      np.testing.assert_array_equal(state[f'{name}/mean_square'], 1, name)
    self.assertEqual(trainer.schedule.steps, 0)

  def test_policies_that_do_not_fit_are_refused(self):
    with self.assertRaisesRegex(
        checkpoints.CheckpointError, 'another --model'):
      trainer_lib.Trainer(tiny.builder(model='lstm'), initial=self.end)

  def test_checkpoints_of_another_world_are_refused(self):
    tokens = self.end.values['tokens'][::-1]
    other = self.end._replace(values={**self.end.values, 'tokens': tokens})
    with self.assertRaisesRegex(checkpoints.CheckpointError, 'the tokens'):
      self.trainer.load(other)
    with self.assertRaisesRegex(checkpoints.CheckpointError, 'the tokens'):
      trainer_lib.Trainer(tiny.builder(
          reward='frozen', reward_model='elsewhere'), other)
    values = {**self.end.values}
    del values['generators']
    with self.assertRaisesRegex(checkpoints.CheckpointError, 'generators'):
      trainer_lib.Trainer(tiny.builder()).load(
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
    trainer = trainer_lib.Trainer(tiny.builder())
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

  def test_a_state_that_is_no_longer_json_is_named(self):
    trainer = trainer_lib.Trainer(tiny.builder())
    with (mock.patch.object(trainer.policy_workers[0].actor, 'state',
                            return_value=[{'steps': np.int64(3)}]),
          self.assertRaisesRegex(
              checkpoints.CheckpointError, 'cannot be saved: .*int64')):
      trainer.checkpoint()

  def test_each_worker_of_each_seed_plays_episodes_of_its_own(self):
    trainers = [trainer_lib.Trainer(tiny.builder(
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

      with mock.patch.dict(
          tasks.TASKS, arrangements=task._replace(satisfied=satisfied)):
        trainer = trainer_lib.Trainer(tiny.builder(
            world='arrangements', instructions='Snake', rollout_length=4,
            episode_length=6, all_workers_write=True))
        trainer.drive(_no_tick)
        row = trainer.row()
      self.assertEqual(row['success_rate'], verdict)
      self.assertEqual(row['true_reward'], verdict)
      self.assertGreater(row['discriminator_updates'], 0)
      runs.append(trainer.checkpoint())
    tiny.assert_equal_arrays(*runs)
    self.assertEqual(*(run.values['actors'] for run in runs))
