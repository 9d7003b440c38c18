'use strict';
// GridLU: states, physics, truth, pictures and boards to start from.
//
// The rules are those of gridlu/world.py, relations.py, arrangements.py and
// rendering.py; tests/agile_tf/demo_test.py compares them. A state is
// {blocks, agent, carrying}: blocks has 25 codes, row by row from the top left,
// 0 for an empty cell, else 1 + 3 * shape + colour; agent is a cell from 0 to
// 24; carrying says whether the agent carries the block in its cell. Functions
// return new states and leave the old ones as they are.

const SIZE = 5;
const CELLS = SIZE * SIZE;
const SHAPES = ['circle', 'rect', 'triangle'];
const COLORS = ['red', 'green', 'blue'];
const CODES = 1 + SHAPES.length * COLORS.length;
// The actions are four moves (how far down and right each leads), INTERACT,
// which picks a block up or puts it down, and NOOP.
const MOVES = [[-1, 0], [1, 0], [0, -1], [0, 1]];
const INTERACT = 4;

function kindOf(code) {
  return {shape: SHAPES[Math.floor((code - 1) / 3)],
          color: COLORS[(code - 1) % 3]};
}

// Returns the cell that is this far down and right, or -1 in the wall.
function neighbour(cell, down, right) {
  const row = Math.floor(cell / SIZE) + down, column = cell % SIZE + right;
  const inside = Math.min(row, column) >= 0 && Math.max(row, column) < SIZE;
  return inside ? SIZE * row + column : -1;
}

// ---- Physics ----

// Returns the state that an action, 0 to 5, leads to. `immovable` has the codes
// of the blocks that cannot be picked up.
function step(state, action, immovable = []) {
  const {blocks, agent, carrying} = state;
  if (action === INTERACT) {
    const liftable = blocks[agent] > 0 && !immovable.includes(blocks[agent]);
    return {blocks, agent, carrying: !carrying && liftable};
  }
  const target = action < INTERACT ? neighbour(agent, ...MOVES[action]) : -1;
  if (target < 0 || carrying && blocks[target]) return state;
  if (!carrying) return {blocks, agent: target, carrying};
  const changed = blocks.slice();
  changed[target] = blocks[agent];
  changed[agent] = 0;
  return {blocks: changed, agent: target, carrying};
}

// ---- What the user does to a board ----

// Puts a block, or 0 for none, into a cell.
function withBlock(state, cell, code) {
  const blocks = state.blocks.slice();
  blocks[cell] = code;
  const carrying = state.carrying && blocks[state.agent] > 0;
  return {...state, blocks, carrying};
}

// Puts the agent into a cell. If it is already there, it picks a block up or
// puts it down.
function withAgent(state, cell, immovable = []) {
  return cell === state.agent ? step(state, INTERACT, immovable) :
      {...state, agent: cell, carrying: false};
}

// Returns whether to move what is in a cell is to move the agent: it carries a
// block there, or it is there alone. A free agent on a block stays.
function movesAgent({blocks, agent, carrying}, cell) {
  return cell === agent && (carrying || !blocks[cell]);
}

// Moves what is in a cell: the agent with the block that it carries, or else
// the block. The block changes places with the one in the other cell.
function moved(state, from, to) {
  const {agent, carrying} = state;
  const agentMoves = movesAgent(state, from);
  const blocks = state.blocks.slice();
  if (!agentMoves || carrying) {
    [blocks[from], blocks[to]] = [blocks[to], blocks[from]];
  }
  return {blocks, agent: agentMoves ? to : agent, carrying};
}

// ---- Truth ----

// Returns whether a cell holds what an operand describes: 'AGENT', or {color,
// shape} where null stands for any.
function fits(operand, state, cell) {
  if (operand === 'AGENT') return state.agent === cell;
  if (!state.blocks[cell]) return false;
  const {color, shape} = kindOf(state.blocks[cell]);
  return [null, color].includes(operand.color) &&
      [null, shape].includes(operand.shape);
}

function cellsOf(operand, state) {
  return [...Array(CELLS).keys()].filter(cell => fits(operand, state, cell));
}

