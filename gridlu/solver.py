"""Shortest solutions of instances, by exact search.

They give the ceiling of a success rate, and demonstrations by an expert. A
solution is a sequence of actions that ends in a state where the instruction
holds, by `tasks.satisfied`. That function looks at positions only, and INTERACT
moves nothing: an agent at the goal, even one without NOOP, can repeat INTERACT
until the episode ends. Hence an episode of T steps can succeed exactly if the
shortest solution has at most T. This is not so in the task 'put_down', where a
carried block does not count: its instances are solved as those of 'relations'.

A block's role is which of the operands it fits, and whether it can be picked
up. Nothing else about a block matters, so blocks of one role are
interchangeable. Instances of Relations, and those of Arrangements with four
blocks, are read from a table that instances with equivalent instructions and
the same roles share. More blocks need a search for each instance (see
`_search`), which may be given up.

For an operand that is not AGENT, the solver takes Shape('circle', SCENE) if it
is the left one and Color('red', SCENE) if it is the right one. So it can solve
instances of another task if the task's grammar allows these two operands
wherever it allows blocks, and if its ground truth looks at positions only. The
`is_go_to` of an instruction has to be true if the agent's own cell matters.
"""

from collections.abc import Sequence
import dataclasses
import functools
import itertools
import math
from typing import NamedTuple

import numpy as np

from gridlu import language
from gridlu import tasks
from gridlu import world

UNSOLVABLE = -1  # There is no solution of at most `max_steps` steps.
UNKNOWN = -2  # The search was given up.

# States that a search may visit, in about a second.
MAX_STATES = 300_000

# A table is made for at most so many ways to place the blocks.
_MAX_PLACEMENTS = 60_000
_NO_BOUND = 2**30  # More steps than any solution has.

_MOVES = (world.Action.UP, world.Action.DOWN, world.Action.LEFT,
          world.Action.RIGHT)
_CELLS = np.arange(world.NUM_CELLS, dtype=np.int32)

# A role is 4 if the block fits the left operand, plus 2 if it fits the right
# one, plus 1 if it can be picked up.
_NUM_ROLES = 8
_LIFTABLE = 1
# By role // 2: a block that fits neither operand, the right one, the left one,
# both. In a `_Problem` the left operand is circles, the right one red things.
_EXAMPLES = (world.block('rect', 'green'), world.block('rect', 'red'),
             world.block('circle', 'green'), world.block('circle', 'red'))


class Solution(NamedTuple):
  """The answer for one instance."""
  steps: int  # How many a shortest solution has; `UNSOLVABLE`; or `UNKNOWN`.
  # The actions of a solution; None without one.
  actions: tuple[world.Action, ...] | None


class _Problem(NamedTuple):
  """An instance without its placement and its agent.

  A placement is a choice of cells for all blocks.
  """
  # Relates AGENT or circles to AGENT or red things. It stands for all
  # instructions that differ only in the descriptions of their operands.
  instruction: language.Instruction
  roles: tuple[int, ...]  # [R], the different roles of the blocks.
  counts: tuple[int, ...]  # [R], how many blocks have each role.

  @property
  def num_placements(self) -> int:
    """The number of placements, also of those with two blocks in a cell."""
    return math.prod(math.comb(world.NUM_CELLS, n) for n in self.counts)


class _States(NamedTuple):
  """States of a problem."""
  sets: np.ndarray  # int32 [S, R], the cells of each role's blocks.
  agent: np.ndarray  # int32 [S], its cell.
  carrying: np.ndarray  # bool [S]

  def take(self, index: np.ndarray) -> '_States':
    """Returns the states that an index or a mask chooses."""
    return _States(*(x[index] for x in self))


class _Graph(NamedTuple):
  """All P placements of so many blocks of each role, and the moves.

  States are numbered by the agent's cell and the placement: P * cell +
  placement.
  """
  sets: np.ndarray  # int32 [P, R], the cells of each role's blocks.
  # bool [25, P], which cells hold a block. In a placement that puts two blocks
  # into one cell, no cell counts as occupied.
  occupied: np.ndarray
  # int [K], the states in which `occupied` holds, so the agent may carry.
  carried: np.ndarray
  # int [4, K], the states to which each move leads from these, with the block.
  after: np.ndarray


def _members(sets: np.ndarray) -> np.ndarray:
  """Returns which cells are in sets int32 [S], as bool [25, S]."""
  return (sets & world.BITS[:, None]) != 0


@functools.cache
def _choices(count: int) -> np.ndarray:
  """Returns all sets of so many cells in order, int32 [N]."""
  return np.sort(np.array(
      [sum(1 << cell for cell in cells) for cells in
       itertools.combinations(range(world.NUM_CELLS), count)], np.int32))


