'use strict';
// The page: what is shown, and what the user does. The networks run in a
// worker; see `serve` in network.js.

const AGENTS = JSON.parse(element('data').textContent);
// What the agents are called, by their language.
const TITLES = {
  relations: 'Relations of two blocks',
  arrangements: 'Arrangements of four blocks',
};
const ACTION_KEYS = ['w', 's', 'a', 'd', 'e'];
const PAUSE = 350;  // Milliseconds between the steps of a running agent.
const SHOWN = 60;  // States in the picture of D's history.

// These variables are all that changes.
let agent = 0;  // An index into AGENTS.
let instruction;
// Moments {agent, instruction, episode, state, action, reached, probability},
// where `action` led to the state, if not -1. The last one is now.
let past = [];
let episode = 0;  // A new board or a new instruction begins the next one.
let answer = null;  // The worker's answer for the last moment; null before.
let asked = 0;  // The number of the last question.
let taken = -1;  // The cell whose content the next click moves.
let cursor = 12;  // The cell that the keyboard has chosen.
// What a click does: 'move'; or 'agent', which puts the agent into a cell; or a
// block's code as text, which puts the block there. '0' removes a block.
let tool = 'move';
let letters = false;
let running = 0;  // 1 + the steps of a running agent; 0 if it does not run.
let timer = 0;
let searches = 0;  // The number of the last search for a mistake.
let searching = false;

function element(id) { return document.getElementById(id); }
function now() { return past[past.length - 1]; }
function percent(x) {
  const value = 100 * x;
  if (value > 0 && value < .05) return '<0.1 %';
  if (value > 99.95 && value < 100) return '>99.9 %';
  return `${value < 10 || value > 90 ? value.toFixed(1) : value.toFixed(0)} %`;
}

// ---- The worker ----

const sources = ['world', 'language', 'network'].map(
    id => element(id).textContent);
const worker = new Worker(URL.createObjectURL(new Blob(
    [...sources, 'serve();'], {type: 'text/javascript'})));
worker.onerror = ({message}) => {
  element('problem').textContent = `The networks do not run here: ${message}`;
};
worker.postMessage({agents: AGENTS});
worker.onmessage = ({data}) => {
  if ('search' in data) {
    showSearch(data);
  } else if (data.id === asked) {
    answer = data;
    now().probability = data.probability;
    showAnswer();
    if (running) timer = setTimeout(runOn, PAUSE);
  }
};

function ask() {
  answer = null;
  asked++;
  worker.postMessage({id: asked, agent, state: now().state, instruction});
}

// ---- Changes ----

// Goes to a state. `action` says which action led there.
function go(state, action = -1) {
  clearTimeout(timer);
  const reached = satisfied(instruction, state, AGENTS[agent].task);
  past = [...past.slice(-500),
          {agent, instruction, episode, state, action, reached}];
  taken = -1;
  refresh();
}

// Begins anew, with another board or another instruction.
function begin(state) {
  stop();
  episode++;
  go(state);
}

function setInstruction(wanted) {
  instruction = wanted;
  element('problem').textContent = '';
  stopSearch();
  showInstruction();
}

function act(action) {
  element('search').textContent = '';
  go(step(now().state, action, AGENTS[agent].immovable), action);
}

// Lets the agent act: it draws from its probabilities.
function letAct() {
  if (!answer) return;
  // The first action counts with which the sum of the probabilities exceeds a
  // random number.
  let left = Math.random();
  const drawn = answer.actions.findIndex(share => (left -= share) < 0);
  act(drawn < 0 ? answer.actions.length - 1 : drawn);
}

function runOn() {
  if (!running) return;
  if (running > AGENTS[agent].episodeLength) {
    stop();
    return;
  }
  running++;
  letAct();
  showRun();
}

function stop() {
  clearTimeout(timer);
  running = 0;
  showRun();
}

function toggleRun() {
  if (running) {
    stop();
  } else {
    running = 1;
    showRun();
    if (answer) runOn();
  }
}

