'use strict';
// The policy and the reward model D: appendix H of the paper, term by term.
//
// It is tests/agile_tf/agent/network_oracles.py in JavaScript. An instruction
// is its tree, an image is one image, and a feature map is {size, channels,
// values}: values[(size * y + x) * channels + c]. All numbers are doubles; the
// weights were rounded to float16. `serve` runs all this in a worker.

// ---- Weights ----

function float16(bits) {
  const sign = bits >> 15 ? -1 : 1, exponent = bits >> 10 & 31;
  const fraction = bits & 1023;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) :
      2 ** -14 * fraction / 1024);
}

// Returns a network's weights by name, {shape, values}, from their shapes in
// order and base64 of float16 numbers, little-endian.
function readWeights({shapes, base64}) {
  const bytes = atob(base64);
  let at = 0;
  const weights = {};
  for (const [name, shape] of shapes) {
    const values = new Float64Array(shape.reduce((a, b) => a * b, 1));
    for (let i = 0; i < values.length; i++, at += 2) {
      values[i] = float16(
          bytes.charCodeAt(at) | bytes.charCodeAt(at + 1) << 8);
    }
    weights[name] = {shape, values};
  }
  return weights;
}

// ---- Layers ----

const relu = x => Math.max(0, x);

// Cross-correlates a feature map with a kernel [k, k, channels, outputs]: with
// zeros around it (SAME), or only where the kernel fits (VALID).
function convolve(map, {shape: [k, , channels, outputs], values: w},
                  padding, stride = 1) {
  const border = padding === 'SAME' ? (k - 1) / 2 : 0;  // The zeros' width.
  const size = padding === 'SAME' ? map.size :
      Math.floor((map.size - k) / stride) + 1;
  const values = new Float64Array(size * size * outputs);
  // The inputs of one output cell, and where the weights of each begin.
  const inputs = new Float64Array(k * k * channels + 3);
  const starts = new Int32Array(inputs.length);
  for (let cell = 0; cell < size * size; cell++) {
    let count = 0;
    for (let i = 0; i < k; i++) {
      for (let j = 0; j < k; j++) {
        const row = stride * Math.floor(cell / size) + i - border;
        const column = stride * (cell % size) + j - border;
        if (Math.min(row, column) < 0 || Math.max(row, column) >= map.size) {
          continue;
        }
        const from = (map.size * row + column) * channels;
        for (let c = 0; c < channels; c++) {
          if (!map.values[from + c]) continue;  // Many are 0.
          inputs[count] = map.values[from + c];
          starts[count++] = ((k * i + j) * channels + c) * outputs;
        }
      }
    }
    // Four inputs at a time take half the time of single ones. Three zeros fill
    // the last four.
    inputs.fill(0, count, count + 3);
    for (let n = 0; n < count; n += 4) {
      const a = inputs[n], b = inputs[n + 1], c = inputs[n + 2];
      const d = inputs[n + 3], p = starts[n], q = starts[n + 1];
      const r = starts[n + 2], s = starts[n + 3];
      for (let out = 0; out < outputs; out++) {
        values[cell * outputs + out] += a * w[p + out] + b * w[q + out] +
            c * w[r + out] + d * w[s + out];
      }
    }
  }
  return {size, channels: outputs, values};
}

// Applies a function of a number, its channel and its index.
function mapped(map, compute) {
  return {...map, values: map.values.map(
      (value, i) => compute(value, i % map.channels, i))};
}

// Joins the channels of two feature maps in each cell.
function concatenated(one, other) {
  const values = new Float64Array(one.values.length + other.values.length);
  for (let i = 0; i < one.size ** 2; i++) {
    values.set(one.values.subarray(i * one.channels, (i + 1) * one.channels),
               i * (one.channels + other.channels));
    values.set(
        other.values.subarray(i * other.channels, (i + 1) * other.channels),
        i * (one.channels + other.channels) + one.channels);
  }
  return {size: one.size, channels: one.channels + other.channels, values};
}

// Returns x w + b of a vector; a layer may have no b.
function linear(x, weights, name) {
  const {shape: [inputs, units], values: w} = weights[`${name}/w`];
  const b = weights[`${name}/b`];
  return Array.from({length: units}, (_, unit) => {
    let sum = b ? b.values[unit] : 0;
    for (let i = 0; i < inputs; i++) sum += x[i] * w[i * units + unit];
    return sum;
  });
}

// Adds a number to each channel; a ReLU follows.
function reluBiased(map, b) {
  return mapped(map, (value, channel) => relu(value + b.values[channel]));
}

// ---- The FiLM-NMN ----

// m_x(h_l, h_r) = ReLU((1 + gamma_x) * (W_m conv [h_l; h_r]) + beta_x); the
// empty tree is the scene, and a missing second operand is zeros.
function evaluate(tree, scene, weights, tokens) {
  if (!tree.length) return scene;
  const [token, left = [], right] = tree;
  const zeros = {...scene, values: new Float64Array(scene.values.length)};
  const operands = concatenated(
      evaluate(left, scene, weights, tokens),
      right ? evaluate(right, scene, weights, tokens) : zeros);
  const convolved = convolve(operands, weights['film_nmn/w'], 'SAME');
  const row = tokens.indexOf(token) * scene.channels;
  const gamma = weights['film_nmn/gamma'].values;
  const beta = weights['film_nmn/beta'].values;
  return mapped(convolved, (value, channel) => relu(
      (1 + gamma[row + channel]) * value + beta[row + channel]));
}

