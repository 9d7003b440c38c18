"""Imitation: the policy learns the shortest way to goals that are known.

Where the blocks of goal examples are put elsewhere, a good way back is known
(as in Nair et al. 2018, "Time reversal as self-supervision"). Other goal
examples of the same instruction may be nearer. So the policy imitates the way
to the nearest one: the right action then depends on the state alone. D decides
which blocks matter: those whose displacement alone makes D reject the goal
example. The ground truth has no part in this. It is for GridLU, and for goals
that are about blocks of one kind alone, as those of Arrangements.
"""

from collections.abc import Callable
import itertools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from agile_tf.agent import networks
from agile_tf.agent import rollouts
from agile_tf.agent import worlds
from agile_tf.recipe import displaced
from agile_tf.recipe import mismatched
from gridlu import archives
from gridlu import program
from gridlu import world

_EXAMPLES = 20_000  # Goal examples that D is asked about; this takes seconds.
_CHUNK = 1000  # States that D rates at a time.
_MOST_BLOCKS = 4  # Of a goal, for which all assignments are tried.
_LIFTING = 3  # Steps that moving a block costs besides its way.
# What a cell with blocks on all sides costs more, for a block not beside it.
_ENCLOSED = np.int16(6)
_FAR = np.int16(99)
_STATES_PER_ROLLOUT = 16  # Of a worker.

# How often the agent is anywhere, carries a block that is out of place, stands
# on such a block, stands on one that is in place, and carries one to its place.
_KINDS = np.cumsum([.30, .30, .10, .12, .18])
_NONE = 0.05  # How often no block is out of place at first.
_ANYWHERE, _CARRYING, _ON_DISPLACED, _ON_PLACED, _AT_PLACE = range(5)

_CELLS = np.arange(world.NUM_CELLS)
_ROWS, _COLUMNS = np.divmod(_CELLS, world.SIZE)
# [25, 25]: between two cells.
_DISTANCE = abs(_ROWS[:, None] - _ROWS) + abs(_COLUMNS[:, None] - _COLUMNS)
_COST = (_DISTANCE + _LIFTING * (_DISTANCE > 0)).astype(np.int16)


class Demonstrated(NamedTuple):
  """What the policy imitates, K states for each of W workers."""
  codes: rollouts.Array  # int32 [W, K, slots]
  observations: rollouts.Array  # uint8 [W, K, ...]
  # float32 [W, K, actions]: equal shares of the good actions; 0 if none is.
  labels: rollouts.Array


class Programs(mismatched.Programs):
  """Programs whose policy may imitate what is `Demonstrated`."""

  def _auxiliary(self, output: networks.PolicyOutput, replayed: Any
                ) -> tuple[str, tf.Tensor]:
    if not isinstance(replayed, Demonstrated):
      return super()._auxiliary(output, replayed)
    return 'imitation_loss', -tf.reduce_mean(tf.reduce_sum(
        replayed.labels * tf.nn.log_softmax(output.logits), -1), 1)