function undo() {
  if (past.length < 2) return;
  stop();
  past.pop();
  ({agent, instruction, episode} = now());
  taken = -1;
  showAgent();
  setInstruction(instruction);
  refresh();
}

function newBoard() {
  stopSearch();
  begin(drawStart(AGENTS[agent].task, instruction));
}

function chooseAgent(index) {
  agent = index;
  setInstruction(drawInstruction());
  newBoard();
}

function drawInstruction() {
  for (;;) {
    try {
      if (AGENTS[agent].language === 'arrangements') {
        const words = Object.keys(FORMS_OF);
        return checked({word: words[below(words.length)], left: 'AGENT',
                        right: [SCENE, ...COLORED][below(4)]});
      }
      const operands = ['AGENT', ...OBJECTS];
      const words = Object.keys(RELATIONS);
      return checked({
        word: words[below(words.length)],
        left: operands[below(operands.length)],
        right: operands[below(operands.length)]});
    } catch {
      // Not in the grammar; draw again.
    }
  }
}

function edit(state) {
  stop();
  element('search').textContent = '';
  go(state);
}

// Does what a click into a cell means, or Enter.
function useCell(cell) {
  const {state} = now();
  const {immovable} = AGENTS[agent];
  cursor = cell;
  if (tool === 'agent') {
    edit(withAgent(state, cell, immovable));
  } else if (tool !== 'move') {
    edit(withBlock(state, cell, Number(tool)));
  } else if (taken >= 0 && taken !== cell) {
    edit(moved(state, taken, cell));
  } else {
    taken = taken === cell || !isFull(state, cell) ? -1 : cell;
    showBoard();
  }
}

function isFull(state, cell) {
  return state.blocks[cell] > 0 || state.agent === cell;
}

// ---- What is shown ----

function refresh() {
  ask();  // First, so that the worker computes while the page draws.
  showBoard();
  showTruth();
  showHistory();
  saveLink();
}

// Returns the picture of a cell with the block of a code, or 0 for none. `look`
// is 'free' or 'carrying' for a cell with the agent, and else ''.
function drawing(code, look) {
  const parts = [];
  if (look) {
    parts.push(`<rect class="${look}" x="4" y="4" width="92" height="92"
        rx="16"/><circle class="eye" cx="36" cy="14" r="5"/>
        <circle class="eye" cx="64" cy="14" r="5"/>`);
  }
  if (code) {
    const {color, shape} = kindOf(code);
    const outline = {
      circle: 'circle cx="50" cy="54" r="30"',
      rect: 'rect x="24" y="28" width="52" height="52" rx="3"',
      triangle: 'path d="M50 22 L84 84 H16 Z"',
    }[shape];
    parts.push(`<${outline} class="shape ${color}"/>`);
    if (letters) {
      parts.push(`<text x="50" y="${shape === 'triangle' ? 76 : 63}">${
          color[0].toUpperCase()}</text>`);
    }
  }
  return `<svg class="cell" viewBox="0 0 100 100" aria-hidden="true">${
      parts.join('')}</svg>`;
}

function describe(code) {
  if (!code) return '';
  const {color, shape} = kindOf(code);
  return `${color} ${shape === 'rect' ? 'square' : shape}`;
}

function showBoard() {
  const {state} = now();
  [...document.querySelectorAll('#board button')].forEach((button, cell) => {
    const code = state.blocks[cell];
    const look = state.agent !== cell ? '' :
        state.carrying ? 'carrying' : 'free';
    const picture = drawing(code, look);
    if (button.picture !== picture) {
      button.innerHTML = button.picture = picture;
    }
    const agentWords = {'': '', free: 'the agent',
                        carrying: 'the agent carries it'}[look];
    button.setAttribute('aria-label', `Row ${Math.floor(cell / SIZE) + 1}, ` +
        `column ${cell % SIZE + 1}: ` +
        ([describe(code), agentWords].filter(Boolean).join(', ') || 'empty') +
        (taken === cell ? ', taken' : ''));
    button.tabIndex = cell === cursor ? 0 : -1;
    button.classList.toggle('taken', taken === cell);
    button.classList.toggle(
        'movable', tool === 'move' && isFull(state, cell));
  });
  const context = element('pixels').querySelector('canvas').getContext('2d');
  const image = context.createImageData(IMAGE, IMAGE);
  render(state).forEach((value, i) => {
    image.data[4 * Math.floor(i / 3) + i % 3] = value;
    image.data[4 * Math.floor(i / 3) + 3] = 255;
  });
  context.putImageData(image, 0, 0);
  element('undo').disabled = past.length < 2;
}