function nmnFeatures(image, tree, weights, tokens) {
  const patches = reluBiased(
      convolve(image, weights['stem/patches/w'], 'VALID', 8),
      weights['stem/patches/b']);
  const scene = reluBiased(
      convolve(patches, weights['stem/neighbours/w'], 'VALID'),
      weights['stem/neighbours/b']);
  const found = evaluate(tree, scene, weights, tokens);
  const merge = weights['merge/convolution/w'];  // Only the policy has it.
  if (!merge) return found;
  return reluBiased(convolve(concatenated(found, scene), merge, 'SAME'),
                    weights['merge/convolution/b']);
}

// ---- The FiLM-LSTM ----

const sigmoid = x => 1 / (1 + Math.exp(-x));

// Returns an LSTM's state after a tree's tokens, in the order of the text.
function readTokens(tree, weights, tokens) {
  const embeddings = weights['instruction_lstm/embeddings'];
  const width = embeddings.shape[1];
  const units = weights['instruction_lstm/b'].shape[0] / 4;
  let h = Array(units).fill(0), cell = h;
  for (const token of tree.flat(Infinity)) {
    const row = tokens.indexOf(token) * width;
    const embedded = embeddings.values.subarray(row, row + width);
    const gates = linear([...embedded, ...h], weights, 'instruction_lstm');
    // The gates by number: 0 is for the input, 1 has the new values, 2 is for
    // the old ones, and 3 is for the output.
    const gate = (number, unit) => gates[number * units + unit];
    cell = cell.map((value, unit) =>
        sigmoid(gate(2, unit) + 1) * value +
        sigmoid(gate(0, unit)) * Math.tanh(gate(1, unit)));
    h = cell.map((value, unit) => sigmoid(gate(3, unit)) * Math.tanh(value));
  }
  return h;
}

// h_k = ReLU((1 + gamma_k) * (W_k conv h_(k-1)) + beta_k), and h_3 is added to
// layer 5 before its ReLU.
function lstmFeatures(image, tree, weights, tokens) {
  const read = readTokens(tree, weights, tokens);
  const gamma = linear(read, weights, 'gamma');
  const beta = linear(read, weights, 'beta');
  let first = 0, h = image, third;
  for (let layer = 1; layer <= 5; layer++) {
    const kernel = weights[`layer_${layer}/w`];
    const convolved = convolve(
        h, kernel, layer < 3 ? 'VALID' : 'SAME', layer === 1 ? 8 : 1);
    h = mapped(convolved, (value, channel, i) => relu(
        (1 + gamma[first + channel]) * value + beta[first + channel] +
        (layer === 5 ? third.values[i] : 0)));
    first += h.channels;
    if (layer === 3) third = h;
  }
  return h;
}

// ---- Both networks ----

// Returns the hidden layer of a network for a state and an instruction's tree.
function hidden(state, tree, {model, tokens}, weights) {
  const image = {size: IMAGE, channels: 3,
                 values: new Float64Array(render(state)).map(x => x / 255)};
  const features = {nmn: nmnFeatures, lstm: lstmFeatures}[model];
  const {channels, values} = features(image, tree, weights, tokens);
  // Of each channel only the highest number of all cells counts.
  const highest = Array(channels).fill(-Infinity);
  values.forEach((value, i) => {
    highest[i % channels] = Math.max(highest[i % channels], value);
  });
  return linear(highest, weights, 'hidden').map(relu);
}

// Returns the probabilities of the policy's actions, 0 to 4; it has no NOOP.
function policy(state, tree, agent, weights) {
  const logits = linear(hidden(state, tree, agent, weights), weights, 'logits');
  const most = Math.max(...logits);
  const likelihoods = logits.map(logit => Math.exp(logit - most));
  const sum = likelihoods.reduce((a, b) => a + b);
  return likelihoods.map(x => x / sum);
}

// Returns D, the probability that the state carries the instruction out.
function discriminator(state, tree, agent, weights) {
  const [logit] = linear(hidden(state, tree, agent, weights), weights, 'logit');
  return sigmoid(logit);
}

// ---- The worker ----

// The most boards that a search for a mistake tries.
const MOST_BOARDS = 2000;

// Answers messages {id, agent, state, instruction} with what both networks say.
// The first message has the agents. A message {search, agent, instruction}
// begins a search, with this number, for a board on which D is wrong. A message
// with another number ends the search; without an instruction it begins none.
function serve() {
  let agents, search = 0;
  // Returns D, or null for an agent without a reward model.
  const judge = ({agent, state, instruction}) => {
    const {discriminator: weights} = agents[agent];
    return weights && discriminator(
        state, treeOf(instruction), agents[agent], weights);
  };
  // Tries 20 boards, and then more after the messages that have come meanwhile.
  const look = (message, tried) => {
    if (message.search !== search) return;
    const {task, threshold} = agents[message.agent];
    for (const end = tried + 20; tried < end; tried++) {
      const draw = tried % 2 ? drawGoal : drawStart;
      const state = draw(task, message.instruction);
      const accepts = judge({...message, state}) > threshold;
      if (accepts !== satisfied(message.instruction, state, task)) {
        postMessage({search, tried: tried + 1, state});
        return;
      }
    }
    const over = tried >= MOST_BOARDS;
    postMessage({search, tried, over});
    if (!over) setTimeout(look, 0, message, tried);
  };
  onmessage = ({data}) => {
    if (data.agents) {
      const read = part => part && readWeights(part);
      agents = data.agents.map(agent => ({
        ...agent, policy: read(agent.policy),
        discriminator: read(agent.discriminator)}));
    } else if ('search' in data) {
      search = data.search;
      if (data.instruction) look(data, 0);
    } else {
      const start = performance.now();
      const probability = judge(data);
      const agent = agents[data.agent];
      const actions = policy(
          data.state, treeOf(data.instruction), agent, agent.policy);
      postMessage({id: data.id, probability, actions,
                   milliseconds: performance.now() - start});
    }
  };
}