// The way from the operand `right` to the operand `left`: how many rows down,
// and how many columns to the right.
const RELATIONS = {
  NorthFrom: [-1, 0], SouthFrom: [1, 0], EastFrom: [0, 1], WestFrom: [0, -1],
  SameLocation: [0, 0],
};

// One example of each form, as figure 3 of the paper draws them.
const FORMS = {
  Square: ['xx', 'xx'], Line: ['xxxx'],
  Dline: ['x...', '.x..', '..x.', '...x'], Triangle: ['xxx', '.x.'],
  Circle: ['.x.', 'x.x', '.x.'], Eel: ['x.', 'x.', 'xx'],
  Snake: ['xx.', '.xx'],
};
const FORMS_OF = {
  ...Object.fromEntries(Object.keys(FORMS).map(form => [form, [form]])),
  Connected: ['Line', 'Square', 'Eel', 'Snake', 'Triangle'],
  Disconnected: ['Dline', 'Circle'],
};

// Returns points [row, column] as they are when turned and mirrored in each of
// the eight ways, moved to the top left and sorted.
function turnedAndMirrored(points) {
  const found = [];
  for (let way = 0; way < 8; way++) {
    const turned = points.map(([row, column]) => {
      if (way & 1) row = -row;
      if (way & 2) column = -column;
      return way & 4 ? [column, row] : [row, column];
    });
    const top = Math.min(...turned.map(point => point[0]));
    const left = Math.min(...turned.map(point => point[1]));
    found.push(turned.map(([row, column]) => [row - top, column - left])
        .sort((a, b) => a[0] - b[0] || a[1] - b[1]));
  }
  return found;
}

function pointsOf(form) {
  return FORMS[form].flatMap((line, row) => [...line].flatMap(
      (mark, column) => mark === 'x' ? [[row, column]] : []));
}

// This has the form of points, written as text, in any of a form's eight ways.
const FORM_OF_POINTS = new Map(Object.keys(FORMS).flatMap(
    form => turnedAndMirrored(pointsOf(form)).map(
        points => [String(points), form])));

// Returns whether a state carries out an instruction. The ground truth of
// Relations decides, or this project's checker of Arrangements. In the task
// `put_down` a block counts only where the agent has put it down.
function satisfied({word, left, right}, state, task) {
  if (task === 'put_down' && state.carrying) {
    state = withBlock(state, state.agent, 0);
  }
  if (word in RELATIONS) {
    return cellsOf(right, state).some(cell => {
      const there = neighbour(cell, ...RELATIONS[word]);
      return there >= 0 && fits(left, state, there);
    });
  }
  const points = cellsOf(right, state).map(
      cell => [Math.floor(cell / SIZE), cell % SIZE]);
  if (points.length !== 4) return false;
  // The first way only moves the points to the top left.
  const [shifted] = turnedAndMirrored(points);
  return FORMS_OF[word].includes(FORM_OF_POINTS.get(String(shifted)));
}

// ---- Pictures ----

const TILE = 8;  // Pixels on a side of a cell.
const IMAGE = TILE * (SIZE + 2);  // Pixels on a side, with the wall.
const RGB = {red: [255, 0, 0], green: [0, 255, 0], blue: [0, 0, 255]};
const MIDDLE = (TILE - 1) / 2;
// These functions say which pixels of a cell each shape covers.
const COVERS = {
  circle: (y, x) => (y - MIDDLE) ** 2 + (x - MIDDLE) ** 2 <= (TILE / 2) ** 2,
  rect: (y, x) =>
      Math.max(Math.abs(y - MIDDLE), Math.abs(x - MIDDLE)) < TILE / 4,
  triangle: (y, x) => Math.abs(x - MIDDLE) < Math.floor(y / 2) + 1,
};