function showMark(id, isTrue, yes, no) {
  element(id).textContent = isTrue ? yes : no;
  element(id).className = isTrue ? 'yes' : 'no';
}

function showTruth() {
  showMark('truth', now().reached, 'reached', 'not reached');
}

function showAnswer() {
  const {probability, actions, milliseconds} = answer;
  if (probability !== null) {
    const accepts = probability > AGENTS[agent].threshold;
    element('gauge').setAttribute(
        'aria-valuenow', (100 * probability).toFixed(1));
    const arc = document.querySelector('#gauge .value');
    arc.setAttribute(
        'stroke-dasharray', `${(100 * probability).toFixed(2)} 200`);
    document.querySelector('#gauge .number').textContent = percent(probability);
    showMark('decision', accepts, 'accepts', 'rejects');
    const right = accepts === now().reached;
    element('comparison').className = right ? 'right' : 'wrong';
    element('comparison').textContent = right ? 'D is right.' : accepts ?
        'D is fooled: it accepts, but the goal is not reached.' :
        'D is wrong: it rejects, but the goal is reached.';
  }
  document.querySelectorAll('#actions button').forEach((button, action) => {
    // A width in CSS has neither '<' or '>' nor a space.
    button.querySelector('.bar').style.width = percent(actions[action])
        .replace('<0.1 %', '0').replace('>99.9 %', '100%').replace(' ', '');
    button.querySelector('.share').textContent = percent(actions[action]);
    button.classList.toggle('done', now().action === action);
  });
  element('step').disabled = false;
  element('speed').textContent =
      `The last answer took ${milliseconds.toFixed(1)} ms.`;
  showHistory();
}

function showHistory() {
  const shown = past.slice(-SHOWN).filter(
      moment => moment.episode === now().episode);
  const width = 300 / Math.max(30, shown.length);
  const points = [];
  const bars = shown.map(({probability, reached}, i) => {
    if (typeof probability === 'number') {
      points.push(`${((i + .5) * width).toFixed(1)},${
          (64 - 60 * probability).toFixed(1)}`);
    }
    return reached ? `<rect class="reached" x="${(i * width).toFixed(1)}"
        y="71" width="${width.toFixed(1)}" height="7"/>` : '';
  });
  const last = points.length ? points[points.length - 1].split(',') : null;
  element('history').querySelector('svg').innerHTML =
      `<path class="limit" d="M0 ${64 - 60 * AGENTS[agent].threshold} H300"/>
          <rect class="base" x="0" y="71" width="300" height="7"/>
          ${bars.join('')}<polyline class="line"
          points="${points.join(' ')}"/>` +
      (last ? `<path class="line" d="M${last[0]} ${last[1] - 4} v8"/>` : '');
}

function showRun() {
  element('run').querySelector('span').textContent =
      running ? 'Pause' : 'Let it run';
  element('count').textContent = running > 1 ?
      `step ${running - 1} of ${AGENTS[agent].episodeLength}` : '';
}

// Builds a menu of values, each with its words.
function menu(label, values, words, chosen, change) {
  const select = document.createElement('select');
  select.setAttribute('aria-label', label);
  values.forEach((value, i) => {
    const option = new Option(words(value), i);
    option.selected = value === chosen || typeof value === 'object' &&
        typeof chosen === 'object' && sameOperand(value, chosen);
    select.add(option);
  });
  select.onchange = () => {
    change(values[select.value]);
    // The change has built the menus again; the same one keeps the focus.
    element('sentence').querySelector(`[aria-label="${label}"]`).focus();
  };
  return select;
}