class Demonstrations:
  """Draws states and good actions there; `look` must come first."""

  def __init__(self, goals: worlds.GoalExamples):
    """Takes goal examples, of which the first 20,000 are used."""
    self._states = goals.observations[:_EXAMPLES]
    self._instruction = goals.dataset.instruction[:_EXAMPLES]
    self._codes = goals.codes
    # bool [examples, 25]: the cells whose blocks matter.
    self._matters = np.zeros(
        [len(self._states), world.NUM_CELLS], np.bool_)

  def look(self, accepts: Callable[[np.ndarray, np.ndarray], np.ndarray],
           rng: np.random.Generator) -> None:
    """Finds out which blocks matter.

    `accepts` returns D's decisions, bool [N], for codes int32 [N, slots] and
    packed states uint8 [N, 27]; N is always the same. A block matters if D
    rejects a board where only this block is displaced.
    """
    for start in range(0, len(self._states), _CHUNK):
      rows = np.arange(start, start + _CHUNK) % len(self._states)
      states, new = self._states[rows], self._matters[start:start + _CHUNK]
      blocks = states[:, :world.NUM_CELLS] > 0
      order = np.argsort(~blocks, axis=1)
      for j in range(blocks.sum(axis=1).max()):
        chosen = np.zeros_like(blocks)
        np.put_along_axis(chosen, order[:, j:j + 1], True, axis=1)
        chosen &= blocks
        accepted = accepts(self._codes[self._instruction[rows]],
                           displaced.displace(rng, states, chosen))
        new |= (chosen & ~accepted[:, None])[:len(new)]
    self._learn_forms()

  def _learn_forms(self) -> None:
    """Lists each instruction's sets of cells whose blocks matter."""
    numbers = self._matters.sum(axis=1)
    counts = np.bincount(numbers, minlength=_MOST_BLOCKS + 1)
    number = 1 + int(np.argmax(counts[1:_MOST_BLOCKS + 1]))
    self._usable = np.flatnonzero(numbers == number)
    if not len(self._usable):
      raise program.UserError(
          'The reward model cannot tell which blocks of goal examples matter; '
          'imitation needs this. Give it a longer --discriminator_head_start.')
    # int [examples, blocks]: the cells of the blocks that matter.
    self._homes = np.zeros([len(numbers), number], np.int64)
    self._homes[self._usable] = np.nonzero(
        self._matters[self._usable])[1].reshape(-1, number)
    forms = [np.unique(self._homes[self._usable[
        self._instruction[self._usable] == i]], axis=0)
             for i in range(len(self._codes))]
    # int [instructions, forms, blocks]: where there are fewer, some twice.
    most = max(map(len, forms))
    self._forms = np.stack([
        np.resize(each, [most, number]) for each in forms])
    self._orders = np.array(list(itertools.permutations(range(number))))

  def batch(self, rng: np.random.Generator, count: int
           ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws codes [N, slots], states [N, 27] and labels [N, actions]."""
    rows = self._usable[rng.integers(len(self._usable), size=count)]
    instruction = self._instruction[rows]
    homes = rng.permuted(self._homes[rows], axis=1)
    states, places = _draw(rng, self._states[rows], homes)
    return self._codes[instruction], states, _labels(
        states, places, self._nearest(instruction, states, places))

  def _nearest(self, instruction: np.ndarray, states: np.ndarray,
               places: np.ndarray) -> np.ndarray:
    """Returns the cells, int [N, B], to which blocks in places [N, B] belong.

    They are those of the nearest form where no other block is. A cell with
    blocks on all sides is near only for these.
    """
    count, forms = len(states), self._forms[instruction]
    filled = states[:, :world.NUM_CELLS] > 0
    enclosed = np.all(
        filled[:, world.NEIGHBOURS] | (world.NEIGHBOURS == _CELLS), axis=1)
    cost = _COST[places] + _ENCLOSED * (
        enclosed[:, None] & (_DISTANCE[places] > 1))
    # Not where another block is.
    np.put_along_axis(filled, places, False, axis=1)
    cost += _FAR * filled[:, None]
    blocks = range(places.shape[1])
    # Of a block and a form's cell, int16 [N, F]; then of all orders.
    to = [[np.take_along_axis(cost[:, block], forms[:, :, cell], axis=1)
           for cell in blocks] for block in blocks]
    total = np.stack([sum(to[block][cell] for block, cell in enumerate(order))
                      for order in self._orders], axis=1)
    order, best = np.divmod(
        total.reshape(count, -1).argmin(axis=1), forms.shape[1])
    return np.take_along_axis(
        forms[np.arange(count), best], self._orders[order], axis=1)

  def state(self) -> dict[str, np.ndarray]:
    """Returns what `look` has found, for a checkpoint."""
    return {'matters': self._matters.copy()}

  def load(self, state: dict[str, np.ndarray]) -> None:
    """Restores what `state` returned."""
    self._matters = archives.expect(
        state, 'matters', np.bool_, self._matters.shape)
    if self._matters.any():
      self._learn_forms()


def _draw(rng: np.random.Generator, states: np.ndarray, homes: np.ndarray
         ) -> tuple[np.ndarray, np.ndarray]:
  """Displaces some of the blocks in `homes`, int [N, B], of goal examples.

  Returns:
    The states, and the new places of these blocks, int [N, B].
  """
  count, most = homes.shape
  n, before = np.arange(count), states[:, :world.NUM_CELLS]
  kind = np.searchsorted(_KINDS, rng.random(count) * _KINDS[-1])
  # All of them are twice as often out of place as any other number.
  number = np.minimum(rng.integers(1, most + 2, size=count), most)
  number[rng.random(count) < _NONE] = 0
  # One block more is back in its place, and the agent still carries it.
  number = np.maximum(number - (kind == _AT_PLACE), 0)
  targets = np.argsort(rng.random(before.shape) + (before > 0), axis=1)
  states = displaced.move(states, homes, targets, number)
  places = np.where(
      np.arange(most) < number[:, None], targets[:, :most], homes)
  out = places[n, (rng.random(count) * number).astype(np.int64)]
  cells = states[:, :world.NUM_CELLS]
  here = rng.random(cells.shape) * ((cells > 0) & (cells == before))
  # Where no block is in its place, a free agent is anywhere.
  states[:, world.NUM_CELLS] = np.select(
      [(kind == _CARRYING) | (kind == _ON_DISPLACED),
       (kind == _ON_PLACED) & here.any(axis=1), kind == _AT_PLACE],
      [out, np.argmax(here, axis=1), places[:, -1]],
      rng.integers(world.NUM_CELLS, size=count))
  states[:, world.NUM_CELLS + 1] = (
      (kind == _CARRYING) & (number > 0) | (kind == _AT_PLACE))
  return states, places


def _labels(states: np.ndarray, places: np.ndarray, goal: np.ndarray
           ) -> np.ndarray:
  """Returns the good actions where blocks in `places` belong in cells `goal`.

  They are float32 [N, actions], with a sum of 1 or 0.

  A free agent takes the way to the nearest block that can go to its cell, and
  picks it up; a carrying one takes it there, or puts it down if another block
  is still there. Where nothing is left to do, a free agent moves anywhere.
  """
  n, agent = np.arange(len(states)), states[:, world.NUM_CELLS]
  carrying = states[:, world.NUM_CELLS + 1] > 0
  filled = states[:, :world.NUM_CELLS] > 0
  can_go = ~np.take_along_axis(filled, goal, axis=1)
  is_out, belongs = np.zeros([2, len(states), world.NUM_CELLS], np.bool_)
  rows, columns = np.nonzero(can_go)
  is_out[rows, places[rows, columns]] = True
  belongs[n, np.sum(goal * (places == agent[:, None]), axis=1)] = True
  on_it = is_out[n, agent]
  blocked = filled & carrying[:, None]
  blocked[n, agent] = False
  steps = _steps(np.where(carrying[:, None], belongs, is_out), blocked)
  around = steps[n, world.NEIGHBOURS[:, agent]].T
  good = np.zeros([len(states), world.Action.NOOP], np.bool_)
  good[:, :world.Action.INTERACT] = np.where(
      np.any(goal != places, axis=1)[:, None] | carrying[:, None],
      (around == around.min(axis=1, keepdims=True)) & (
          around < steps[n, agent][:, None]), True)
  interacts = carrying != on_it
  good[interacts] = np.arange(world.Action.NOOP) == world.Action.INTERACT
  return (good / np.maximum(good.sum(axis=1, keepdims=True), 1)
         ).astype(np.float32)


def _steps(targets: np.ndarray, blocked: np.ndarray) -> np.ndarray:
  """Returns each cell's distance from targets [N, 25], around blocked cells."""
  steps = np.where(targets, 0, _FAR)
  for _ in range(world.NUM_CELLS // 2):
    near = steps[:, world.NEIGHBOURS].min(axis=1) + 1
    steps = np.where(blocked & ~targets, _FAR, np.minimum(steps, near))
  return steps


class Imitation:
  """What a thread's workers imitate: as `replay.RewardPrediction`."""

  def __init__(self, demonstrations: Demonstrations, rng: np.random.Generator):
    self.rng = rng
    self._demonstrations = demonstrations

  def exchange(self, rollout: rollouts.Rollout,
               decisions: np.ndarray) -> Demonstrated:
    """Returns a batch for each of the rollout's W workers."""
    del decisions
    width = len(rollout.codes)
    batch = self._demonstrations.batch(self.rng, width * _STATES_PER_ROLLOUT)
    return Demonstrated(*(
        part.reshape(width, _STATES_PER_ROLLOUT, *part.shape[1:])
        for part in batch))
