'use strict';
// Instructions: their menus, their English, and the paper's grammar.
//
// An instruction is {word, left, right}, as in gridlu/language.py. An operand
// is 'AGENT' or {color, shape}, where null stands for any; without both it is
// SCENE, all blocks. `readInstruction` takes the grammar and plain English, and
// throws an Error whose message says what was expected.

const SCENE = {color: null, shape: null};
// What each relation and each form is called in a sentence.
const RELATION_WORDS = {
  NorthFrom: 'directly above', SouthFrom: 'directly below',
  EastFrom: 'directly right of', WestFrom: 'directly left of',
  SameLocation: 'in the cell of',
};
const FORM_WORDS = {
  Square: 'a square', Line: 'a line', Dline: 'a diagonal line',
  Triangle: 'a triangle', Circle: 'a circle', Eel: 'an eel',
  Snake: 'a snake', Connected: 'a connected form',
  Disconnected: 'a disconnected form',
};
// The operands of Arrangements, without SCENE, and those of Relations, without
// AGENT, in the order of the menus.
const COLORED = COLORS.map(color => ({color, shape: null}));
const OBJECTS = [
  ...COLORED, ...SHAPES.map(shape => ({color: null, shape})),
  ...COLORS.flatMap(color => SHAPES.map(shape => ({color, shape})))];

// Returns the language of a word. Each language is called after a task; the
// tasks `put_down` and `crowded` have the language `relations`.
function languageOf(word) {
  return word in RELATIONS ? 'relations' : 'arrangements';
}

// ---- From an instruction to text and to its tree ----

// Returns what the menus call an operand.
function operandWords(operand) {
  if (operand === 'AGENT') return 'the agent';
  const shape =
      operand.shape === 'rect' ? 'square' : operand.shape || 'block';
  return `a ${[operand.color, shape].filter(Boolean).join(' ')}`;
}

// Does the same for the operand of an arrangement.
function blocksWords({color}) {
  return color ? `the ${color} blocks` : 'all blocks';
}

function operandText(operand) {
  if (operand === 'AGENT') return 'AGENT';
  const inner = operand.shape ? `Shape('${operand.shape}', SCENE)` : 'SCENE';
  return operand.color ? `Color('${operand.color}', ${inner})` : inner;
}

// Writes an instruction as the paper does.
function grammarText({word, left, right}) {
  return `${word}(${operandText(left)}, ${operandText(right)})`;
}

// Returns the tree of tokens of an instruction or an operand. Each token is a
// module of the network: [token, first operand, second operand]. The tree of
// SCENE is [].
function treeOf(part) {
  if (part === 'AGENT') return ['AGENT'];
  if (part.word) {
    return [part.word, treeOf(part.left), treeOf(part.right)];
  }
  const {color, shape} = part;
  const inner = shape ? [shape] : [];
  if (!color) return inner;
  return shape ? [color, inner] : [color];
}

// ---- From text to an instruction ----

function sameOperand(one, other) {
  return operandText(one) === operandText(other);
}

// Returns an instruction, or throws an Error if the grammar has no such one.
function checked(instruction) {
  const {word, left, right} = instruction;
  const isObject = operand =>
      operand !== 'AGENT' && !sameOperand(operand, SCENE);
  if (languageOf(word) === 'arrangements') {
    if (left !== 'AGENT' || right === 'AGENT' || right.shape) {
      throw Error(`${word} is for all blocks, or for those of one colour.`);
    }
    return instruction;
  }
  for (const operand of [left, right]) {
    if (operand !== 'AGENT' && !isObject(operand)) {
      throw Error('A block needs a colour or a shape, as in “red block” or ' +
                  '“circle”.');
    }
  }
  if (sameOperand(left, right)) {
    throw Error('Both sides are the same; name two different things.');
  }
  if (word === 'SameLocation' && left !== 'AGENT' && right !== 'AGENT') {
    throw Error('Two blocks cannot share a cell: put one above, below, left ' +
                'of or right of the other.');
  }
  return instruction;
}

// Reads a text such as NorthFrom(AGENT, Color('red', SCENE)); quotes may be
// left out, and `square` means `rect`.
function readGrammar(text) {
  const tokens = text.match(/[A-Za-z]+|[(),]/g) || [];
  let next = 0;
  const take = (...expected) => {
    const token = tokens[next++];
    if (!expected.includes(token)) {
      throw Error(`${token ? `“${token}”` : 'The end'} came where one of ` +
                  `these was expected: ${expected.join('  ')}`);
    }
    return token;
  };
  // Reads an operand that begins with one of these heads.
  const takeOperand = (...heads) => {
    const head = take(...heads);
    if (head === 'AGENT') return head;
    if (head === 'SCENE') return SCENE;
    let operand;
    take('(');
    if (head === 'Color') {
      const color = take(...COLORS);
      take(',');
      operand = {...takeOperand('Shape', 'SCENE'), color};
    } else {
      const shape = take(...SHAPES, 'square');
      take(',');
      operand = {...takeOperand('SCENE'),
                 shape: shape === 'square' ? 'rect' : shape};
    }
    take(')');
    return operand;
  };
  const heads = ['AGENT', 'Color', 'Shape', 'SCENE'];
  const word = take(...Object.keys(RELATIONS), ...Object.keys(FORMS_OF));
  take('(');
  const left = takeOperand(...heads);
  take(',');
  const right = takeOperand(...heads);
  take(')');
  if (next < tokens.length) {
    throw Error(`“${tokens[next]}” came after the end of the instruction.`);
  }
  return checked({word, left, right});
}