function pixel(state, y, x) {
  const row = Math.floor(y / TILE) - 1, column = Math.floor(x / TILE) - 1;
  if (Math.min(row, column) < 0 || Math.max(row, column) >= SIZE) {
    return [220, 220, 220];  // The wall.
  }
  const cell = SIZE * row + column;
  if (state.blocks[cell]) {
    const {shape, color} = kindOf(state.blocks[cell]);
    if (COVERS[shape](y % TILE, x % TILE)) return RGB[color];
  }
  if (cell !== state.agent) return [0, 0, 0];
  return state.carrying ? [255, 255, 255] : [64, 64, 64];
}

// Returns what the networks see, 56 * 56 * 3 numbers from 0 to 255.
function render(state) {
  const image = new Uint8Array(IMAGE * IMAGE * 3);
  for (let i = 0; i < IMAGE * IMAGE; i++) {
    image.set(pixel(state, Math.floor(i / IMAGE), i % IMAGE), 3 * i);
  }
  return image;
}

// ---- Boards to start from ----

// The fewest and the most blocks that a Relations instruction does not name.
const DISTRACTORS = {
  relations: [1, 1], put_down: [1, 1], crowded: [0, 3]};

// Draws a whole number from 0 to limit - 1.
function below(limit) {
  return Math.floor(Math.random() * limit);
}

function shuffled(items) {
  const all = items.slice();
  for (let i = all.length - 1; i > 0; i--) {
    const j = below(i + 1);
    [all[i], all[j]] = [all[j], all[i]];
  }
  return all;
}

// Draws the code of a block with this colour and shape, where null or undefined
// stands for any.
function drawCode({color, shape}) {
  return 1 + 3 * (shape ? SHAPES.indexOf(shape) : below(3)) +
      (color ? COLORS.indexOf(color) : below(3));
}

// Draws the blocks of an episode. In Relations the first are those that the
// instruction names, and the others are distractors. In Arrangements there are
// four squares, and four of another colour if the instruction names a colour.
function drawBlocks(task, {left, right}) {
  if (task === 'arrangements') {
    const target = drawCode({...right, shape: 'rect'});
    const others = COLORS.filter(color => color !== right.color);
    const other = drawCode({color: others[below(2)], shape: 'rect'});
    return [...Array(4).fill(target),
            ...Array(right.color ? 4 : 0).fill(other)];
  }
  const named = [left, right].filter(operand => operand !== 'AGENT');
  const [fewest, most] = DISTRACTORS[task];
  for (;;) {
    const any = Array(fewest + below(most - fewest + 1)).fill({});
    const blocks = [...named, ...any].map(drawCode);
    // Two or more blocks must not all be the same.
    if (blocks.length < 2 || new Set(blocks).size > 1) return blocks;
  }
}

function placed(blocks, cells, agent) {
  const state = {blocks: Array(CELLS).fill(0), agent, carrying: false};
  blocks.forEach((code, i) => { state.blocks[cells[i]] = code; });
  return state;
}

// Draws a board that does not satisfy the instruction.
function drawStart(task, instruction) {
  for (;;) {
    const blocks = drawBlocks(task, instruction);
    const cells = shuffled([...Array(CELLS).keys()]);
    // In Arrangements the agent starts in a cell of its own.
    const agent = task === 'arrangements' ? cells[CELLS - 1] : below(CELLS);
    const state = placed(blocks, cells, agent);
    if (!satisfied(instruction, state, task)) return state;
  }
}

// Draws a board that satisfies the instruction.
function drawGoal(task, instruction) {
  const blocks = drawBlocks(task, instruction);
  for (;;) {
    let cells = shuffled([...Array(CELLS).keys()]);
    if (task === 'arrangements') {
      const forms = FORMS_OF[instruction.word];
      const points = turnedAndMirrored(
          pointsOf(forms[below(forms.length)]))[below(8)];
      const down = below(SIZE - Math.max(...points.map(p => p[0])));
      const right = below(SIZE - Math.max(...points.map(p => p[1])));
      const form = points.map(([y, x]) => SIZE * (y + down) + x + right);
      cells = [...form, ...cells.filter(cell => !form.includes(cell))];
    }
    const state = placed(blocks, cells, below(CELLS));
    if (satisfied(instruction, state, task)) return state;
  }
}