def _placement(sets: np.ndarray, counts: tuple[int, ...]) -> np.ndarray:
  """Returns the number of each placement, int64 [S], given by sets [S, R]."""
  placement = np.zeros(len(sets), np.int64)
  for column, count in enumerate(counts):
    choices = _choices(count)
    placement = placement * len(choices) + np.searchsorted(
        choices, sets[:, column])
  return placement


def _keys(states: _States) -> np.ndarray:
  """Returns each state as a string of bytes, [S].

  NumPy can sort these and look for one among others. They sort by the first
  role's set, then by the next ones, the agent's cell and whether it carries.
  """
  rows = np.column_stack([states.sets, states.agent, states.carrying])
  rows = np.ascontiguousarray(rows, '>i4')
  return rows.view(f'S{rows.itemsize * rows.shape[1]}')[:, 0]


def _step(states: _States, action: int, roles: tuple[int, ...]) -> _States:
  """Returns the states that an action leads to: `world.step` on sets.

  Only INTERACT looks at the roles.
  """
  # int32 [S, R]: 1 if a block of the role is in the agent's cell.
  here = (states.sets >> states.agent[:, None]) & 1
  if action == world.Action.INTERACT:
    liftable = np.any(
        here * np.array([role & _LIFTABLE for role in roles], np.int32), axis=1)
    return states._replace(carrying=~states.carrying & liftable)
  target = world.NEIGHBOURS[action, states.agent]
  occupied = np.bitwise_or.reduce(states.sets, axis=1)
  blocked = states.carrying & ((occupied & world.BITS[target]) != 0)
  target = np.where(blocked, states.agent, target)
  # The bits of both cells, or none if they are the same.
  change = (world.BITS[states.agent] ^ world.BITS[target]) * states.carrying
  return _States(states.sets ^ here * change[:, None], target, states.carrying)


@functools.lru_cache(maxsize=16)
def _graph(counts: tuple[int, ...]) -> _Graph:
  """Makes the graph of all placements, numbered as by `_placement`."""
  rows = [*itertools.product(*(_choices(count).tolist() for count in counts))]
  sets = np.array(rows, np.int32).reshape(len(rows), len(counts))
  occupied = _members(np.bitwise_or.reduce(sets, axis=1))
  occupied &= occupied.sum(axis=0) == sum(counts)
  carried = np.flatnonzero(occupied)
  agent, placement = np.divmod(carried, len(sets))
  states = _States(sets[placement], agent.astype(np.int32),
                   np.ones(len(carried), np.bool_))
  after = []
  for move in _MOVES:
    moved = _step(states, move, (0,) * len(counts))
    after.append(moved.agent * len(sets) + _placement(moved.sets, counts))
  return _Graph(sets, occupied, carried, np.stack(after))