// Takes a changed part of the instruction from a menu. Another part changes too
// if the two do not go together.
function changeInstruction(changes) {
  const wanted = {...instruction, ...changes};
  if (languageOf(wanted.word) === 'relations') {
    if (sameOperand(wanted.left, wanted.right)) {  // They change places.
      if ('left' in changes) wanted.right = instruction.left;
      else wanted.left = instruction.right;
    }
    if (wanted.word === 'SameLocation' && wanted.left !== 'AGENT' &&
        wanted.right !== 'AGENT') {
      if ('word' in changes) wanted.left = 'AGENT';
      else wanted.word = 'NorthFrom';
    }
  }
  replaceInstruction(checked(wanted));
}

// Goes on from the same board with another instruction. D's history begins
// anew, because it was about the old one.
function replaceInstruction(wanted) {
  const {state} = now();
  setInstruction(wanted);
  begin(state);
}

function showInstruction() {
  const {word, left, right} = instruction;
  const sentence = element('sentence');
  if (AGENTS[agent].language === 'arrangements') {
    sentence.replaceChildren(
        'Goal: ',
        menu('Blocks', [SCENE, ...COLORED], blocksWords, right,
             value => changeInstruction({right: value})),
        ' make ',
        menu('Form', Object.keys(FORMS_OF), name => FORM_WORDS[name], word,
             value => changeInstruction({word: value})), '.');
  } else {
    const operands = ['AGENT', ...OBJECTS];
    sentence.replaceChildren(
        'Goal: ',
        menu('What', operands, operandWords, left,
             value => changeInstruction({left: value})),
        ' is ',
        menu('Where', Object.keys(RELATIONS), name => RELATION_WORDS[name],
             word, value => changeInstruction({word: value})), ' ',
        menu('Of what', operands, operandWords, right,
             value => changeInstruction({right: value})), '.');
  }
  element('grammar').querySelector('code').textContent =
      grammarText(instruction);
}

function showAgent() {
  const {language, discriminator, steps, name, task, reward, imitates} =
      AGENTS[agent];
  for (const text of document.querySelectorAll('[data-reward]')) {
    text.hidden = !text.dataset.reward.split(' ').includes(reward);
  }
  element('imitation').hidden = !imitates;
  document.querySelectorAll('#agents input')[agent].checked = true;
  element('judge').textContent =
      language === 'arrangements' ? 'Our checker' : 'The truth';
  element('verdict').classList.toggle('alone', !discriminator);
  for (const id of ['gauge', 'comparison', 'history']) {
    element(id).hidden = !discriminator;
  }
  element('mistake').parentElement.hidden = !discriminator;
  element('decision').parentElement.hidden = !discriminator;
  showThreshold();
  element('typed').placeholder = language === 'arrangements' ?
      'or type: make a line of the red blocks' :
      'or type: put the red circle left of the blue square';
  element('trained').textContent = ({
    relations: 'the blocks that the instruction names and one other',
    put_down: 'the blocks that the instruction names and one other',
    crowded: 'the blocks that the instruction names and up to three others',
    arrangements: 'four squares of one colour, or four each of two colours',
  })[task];
  element('origin').textContent =
      `${name} after ${steps.toLocaleString('en')} steps`;
}

// Shows on the gauge, an arc from the left to the right, what D must exceed.
function showThreshold() {
  const {threshold} = AGENTS[agent];
  const limit = document.querySelector('#gauge .limit');
  const angle = Math.PI * (1 - threshold);
  limit.textContent = percent(threshold);
  limit.setAttribute('x', 100 + 95 * Math.cos(angle));
  limit.setAttribute('y', 100 - 95 * Math.sin(angle));
  document.querySelector('#gauge .threshold').setAttribute(
      'transform', `rotate(${180 * threshold - 90} 100 100)`);
}