// What English words mean. Filling words mean nothing. Any other word is an
// error, so that no text is understood only in part.
const AGENT_WORDS = /^(agent|you|yourself|me|myself|i)$/;
const COLOR_WORDS = {red: /^reds?$/, green: /^greens?$/, blue: /^blues?$/};
const SHAPE_WORDS = {
  circle: /^(circles?|balls?|dis[ck]s?)$/,
  rect: /^(rects?|rectangles?|squares?|box|boxes)$/,
  triangle: /^triangles?$/,
};
const FILLING = new RegExp('^(' + [
  'a an the one some any all every of that which so it them is are be make',
  'go goes come walk move moves put place bring take carry get stand stands',
  'let please cell place position location same to block blocks object thing',
  'directly just immediately form shape build arrange with and into in from',
  'your own side',
].join(' ').replaceAll(' ', '|') + ')$');
// The phrases that mean each relation. The text before a phrase is the left
// operand, and the text after it is the right one.
const DIRECTION_PHRASES = {
  NorthFrom: 'north(?: from| of)?|above|over',
  SouthFrom: 'south(?: from| of)?|below|beneath|under|underneath',
  EastFrom: '(?:to the |on the )?(?:right|east)(?: side)?(?: from| of)?',
  WestFrom: '(?:to the |on the )?(?:left|west)(?: side)?(?: from| of)?',
};
// The phrases that mean SameLocation.
const PLACE_PHRASE = new RegExp('\\b(?:' + [
  '(?:at|in) the (?:same )?(?:place|position|cell|location) (?:of|as)',
  'onto', 'on', 'to', 'at', 'into', 'in', 'reach', 'touch', 'visit', 'find',
  'enter',
].join('|') + ')\\b');
// The phrases that mean each form. The first one that a text has counts, so
// that a diagonal line is no Line.
const FORM_PHRASES = [
  ['Dline', /\bdiagonal(ly)?( lines?)?\b|\bdline\b/],
  ['Line', /\b(line|row|column)\b/],
  ['Disconnected', /\bdisconnected\b/], ['Connected', /\bconnected\b/],
  ['Square', /\bsquare\b/], ['Triangle', /\btriangle\b/],
  ['Circle', /\b(circle|ring|diamond)\b/],
  ['Eel', /\b(eel|l)\b/], ['Snake', /\b(snake|zigzag|s|z)\b/],
];

function namesMatching(patterns, word) {
  return Object.keys(patterns).filter(name => patterns[name].test(word));
}

// Reads a part of a sentence that names the agent or blocks; null if it names
// neither.
function readOperand(text) {
  const tooMany = () => Error(
      `“${text.trim()}” names two things where one was expected.`);
  let agent = false, blocks = null;
  for (const word of text.match(/\S+/g) || []) {
    const [color] = namesMatching(COLOR_WORDS, word);
    const [shape] = namesMatching(SHAPE_WORDS, word);
    if (AGENT_WORDS.test(word)) {
      if (agent) throw tooMany();
      agent = true;
    } else if (color || shape) {
      blocks = blocks || {...SCENE};
      if (color ? blocks.color : blocks.shape) throw tooMany();
      blocks = color ? {...blocks, color} : {...blocks, shape};
    } else if (!FILLING.test(word)) {
      throw Error(`“${word}” is a word that the agent never learned.`);
    }
  }
  if (agent && blocks) throw tooMany();
  return agent ? 'AGENT' : blocks;
}

function readRelation(text) {
  // “Right” is no direction in “right above”.
  text = text.replace(/\bright (?=above|below|over|under|north|south)/g, '');
  const directions = Object.entries(DIRECTION_PHRASES).flatMap(
      ([word, phrase]) => [...text.matchAll(RegExp(`\\b(?:${phrase})\\b`, 'g'))]
          .map(match => ({word, at: match.index, length: match[0].length})));
  if (directions.length > 1) {
    throw Error('There are two directions; the agent understands one.');
  }
  let [found] = directions;
  if (!found) {
    const match = PLACE_PHRASE.exec(text);
    if (!match) {
      throw Error('A relation was expected: above, below, left of, right of, ' +
                  'or “go to”.');
    }
    found = {word: 'SameLocation', at: match.index, length: match[0].length};
  }
  const left = readOperand(text.slice(0, found.at)) || 'AGENT';
  const right = readOperand(text.slice(found.at + found.length));
  if (!right) {
    throw Error(
        'Something was expected at the end, such as “the red circle”.');
  }
  return checked({word: found.word, left, right});
}

function readForm(text) {
  const match = FORM_PHRASES.find(([, phrase]) => phrase.test(text));
  if (!match) {
    throw Error('A form was expected: a square, line, diagonal line, ' +
                'triangle, circle, eel, snake, connected or disconnected ' +
                'form.');
  }
  const [word, phrase] = match;
  // Every block is a square, so “squares” says nothing; “square” is a form.
  const blocks = readOperand(
      text.replace(phrase, ' ').replace(/\b(rects|rectangles|squares)\b/g, ''));
  return checked({word, left: 'AGENT', right: blocks || SCENE});
}

// Reads a text in one of these languages. If several of them understand it, the
// first one counts.
function readInstruction(text, languages) {
  const plain = text.toLowerCase().replace(/[.,!?"'‘’“”]/g, ' ').trim();
  if (!plain) {
    throw Error('Type an instruction, such as “go to the red block”.');
  }
  if (/[()]/.test(text)) {
    const read = readGrammar(text);
    if (languages.includes(languageOf(read.word))) return read;
    throw Error(`No agent on this page has learned ${read.word}.`);
  }
  const readers = {relations: readRelation, arrangements: readForm};
  let problem;
  for (const language of languages) {
    try {
      return readers[language](plain);
    } catch (error) {
      problem = problem || error;
    }
  }
  throw problem;
}