def _satisfied(problem: _Problem, sets: np.ndarray, agent: np.ndarray
              ) -> np.ndarray:
  """Returns where the instruction holds, bool [S]."""
  blocks = np.zeros((world.NUM_CELLS, len(sets)), np.int32)
  for column, role in enumerate(problem.roles):
    # A sum would be wrong where two blocks share a cell.
    np.maximum(blocks, _EXAMPLES[role // 2] * _members(sets[:, column]),
               out=blocks)
  states = world.free_agents(blocks.T, agent)
  return tasks.satisfied(problem.instruction, states)


def _goals(problem: _Problem, sets: np.ndarray) -> np.ndarray:
  """Returns where the instruction holds, bool [25, P] by agent's cell."""
  if not problem.instruction.is_go_to:
    holds = _satisfied(problem, sets, np.zeros(len(sets), np.int32))
    return np.tile(holds, (world.NUM_CELLS, 1))
  holds = _satisfied(problem, np.tile(sets, (world.NUM_CELLS, 1)),
                     np.repeat(_CELLS, len(sets)))
  return holds.reshape(world.NUM_CELLS, len(sets))


@functools.lru_cache(maxsize=128)
def _table(problem: _Problem) -> np.ndarray:
  """Returns the steps from every state to the nearest goal, int8 [2, 25, P].

  The indices are whether the agent carries, its cell, and the number of the
  placement (see `_placement`). The steps are -1 where no goal can be reached.
  The search goes backwards: each frontier has the states from which an action
  leads into the last frontier.
  """
  graph = _graph(problem.counts)
  # Placements with two blocks in one cell do not exist: no cell is occupied in
  # them. Without blocks no cell is occupied either, but the placement exists.
  exists = graph.occupied.any(axis=0) | (sum(problem.counts) == 0)
  liftable = np.zeros_like(graph.occupied)
  for column, role in enumerate(problem.roles):
    if role & _LIFTABLE:
      liftable |= _members(graph.sets[:, column])
  goals = _goals(problem, graph.sets) & exists
  # The frontier's states with a free agent and those with a carrying one, both
  # bool [25, P].
  free, carrying = goals, goals & graph.occupied
  steps = np.full((2,) + goals.shape, -1, np.int8)
  for step in itertools.count():
    steps[0][free] = step
    steps[1][carrying] = step
    # Where these actions lead into the frontier. The first two begin with a
    # free agent, the others with a carrying one.
    picking_up = carrying & liftable
    moving = functools.reduce(
        np.logical_or, [free[cells] for cells in world.NEIGHBOURS])
    putting_down = free & graph.occupied
    moving_a_block = np.zeros_like(carrying)
    moving_a_block.reshape(-1)[graph.carried] = (
        carrying.reshape(-1)[graph.after].any(axis=0))
    free = (moving | picking_up) & (steps[0] < 0)
    carrying = (moving_a_block | putting_down) & (steps[1] < 0)
    if not (free.any() or carrying.any()):
      break
  steps.flags.writeable = False  # The cache shares it.
  return steps


def _relaxed(problem: _Problem) -> _Problem | None:
  """Returns the problem whose table bounds the steps from below.

  This is the problem itself or, if its table would be too large, one without
  the blocks that can only be in the way. It is None if even that table would be
  too large.
  """
  if problem.num_placements <= _MAX_PLACEMENTS:
    return problem
  # Blocks of other roles fit no operand.
  kept = [i for i, role in enumerate(problem.roles) if role > _LIFTABLE]
  smaller = problem._replace(roles=tuple(problem.roles[i] for i in kept),
                             counts=tuple(problem.counts[i] for i in kept))
  return smaller if smaller.num_placements <= _MAX_PLACEMENTS else None


def _lower_bound(problem: _Problem, states: _States) -> np.ndarray:
  """Returns how many steps are needed at least, int32 [S].

  The bound is 0 exactly where the instruction holds, and a step lowers it by at
  most 1. `_NO_BOUND` means that the instruction can never hold. If the problem
  has a table of its own, the bound is the length of a shortest solution.
  """
  relaxed = _relaxed(problem)
  if relaxed is None:
    holds = _satisfied(problem, states.sets, states.agent)
    return np.where(holds, 0, 1).astype(np.int32)
  sets = states.sets[:, [problem.roles.index(role) for role in relaxed.roles]]
  occupied = np.bitwise_or.reduce(sets, axis=1)
  # An agent that carries a block that was left out counts as free.
  carrying = states.carrying & ((occupied & world.BITS[states.agent]) != 0)
  steps = _table(relaxed)[carrying.astype(np.int32), states.agent,
                          _placement(sets, relaxed.counts)]
  return np.where(steps < 0, _NO_BOUND, steps.astype(np.int32))


def _search(problem: _Problem, start: _States, max_steps: int,
            max_states: int) -> Solution:
  """Solves one instance by breadth-first search within a limit of steps.

  The search goes layer by layer. It leaves out a state if, by `_lower_bound`,
  all solutions that pass through it have more steps than the limit. The limit
  begins as the lower bound of the start. If no state is left, the limit becomes
  the least number of steps that a state left out would need, and the search
  begins again. Hence the first solution is a shortest one. (Zhou and Hansen,
  "Breadth-first heuristic search", 2006.)
  """
  actions = _MOVES + (world.Action.INTERACT,)
  limit = int(_lower_bound(problem, start)[0])
  if limit == 0:
    return Solution(0, ())
  visited = 0
  while limit <= min(max_steps, _NO_BOUND - 1):
    states, seen = start, _keys(start)
    # For each step: from which state each state came, and by which action.
    history: list[tuple[np.ndarray, np.ndarray]] = []
    next_limit = _NO_BOUND
    for step in range(1, limit + 1):
      count = len(states.agent)
      # The children by the first action stand first, in the order of `states`,
      # then those by the second, and so on: number i comes from state i % count
      # by action i // count.
      children = _States(*(
          np.concatenate(x) for x in
          zip(*[_step(states, action, problem.roles) for action in actions])))
      keys, index = np.unique(_keys(children), return_index=True)
      index = index[np.isin(keys, seen, assume_unique=True, invert=True)]
      children = children.take(index)
      needed = _lower_bound(problem, children)
      fits = step + needed <= limit
      next_limit = int(np.min(step + needed[~fits], initial=next_limit))
      index, needed = index[fits], needed[fits]
      states = children.take(fits)
      history.append((index % count, index // count))
      if np.any(needed == 0):
        row = int(np.argmin(needed))
        path = []
        for parents, chosen in reversed(history):
          path.append(actions[chosen[row]])
          row = parents[row]
        return Solution(step, tuple(reversed(path)))
      visited += len(index)
      if visited > max_states:
        return Solution(UNKNOWN, None)
      if not len(index):
        break
      seen = np.concatenate([seen, _keys(states)])
    limit = next_limit
  return Solution(UNSOLVABLE, None)


@functools.lru_cache(maxsize=4096)
def _meaning(instruction: language.Instruction, physics: world.Physics
            ) -> tuple[language.Instruction, tuple[int, ...]]:
  """Returns `_Problem.instruction`, and the role of each block code.

  The empty cell, code 0, has the role -1.
  """
  instruction = instruction.canonical  # Both twins share a table.
  left, right = instruction.left, instruction.right
  roles = [-1]
  for code in range(1, world.NUM_BLOCK_CODES):
    fits_left = isinstance(left, language.Blocks) and left.fits(code)
    fits_right = isinstance(right, language.Blocks) and right.fits(code)
    roles.append(4 * fits_left + 2 * fits_right +
                 _LIFTABLE * (code not in physics.immovable))
  if left != language.AGENT:
    left = language.Blocks(shape='circle')
  if right != language.AGENT:
    right = language.Blocks(color='red')
  return dataclasses.replace(instruction, left=left, right=right), tuple(roles)


def _problems(instructions: Sequence[language.Instruction],
              states: world.State, physics: world.Physics
             ) -> list[tuple[_Problem, np.ndarray, _States]]:
  """Returns each problem, its instances' indices, and their states."""
  blocks = np.asarray(states.blocks, np.int32)
  cell = world.cell_index(np.asarray(states.agent, np.int32))
  carrying = np.asarray(states.carrying, np.bool_)
  shape = (len(instructions), world.SIZE, world.SIZE)
  if blocks.shape != shape:
    raise ValueError(f'states.blocks is {blocks.shape}: expected {shape}, one '
                     'board for each instruction (see world.State).')
  physics = world.find_physics(physics)
  meanings = [_meaning(instruction, physics) for instruction in instructions]
  roles = np.take_along_axis(
      np.array([roles for _, roles in meanings], np.int32).reshape(
          -1, world.NUM_BLOCK_CODES),
      blocks.reshape(-1, world.NUM_CELLS), axis=1)
  has_role = roles[:, None] == np.arange(_NUM_ROLES)[:, None]  # [N, 8, 25]
  counts = has_role.sum(axis=2)
  sets = (has_role * world.BITS).sum(axis=2, dtype=np.int32)
  groups: dict[_Problem, list[int]] = {}
  for i, (instruction, _) in enumerate(meanings):
    present = np.flatnonzero(counts[i])
    problem = _Problem(instruction, tuple(present.tolist()),
                       tuple(counts[i, present].tolist()))
    groups.setdefault(problem, []).append(i)
  return [
      (problem, np.array(rows),
       _States(sets[rows][:, list(problem.roles)], cell[rows], carrying[rows]))
      for problem, rows in groups.items()]


def shortest(
    instructions: Sequence[language.Instruction | str], states: world.State,
    physics: world.Physics = world.NORMAL, max_steps: int = _NO_BOUND,
    max_states: int = MAX_STATES) -> np.ndarray:
  """Returns the steps of a shortest solution of each instance, int32 [N].

  They are 0 where the start satisfies its instruction, `UNSOLVABLE` where there
  is no solution of at most `max_steps` steps, and `UNKNOWN` where the search
  was given up after `max_states` states. Where there is a table, no search is
  needed.
  """
  checked = language.checked(instructions)
  steps = np.zeros(len(checked), np.int32)
  for problem, rows, group in _problems(checked, states, physics):
    if _relaxed(problem) is problem:  # It has a table.
      needed = _lower_bound(problem, group)
      steps[rows] = np.where(needed <= min(max_steps, _NO_BOUND - 1), needed,
                             UNSOLVABLE)
    else:
      for i, row in enumerate(rows):
        steps[row] = _search(
            problem, group.take(np.array([i])), max_steps, max_states).steps
  return steps


def solve(
    instruction: language.Instruction | str, state: world.State,
    physics: world.Physics = world.NORMAL, max_steps: int = _NO_BOUND,
    max_states: int = MAX_STATES) -> Solution:
  """Returns a shortest solution of one state, always the same one."""
  checked = language.checked([instruction])
  batch = world.State(*(np.asarray(x)[None] for x in state))
  [(problem, _, start)] = _problems(checked, batch, physics)
  if _relaxed(problem) is problem:
    max_states = _NO_BOUND  # The table leads straight to the goal.
  return _search(problem, start, max_steps, max_states)
