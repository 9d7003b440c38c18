"""Imitation: the policy learns the shortest way to goals that are known.

Where the blocks of goal examples are put elsewhere, a good way back is known
(as in Nair et al. 2018, "Time reversal as self-supervision"). Other goal
examples of the same instruction may be nearer. So the policy imitates the way
to the nearest one: the right action then depends on the state alone. D decides
which blocks matter: those whose displacement alone makes D reject the goal
example. The ground truth has no part in this. Imitation is for GridLU alone,
and for goals that are about blocks of one kind, as those of Arrangements.

In this file B is the number of blocks that a goal is about. A form is a set of
B cells in which these blocks may be, and F is the largest number of forms that
an instruction has.
"""

from collections.abc import Callable
import itertools

import numpy as np
import tensorflow as tf

from agile_tf.agent import auxiliary as auxiliary_lib
from agile_tf.agent import networks
from agile_tf.agent import rollouts
from agile_tf.agent import worlds
from agile_tf.recipe import displaced
from gridlu import archives
from gridlu import program
from gridlu import world

# The goal examples about which D is asked; it takes seconds.
_EXAMPLES = 20_000
_CHUNK = 1000  # The states that D rates at a time.
# Goals of more blocks are not learned, because all assignments of blocks to
# cells are tried.
_MOST_BLOCKS = 4
_LIFTING = 3  # Steps that moving a block costs besides its way.
# The extra steps that it costs to move a block into a cell with blocks on all
# sides, unless the block is in this cell or beside it.
_ENCLOSED = np.int16(6)
_FAR = np.int16(99)  # More than any way on the board.
_STATES_PER_ROLLOUT = 16  # Each worker gets these for each rollout.
# The longest way that is searched for, with a sweep over the board for each
# step. Almost no board has a longer one, which would count as far.
_SWEEPS = 12

# Cumulated shares of the situations of the agent: it is anywhere, carries a
# block that is out of place, stands on such a block, stands on one that is in
# place, or still carries one that has reached its place.
_SITUATIONS = np.cumsum([.30, .30, .10, .12, .18])
_ANYWHERE, _CARRYING, _ON_DISPLACED, _ON_PLACED, _AT_PLACE = range(5)
# In this share of the states all blocks are in place. In _AT_PLACE more states
# become so, because one block that is out of place is put back.
_ALL_IN_PLACE = 0.05

_CELLS = np.arange(world.NUM_CELLS)
_ROWS, _COLUMNS = np.divmod(_CELLS, world.SIZE)
# Steps between two cells, int [25, 25].
_DISTANCE = abs(_ROWS[:, None] - _ROWS) + abs(_COLUMNS[:, None] - _COLUMNS)
# Steps that it costs to move a block from cell to cell, int16 [25, 25].
_COST = (_DISTANCE + _LIFTING * (_DISTANCE > 0)).astype(np.int16)