// ---- The search for a mistake ----

function findMistake() {
  if (searching) {
    stopSearch();
    return;
  }
  stop();
  searching = true;
  searches++;
  element('mistake').textContent = 'Stop the search';
  element('search').textContent = '';
  worker.postMessage({search: searches, agent, instruction});
}

function stopSearch() {
  // A message without an instruction begins no other search.
  if (searching) worker.postMessage({search: ++searches});
  searching = false;
  element('mistake').textContent = 'Find a board that D gets wrong';
  element('search').textContent = '';
}

function showSearch({search, tried, state, over}) {
  if (search !== searches || !searching) return;
  if (state || over) {
    searching = false;
    element('mistake').textContent = 'Find a board that D gets wrong';
  }
  if (state) begin(state);
  const boards = `${tried} ${tried === 1 ? 'board' : 'boards'}`;
  element('search').textContent = state ? `Found after ${boards}.` :
      over ? `None in ${boards} like those of training.` :
      `${boards} tried …`;
}

// ---- The link ----

function linkText() {
  const {state} = now();
  const say = grammarText(instruction).replace(/[' ]/g, '');
  return `#agent=${AGENTS[agent].name}&say=${say}&board=${
      state.blocks.join('')}&at=${state.agent}${
      state.carrying ? '&carries=1' : ''}`;
}

function saveLink() {
  element('linked').textContent = '';
  history.replaceState(null, '', linkText());
}

// Shows what the address of the page holds; returns whether it holds anything.
function readLink() {
  const values = new URLSearchParams(location.hash.slice(1));
  if (!values.has('say')) return false;
  const index = AGENTS.findIndex(({name}) => name === values.get('agent'));
  const board = values.get('board') || '', at = Number(values.get('at'));
  try {
    if (index < 0) throw Error('The link is to an agent that is not here.');
    if (!/^[0-9]{25}$/.test(board) || !Number.isInteger(at) || at < 0 ||
        at >= CELLS) {
      throw Error('The link has no whole board.');
    }
    const read = readInstruction(
        values.get('say'), [AGENTS[index].language]);
    const blocks = [...board].map(Number);
    agent = index;
    setInstruction(read);
    showAgent();
    begin({blocks, agent: at,
           carrying: values.get('carries') === '1' && blocks[at] > 0});
    return true;
  } catch (error) {
    element('problem').textContent = error.message;
    return false;
  }
}

async function copyLink() {
  const link = location.href;
  try {
    await navigator.clipboard.writeText(link);
    element('linked').textContent =
        'Copied. It opens this page with this board and this instruction.';
  } catch {
    const field = document.createElement('input');
    field.value = link;
    field.readOnly = true;
    field.setAttribute('aria-label', 'The link');
    element('linked').replaceChildren(field);
    field.select();
  }
}

// ---- What the user does ----

function readTyped() {
  const own = AGENTS[agent].language;
  const languages = [own, ...AGENTS.map(({language}) => language)];
  try {
    const read = readInstruction(
        element('typed').value, [...new Set(languages)]);
    const language = languageOf(read.word);
    if (language === own) {
      replaceInstruction(read);
    } else {
      agent = AGENTS.findIndex(each => each.language === language);
      showAgent();
      setInstruction(read);
      newBoard();
    }
    element('typed').value = '';
  } catch (error) {
    element('problem').textContent = error.message;
  }
}

function press(event) {
  const {key, ctrlKey, metaKey, altKey, target} = event;
  if (ctrlKey || metaKey || altKey ||
      target.matches('select, input[type=text], input[readonly]')) {
    return;
  }
  const cell = [...document.querySelectorAll('#board button')].indexOf(target);
  if (cell >= 0 && pressInCell(event, cell)) {
    event.preventDefault();
    return;
  }
  const action = ACTION_KEYS.indexOf(key.toLowerCase());
  const commands = {n: letAct, r: toggleRun, b: newBoard, u: undo,
                    l: toggleLetters};
  if (action >= 0) {
    stop();
    act(action);
  } else if (commands[key.toLowerCase()]) {
    if (key.toLowerCase() === 'n') stop();
    commands[key.toLowerCase()]();
  }
}

// Acts on a key in a cell of the board; returns whether the key means anything.
function pressInCell({key}, cell) {
  const {state} = now();
  const steps = {ArrowUp: MOVES[0], ArrowDown: MOVES[1], ArrowLeft: MOVES[2],
                 ArrowRight: MOVES[3]};
  if (steps[key]) {
    const next = neighbour(cell, ...steps[key]);
    if (next >= 0) {
      cursor = next;
      showBoard();
      document.querySelectorAll('#board button')[next].focus();
    }
  } else if (/^[1-9]$/.test(key)) {
    edit(withBlock(state, cell, Number(key)));
  } else if (key === '0') {
    edit(withAgent(state, cell, AGENTS[agent].immovable));
  } else if (key === 'Delete' || key === 'Backspace') {
    edit(withBlock(state, cell, 0));
  } else if (key === 'Escape') {
    taken = -1;
    showBoard();
  } else {
    return false;
  }
  return true;
}

function toggleLetters() {
  letters = !letters;
  element('letters').setAttribute('aria-pressed', letters);
  showTools();
  showBoard();
}

// Follows a pointer that drags a block or the agent from a cell, or a block of
// the tools (`code`) if the cell is -1. If the pointer was moved at all,
// `dropped` gets the cell where it was released, or -1 outside the board.
function drag(event, cell, code, dropped) {
  if (event.button) return;
  const {clientX, clientY, pointerId} = event;
  let ghost = null, target = -1;
  const buttons = [...document.querySelectorAll('#board button')];
  const follow = move => {
    if (move.pointerId !== pointerId) return;
    const {clientX: x, clientY: y} = move;
    if (!ghost && Math.hypot(x - clientX, y - clientY) > 6) {
      ghost = document.createElement('div');
      ghost.id = 'dragged';
      const {state} = now();
      ghost.innerHTML = cell < 0 ? drawing(code, '') : drawing(
          state.blocks[cell],
          !movesAgent(state, cell) ? '' : state.carrying ? 'carrying' : 'free');
      document.body.append(ghost);
      if (cell >= 0) buttons[cell].classList.add('lifted');
    }
    if (!ghost) return;
    ghost.style.left = `${x}px`;
    ghost.style.top = `${y}px`;
    const under = document.elementFromPoint(x, y);
    target = buttons.indexOf(under && under.closest('#board button'));
    buttons.forEach(
        (button, i) => button.classList.toggle('target', i === target));
  };
  const end = last => {
    if (last.pointerId !== pointerId) return;
    listeners.forEach(each => removeEventListener(...each));
    buttons.forEach(button => button.classList.remove('target', 'lifted'));
    if (!ghost) return;
    ghost.remove();
    // The browser reports a click at the end of the drag, which is ignored.
    const swallow = click => click.stopPropagation();
    addEventListener('click', swallow, {capture: true, once: true});
    setTimeout(() => removeEventListener('click', swallow, {capture: true}));
    if (last.type === 'pointerup') dropped(target);
  };
  const listeners = [
    ['pointermove', follow], ['pointerup', end], ['pointercancel', end]];
  listeners.forEach(each => addEventListener(...each));
}

// Moves what was dragged from a cell. A block that is dropped outside the board
// is removed; the agent stays.
function dropFromCell(from, to) {
  const {state} = now();
  if (to === from || to < 0 && movesAgent(state, from)) return;
  edit(to < 0 ? withBlock(state, from, 0) : moved(state, from, to));
}

// ---- The start ----

function buildBoard() {
  for (let row = 0; row < SIZE; row++) {
    const line = document.createElement('div');
    line.setAttribute('role', 'row');
    for (let column = 0; column < SIZE; column++) {
      const cell = SIZE * row + column;
      const button = document.createElement('button');
      button.setAttribute('role', 'gridcell');
      button.onclick = () => useCell(cell);
      button.onfocus = () => { cursor = cell; };
      button.onpointerdown = event => {
        if (tool === 'move' && isFull(now().state, cell)) {
          drag(event, cell, 0, to => dropFromCell(cell, to));
        }
      };
      line.append(button);
    }
    element('board').append(line);
  }
}

function showTools() {
  for (const label of document.querySelectorAll('#tools label')) {
    const {value} = label.firstChild;
    const picture = label.querySelector('span');
    if (value === 'agent') picture.innerHTML = drawing(0, 'free');
    if (value > 0) picture.innerHTML = drawing(Number(value), '');
  }
}

function buildTools() {
  const names = {move: 'Move', agent: 'the agent', 0: 'Clear'};
  const codes = [...Array(CODES).keys()].slice(1);
  for (const value of ['move', 'agent', 0, ...codes]) {
    const label = document.createElement('label');
    const input = document.createElement('input');
    input.type = 'radio';
    input.name = 'tool';
    input.value = value;
    input.checked = value === tool;
    const name = names[value] || describe(value);
    label.title = name;
    input.setAttribute('aria-label', name);
    input.onchange = () => {
      tool = input.value;
      taken = -1;
      showBoard();
    };
    const picture = document.createElement('span');
    if (value === 'move' || value === 0) picture.textContent = name;
    label.append(input, picture);
    if (value > 0) {
      label.style.touchAction = 'none';
      label.onpointerdown = event => drag(event, -1, value, to => {
        if (to >= 0) edit(withBlock(now().state, to, value));
      });
    }
    element('tools').append(label);
  }
  showTools();
}

function buildAgents() {
  AGENTS.forEach(({language, name, instructions}, i) => {
    const label = document.createElement('label');
    const input = document.createElement('input');
    input.type = 'radio';
    input.name = 'agent';
    input.onchange = () => {
      chooseAgent(i);
      showAgent();
    };
    const shared = AGENTS.filter(other => other.language === language);
    label.append(input, TITLES[language] +
                 (shared.length > 1 ? ` (${name})` : ''));
    label.title = `${instructions} instructions`;
    element('agents').append(label);
  });
  element('agents').hidden = AGENTS.length < 2;
}

function buildActions() {
  const names = ['Up', 'Down', 'Left', 'Right', 'Pick up or put down'];
  names.forEach((name, action) => {
    const item = document.createElement('li');
    const button = document.createElement('button');
    button.innerHTML = `<span class="bar"></span><kbd>${ACTION_KEYS[action]}` +
        `</kbd><span>${name}</span><span class="share"></span>`;
    button.onclick = () => {
      stop();
      act(action);
    };
    item.append(button);
    element('actions').append(item);
  });
}

function start() {
  buildBoard();
  buildTools();
  buildAgents();
  buildActions();
  element('typing').onsubmit = event => {
    event.preventDefault();
    readTyped();
  };
  element('another').onclick = () => {
    setInstruction(drawInstruction());
    newBoard();
  };
  element('fresh').onclick = newBoard;
  element('undo').onclick = undo;
  element('letters').onclick = toggleLetters;
  element('link').onclick = copyLink;
  element('mistake').onclick = findMistake;
  element('run').onclick = toggleRun;
  element('step').onclick = () => {
    stop();
    letAct();
  };
  addEventListener('keydown', press);
  addEventListener('hashchange', readLink);
  if (!readLink()) {
    const problem = element('problem').textContent;
    setInstruction(
        AGENTS[0].language === 'arrangements' ?
            checked({word: 'Line', left: 'AGENT', right: SCENE}) :
            checked({word: 'NorthFrom',
                     left: {color: 'red', shape: 'circle'},
                     right: {color: 'blue', shape: null}}));
    showAgent();
    newBoard();
    element('problem').textContent = problem;
  }
}

start();
