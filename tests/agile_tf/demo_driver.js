'use strict';
// Asks a page that agile_tf.demo made, without a browser: `node demo_driver.js
// PAGE` reads {function, arguments} from stdin, JSON, and writes what that
// function below returns for all of its arguments.

const fs = require('fs');
const vm = require('vm');

const page = fs.readFileSync(process.argv[2], 'utf8');

function script(id) {
  const start = page.indexOf('>', page.indexOf(`id="${id}"`)) + 1;
  return page.slice(start, page.indexOf('</script>', start));
}

for (const id of ['world', 'language', 'network']) {
  vm.runInThisContext(script(id), {filename: `${id}.js`});
}

const agents = JSON.parse(script('data'));

// A state as gridlu.world.pack has it, 27 numbers.
const unpacked = numbers => ({
  blocks: numbers.slice(0, 25), agent: numbers[25], carrying: numbers[26] > 0});
const packed = ({blocks, agent, carrying}) => [...blocks, agent, +carrying];

// Returns the sentence that the page's menus show for an instruction.
const english = ({word, left, right}) =>
  languageOf(word) === 'arrangements' ?
      `${blocksWords(right)} make ${FORM_WORDS[word]}` :
      `${operandWords(left)} is ${RELATION_WORDS[word]} ${operandWords(right)}`;

const functions = {
  step: (state, action, immovable) =>
      packed(step(unpacked(state), action, immovable)),
  render: state => [...render(unpacked(state))],
  satisfied: (task, text, state) =>
      satisfied(readGrammar(text), unpacked(state), task),
  // An instruction in the grammar, its tree, and what the page reads in its
  // English.
  language: text => {
    const read = readGrammar(text);
    const again = readInstruction(english(read), [languageOf(read.word)]);
    return [grammarText(read), treeOf(read), grammarText(again)];
  },
  // What a text means in these languages, or the error's message.
  read: (text, languages) => {
    try {
      return grammarText(readInstruction(text, languages));
    } catch (error) {
      return error.message;
    }
  },
  // D and the probabilities of the actions, by the number of the agent.
  networks: (number, text, state) => {
    const agent = agents[number], tree = treeOf(readGrammar(text));
    agent.read = agent.read || {
      policy: readWeights(agent.policy),
      discriminator: agent.discriminator && readWeights(agent.discriminator)};
    const {read} = agent;
    return [
      read.discriminator &&
          discriminator(unpacked(state), tree, agent, read.discriminator),
      policy(unpacked(state), tree, agent, read.policy)];
  },
  // A board to start from and one that satisfies the instruction.
  draw: (task, text) => [drawStart, drawGoal].map(
      draw => packed(draw(task, readGrammar(text)))),
  // What the user does: to a cell with a block, with the agent, from a cell.
  edit: (state, name, ...rest) => packed(
      {withBlock, withAgent, moved}[name](unpacked(state), ...rest)),
};

const asked = JSON.parse(fs.readFileSync(0, 'utf8'));
process.stdout.write(JSON.stringify(
    asked.arguments.map(values => functions[asked.function](...values))));