class Demonstrations:
  """Draws states and good actions there.

  `find_relevant_blocks` must be called before the first draw.
  """

  def __init__(self, goals: worlds.GoalExamples):
    """Takes goal examples, of which the first 20,000 are used."""
    self._states = goals.observations[:_EXAMPLES]
    # int [examples], into the instructions.
    self._instruction = goals.dataset.instruction[:_EXAMPLES]
    self._codes = goals.codes
    # bool [examples, 25]: the cells whose blocks matter.
    self._matters = np.zeros(
        [len(self._states), world.NUM_CELLS], np.bool_)

  def find_relevant_blocks(
      self, accepts: Callable[[np.ndarray, np.ndarray], np.ndarray],
      rng: np.random.Generator) -> None:
    """Finds out which blocks of the goal examples matter.

    A block matters if D rejects a board where only this block is displaced.
    (The agent is moved too, which does not matter in Arrangements.)

    Args:
      accepts: Returns D's decisions, bool [N], for codes int32 [N, slots] and
        packed states uint8 [N, 27]. N is the same in all calls.
      rng: Draws the cells to which blocks are displaced.
    """
    for start in range(0, len(self._states), _CHUNK):
      # D is compiled for one N. So the last chunk is filled up with examples
      # from the beginning.
      rows = np.arange(start, start + _CHUNK) % len(self._states)
      states = self._states[rows]
      matters = self._matters[start:start + _CHUNK]  # A view: |= writes there.
      filled = states[:, :world.NUM_CELLS] > 0
      cells = np.argsort(~filled, axis=1)  # Those with blocks come first.
      for i in range(filled.sum(axis=1).max()):
        chosen = np.zeros_like(filled)
        np.put_along_axis(chosen, cells[:, i:i + 1], True, axis=1)
        chosen &= filled
        accepted = accepts(self._codes[self._instruction[rows]],
                           displaced.displace(rng, states, chosen))
        rejected = chosen & ~accepted[:, None]
        matters |= rejected[:len(matters)]
    self._learn_forms()

  def _learn_forms(self) -> None:
    """Lists each instruction's forms: the sets of cells whose blocks matter."""
    # All goals are taken to be about the same number of blocks: the one from 1
    # to _MOST_BLOCKS that occurs most often. Where another number seems to
    # matter, D has erred, and the example is not used.
    numbers = self._matters.sum(axis=1)
    counts = np.bincount(numbers, minlength=_MOST_BLOCKS + 1)
    num_blocks = 1 + int(np.argmax(counts[1:_MOST_BLOCKS + 1]))
    usable = np.flatnonzero(numbers == num_blocks)
    if not len(usable):
      raise program.UserError(
          'The reward model cannot tell which blocks of goal examples matter; '
          'imitation needs this. Give it a longer --discriminator_head_start.')
    self._usable = usable
    # int [examples, B]: the cells of the blocks that matter.
    self._homes = np.zeros([len(numbers), num_blocks], np.int64)
    _, cells = np.nonzero(self._matters[usable])
    self._homes[usable] = cells.reshape(-1, num_blocks)
    forms = []
    for instruction in range(len(self._codes)):
      examples = usable[self._instruction[usable] == instruction]
      forms.append(np.unique(self._homes[examples], axis=0))
    # int [instructions, F, B]. Where there are fewer forms, they are repeated;
    # where there are none, the form is zeros, which nothing uses.
    num_forms = max(map(len, forms))
    self._forms = np.stack([
        np.resize(each, [num_forms, num_blocks]) for each in forms])
    # int [orders, B]: all ways to assign blocks to the cells of a form.
    self._orders = np.array(list(itertools.permutations(range(num_blocks))))

  def add_and_sample(
      self, rng: np.random.Generator, rollout: rollouts.Rollout,
      decisions: np.ndarray) -> auxiliary_lib.Samples:
    """Returns states, and the good actions there as their labels.

    Nothing of the rollout is added. Labels are float32 [W, K, actions]: equal
    shares of the good actions, or 0 if none is.
    """
    del decisions
    width = len(rollout.codes)
    batch = self.batch(rng, width * _STATES_PER_ROLLOUT)
    return auxiliary_lib.Samples(*(
        part.reshape(width, _STATES_PER_ROLLOUT, *part.shape[1:])
        for part in batch))

  def batch(self, rng: np.random.Generator, count: int
           ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws codes [N, slots], states [N, 27] and labels [N, actions]."""
    rows = self._usable[rng.integers(len(self._usable), size=count)]
    instruction = self._instruction[rows]
    homes = rng.permuted(self._homes[rows], axis=1)
    states, places = _draw(rng, self._states[rows], homes)
    goals = self._nearest(instruction, states, places)
    return self._codes[instruction], states, _labels(states, places, goals)

  def _nearest(self, instruction: np.ndarray, states: np.ndarray,
               places: np.ndarray) -> np.ndarray:
    """Returns the cells, int [N, B], to which blocks in places [N, B] belong.

    They are the cells of the form that costs the fewest steps.
    """
    forms = self._forms[instruction]
    _, num_forms, num_blocks = forms.shape
    costs = _costs(states, places)
    # Costs of moving a block to a cell of each form, int16 [N, F] each.
    to_cell = [[np.take_along_axis(costs[:, block], forms[:, :, cell], axis=1)
                for cell in range(num_blocks)] for block in range(num_blocks)]
    totals = np.stack([
        sum(to_cell[block][cell] for block, cell in enumerate(order))
        for order in self._orders], axis=1)  # int16 [N, orders, F]
    cheapest = totals.reshape(len(states), -1).argmin(axis=1)
    order, form = np.divmod(cheapest, num_forms)
    cells = forms[np.arange(len(states)), form]
    return np.take_along_axis(cells, self._orders[order], axis=1)

  def state(self) -> dict[str, np.ndarray]:
    """Returns what `find_relevant_blocks` has found, for a checkpoint."""
    return {'matters': self._matters.copy()}

  def load(self, state: dict[str, np.ndarray]) -> None:
    """Restores what `state` returned."""
    self._matters = archives.expect(
        state, 'matters', np.bool_, self._matters.shape)
    if self._matters.any():
      self._learn_forms()


def _costs(states: np.ndarray, places: np.ndarray) -> np.ndarray:
  """Returns what it costs to move blocks in places [N, B] to each cell.

  A cell is far if it holds a block that is not in `places`; one in `places` may
  move away. A cell with blocks on all sides costs more, except for a block in
  it or beside it.

  Returns:
    Steps, int16 [N, B, 25].
  """
  filled = states[:, :world.NUM_CELLS] > 0
  # At the edge of the board a cell is its own neighbour.
  enclosed = np.all(
      filled[:, world.NEIGHBOURS] | (world.NEIGHBOURS == _CELLS), axis=1)
  is_away = _DISTANCE[places] > 1
  occupied = filled.copy()
  np.put_along_axis(occupied, places, False, axis=1)
  return (_COST[places] + _ENCLOSED * (enclosed[:, None] & is_away) +
          _FAR * occupied[:, None])


def _draw(rng: np.random.Generator, states: np.ndarray, homes: np.ndarray
         ) -> tuple[np.ndarray, np.ndarray]:
  """Displaces some of the blocks in `homes`, int [N, B], of goal examples.

  It also chooses the cell of the agent, and whether the agent carries the block
  there: see `_SITUATIONS`.

  Returns:
    The states, and the new places of these blocks, int [N, B].
  """
  count, num_blocks = homes.shape
  rows, before = np.arange(count), states[:, :world.NUM_CELLS]
  situation = np.searchsorted(
      _SITUATIONS, rng.random(count) * _SITUATIONS[-1])
  # From 1 to B blocks are out of place; B is twice as likely as each other
  # number.
  num_out = np.minimum(rng.integers(1, num_blocks + 2, size=count), num_blocks)
  num_out[rng.random(count) < _ALL_IN_PLACE] = 0
  # In _AT_PLACE one block more is back in its place. The first blocks are those
  # out of place, so the last one is in its place; the agent still carries it.
  num_out = np.maximum(num_out - (situation == _AT_PLACE), 0)
  # Empty cells come first, in random order.
  targets = np.argsort(rng.random(before.shape) + (before > 0), axis=1)
  states = displaced.move(states, homes, targets, num_out)
  is_out = np.arange(num_blocks) < num_out[:, None]
  places = np.where(is_out, targets[:, :num_blocks], homes)
  displaced_one = places[
      rows, (rng.random(count) * num_out).astype(np.int64)]
  cells = states[:, :world.NUM_CELLS]
  in_place = (cells > 0) & (cells == before)
  # It is one of these cells at random.
  placed_one = np.argmax(rng.random(cells.shape) * in_place, axis=1)
  anywhere = rng.integers(world.NUM_CELLS, size=count)
  # An agent that was to stand on a block in place is anywhere if there is none.
  states[:, displaced.AGENT] = np.select(
      [(situation == _CARRYING) | (situation == _ON_DISPLACED),
       (situation == _ON_PLACED) & in_place.any(axis=1),
       situation == _AT_PLACE],
      [displaced_one, placed_one, places[:, -1]], anywhere)
  states[:, displaced.CARRIES] = (
      (situation == _CARRYING) & (num_out > 0) | (situation == _AT_PLACE))
  return states, places


def _labels(states: np.ndarray, places: np.ndarray, goals: np.ndarray
           ) -> np.ndarray:
  """Returns the good actions where blocks in `places` belong in cells `goals`.

  They are float32 [N, actions], with a sum of 1 or 0.

  An agent that carries nothing takes the way to the nearest block that can go
  to its cell, and picks it up. One that carries a block takes it to its cell;
  if another block is still there, it puts its block down at once. Where nothing
  is left to do, an agent that carries nothing moves anywhere.
  """
  rows, agent = np.arange(len(states)), states[:, displaced.AGENT]
  carrying = states[:, displaced.CARRIES] > 0
  filled = states[:, :world.NUM_CELLS] > 0
  # Two boards: the blocks that can go to their cells, and the cell to which the
  # block under the agent belongs.
  can_be_moved, belongs = np.zeros([2, *filled.shape], np.bool_)
  movable_rows, movable = np.nonzero(
      ~np.take_along_axis(filled, goals, axis=1))
  can_be_moved[movable_rows, places[movable_rows, movable]] = True
  # The sum is the goal of the block under the agent. Without one it is cell 0,
  # which has no effect, because only carrying agents make use of `belongs`.
  goal_under_agent = np.sum(goals * (places == agent[:, None]), axis=1)
  belongs[rows, goal_under_agent] = True
  # An agent that carries a block cannot pass others.
  blocked = filled & carrying[:, None]
  blocked[rows, agent] = False
  steps = _steps(
      np.where(carrying[:, None], belongs, can_be_moved), blocked)
  around = steps[rows, world.NEIGHBOURS[:, agent]].T
  leads_on = (around == around.min(axis=1, keepdims=True)) & (
      around < steps[rows, agent][:, None])
  is_done = np.all(goals == places, axis=1) & ~carrying
  good = np.zeros([len(states), world.NUM_POLICY_ACTIONS], np.bool_)
  # The moves come before INTERACT, in the order of world.NEIGHBOURS.
  good[:, :world.Action.INTERACT] = is_done[:, None] | leads_on
  # It picks a block up that can be moved, or puts one down that cannot.
  interacts = carrying != can_be_moved[rows, agent]
  good[interacts] = (
      np.arange(world.NUM_POLICY_ACTIONS) == world.Action.INTERACT)
  return (good / np.maximum(good.sum(axis=1, keepdims=True), 1)
         ).astype(np.float32)


def _steps(targets: np.ndarray, blocked: np.ndarray) -> np.ndarray:
  """Returns each cell's distance from targets [N, 25], around blocked cells."""
  steps = np.where(targets, 0, _FAR)
  for _ in range(_SWEEPS):
    near = steps[:, world.NEIGHBOURS].min(axis=1) + 1
    steps = np.where(blocked & ~targets, _FAR, np.minimum(steps, near))
  return steps


def auxiliary(cost: float) -> auxiliary_lib.Auxiliary:
  """Returns imitation as an auxiliary loss of the policy."""
  def make(world: worlds.World, goals: worlds.GoalExamples | None
          ) -> Demonstrations:
    del world
    assert goals is not None
    return Demonstrations(goals)

  return auxiliary_lib.Auxiliary(
      auxiliary_lib.AuxiliaryLoss('imitation', cost, _loss), make)


def _loss(output: networks.PolicyOutput, labels: tf.Tensor) -> tf.Tensor:
  """Returns the cross-entropy with the good actions."""
  return -tf.reduce_sum(labels * tf.nn.log_softmax(output.logits), -1)
