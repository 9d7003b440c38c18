"""Algorithm 1's discriminator for learners that are not ours.

`RewardLearner` takes images and texts. It owns and calls a
`DiscriminatorLearner` of `agile_tf.agent.workers`, so an update here does what
an update of a run does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
import functools
import os
import pickle
import threading
from typing import Any, NamedTuple, TypeAlias
import unicodedata

import numpy as np
import tensorflow as tf

from agile_tf import config as config_lib
from agile_tf import named
from agile_tf.agent import image_sizes
from agile_tf.agent import instructions as instructions_lib
from agile_tf.agent import replay
from agile_tf.agent import rewards as rewards_lib
from agile_tf.agent import workers
from agile_tf.agent import worlds
from agile_tf.evaluation import functions
from agile_tf.recipe import settings as recipe_settings
from agile_tf.recipe import variations
from agile_tf.training import building
from agile_tf.training import held_out_goals as held_out_goals_lib
from agile_tf.training import machine
from agile_tf.training import own_networks
from agile_tf.training import reward_models
from agile_tf.worlds import environments
from gridlu import files
from gridlu import goal_dataset
from gridlu import language
from gridlu import rendering
from gridlu import world as world_lib

# A reward learner has these settings of a run, by the classes that define them:
# `config.Config`, and the recipe's `Recipe`.
_CONFIG_SETTINGS = (
    'model', 'reward_form', 'reward_scale', 'reward_threshold',
    'held_out_goals', 'discriminator_learning_rate',
    'discriminator_decay', 'discriminator_epsilon',
    'discriminator_gradient_norm', 'batch_size', 'anticipated_negative_rate',
    'max_column_norm', 'limit_film_tables', 'replay_size', 'seed')
_RECIPE_SETTINGS = ('mismatched_share', 'anticipated_negative_rate_steps')
SETTINGS = _CONFIG_SETTINGS + _RECIPE_SETTINGS
# D is compiled for these numbers of states; other batches are split and padded.
_SIZES = (256, 64, 16, 1)  # The largest comes first.
_JUDGED = 500  # The most states of each kind that `accepted` is about.

# A file of goal examples, its contents, or images uint8 [N, H, W, 3] and N
# instructions.
Goals: TypeAlias = (str | os.PathLike | goal_dataset.GoalDataset |
                    tuple[Any, Sequence[str]])


class RewardLearner:
  """Learns a reward from goal examples while any policy learns from it.

      learner = agile_tf.RewardLearner((goal_images, goal_instructions))
      rewards = learner.rewards(images, instructions)  # of the policy's states
      learner.add(images, instructions)                # the same states, to B
      if learner.ready:
        metrics = learner.update()                     # now and then

  The rewards are those of the states that the policy's actions led to. The last
  state of an episode belongs to them, and the first one of the next does not.

  Threads may share a learner. A fork of its process, or another process, cannot
  use it: TensorFlow would wait there forever.

  Attributes:
    image_shape: H, W and 3.
    instructions: The instructions that it was made for.
    added: The number of states that were added so far.
    updates: The number of updates so far.
  """

  def __init__(self, goals: Goals, instructions: Sequence[str] | None = None,
               parse: reward_models.Parse | None = None, **settings: Any):
    """Makes a learner.

    Args:
      goals: The goal examples: images uint8 [N, H, W, 3] and N instructions; a
        `gridlu.goal_dataset.GoalDataset`; or the path of its file. GridLU's
        packed states are drawn as images.
      instructions: The instructions to learn, each of which has a goal example;
        None for those of the goals. Goal examples of others are left out.
        Another instruction can be rated if each of its tokens is in one of
        these, and each position of its tree is in one of their trees.
      parse: From an instruction to its tree, as in
        `agile_tf.agent.instructions`. None for plain words, or for GridLU's
        language if the goals are packed states of GridLU.
      **settings: Settings of a run, by the names of agile_tf.launch's flags.
        `SETTINGS` lists those that there are. The defaults are the paper's, but
        reward_scale is 1, because the paper's 0.1 belongs to its policy.
        anticipated_negative_rate_steps counts the states that were added.
        The model may also be a function that makes networks of your own, such
        as `agile_tf.overlapping.make`, as docs/own_networks.md describes it.
        Such networks may see images of any size. The world that the function
        gets has one action, and the policy that it makes is checked but not
        used.

    Raises:
      ConfigError: a setting is unknown or out of its range.
      ModelError: what a function of your own makes cannot be trained.
      ValueError: the goals or the instructions are not valid.
      RuntimeError: in a fork of a process that has loaded networks.
    """
    chosen = _settings(settings)
    dataset = _dataset(goals)
    if parse is None:
      parse = instructions_lib.chain if dataset.states is None else (
          language.tree)
    if instructions is None:
      instructions = dataset.instructions
    elif isinstance(instructions, str | Set | Mapping) or not isinstance(
        instructions, Iterable):
      kind = 'the string ' if isinstance(instructions, str) else ''
      raise ValueError(
          f'instructions is {kind}{instructions!r:.100}; expected a list.')
    grammar = instructions_lib.Grammar(
        [unicodedata.normalize('NFC', str(text)) for text in instructions],
        parse)
    self._build(chosen, dataset, grammar)

  @classmethod
  def load(cls, directory: str | os.PathLike, goals: Goals,
           parse: reward_models.Parse | None = None, **settings: Any
          ) -> 'RewardLearner':
    """Makes a learner that goes on from a reward model directory.

    Its instructions and its network are those of the directory. B and the
    optimiser state are new: the directory has only what rates states. With
    anticipated_negative_rate_steps, rho begins at 1 again.

    Args:
      directory: What `save` or agile_tf.export_networks wrote. To rate states
        without learning, use `agile_tf.load_reward_model`.
      goals: See the class. With held_out_goals, the same goal examples and the
        same share as before hold out the same ones.
      parse: The parser, if it is one of your own.
      **settings: See the class. The model may be left out, unless it is a
        function of your own, which no file can contain.

    Raises:
      CheckpointError: the directory cannot be read, or has another parser or
        other networks.
      ConfigError, ModelError, ValueError or RuntimeError: See the class.
    """
    saved = reward_models.load(directory, parse)
    chosen = _settings(settings | {'model': reward_models.network(
        saved, settings.get('model'), directory)})
    learner = cls.__new__(cls)
    learner._build(chosen, _dataset(goals), saved.grammar, saved)
    return learner

  def _build(self, chosen: '_Settings', dataset: goal_dataset.GoalDataset,
             grammar: instructions_lib.Grammar,
             saved: reward_models.RewardModel | None = None) -> None:
    """Makes the parts; `saved` is what the learner goes on from."""
    machine.claim_process()
    model, config, recipe = chosen
    dataset = _of_these(dataset, grammar.instructions)
    height, width = _image_shape(dataset, model)
    if saved is not None and saved.image_shape != (height, width, 3):
      raise ValueError(
          f'The goal examples are images {[height, width, 3]}; the reward '
          f'model was trained on {list(saved.image_shape)}.')
    self.image_shape = height, width, 3
    self.instructions = grammar.instructions
    negatives = building.Plan(config, variations.make(config, recipe)).negatives
    building.check_draw(config, negatives.largest_draw)
    _check_memory(config, dataset, self.image_shape)
    world = _world(grammar.instructions, grammar.parser, grammar.tokens,
                   self.image_shape)
    _, d = building.make_networks(model, world)
    network_seed, draw_seed = np.random.SeedSequence(config.seed).spawn(2)
    if saved is None:
      phi = d.initial(int(network_seed.generate_state(1)[0]))
    else:
      reward_models.check_parameters(
          saved, dict(zip(d.layout.names, d.layout.shapes)), 'The directory')
      phi = d.layout.join(saved.parameters).numpy()
    self.added = self.updates = 0
    self._model = model
    self._config = config
    self._grammar = world.grammar
    self._layout = d.layout
    # These programs have the default form and scale of rewards, which nothing
    # here uses: `rate` makes rewards of logits. So learners with different
    # forms and scales share what is compiled.
    self._programs = building.discriminator_programs(
        config_lib.Config(reward_threshold=config.reward_threshold), d)
    self._parameters = building.discriminator_parameters(config, d, phi)
    goals, held_out_goals = held_out_goals_lib.divide(
        worlds.GoalExamples(_as_images(dataset), world), world,
        config.held_out_goals)
    if recipe.mismatched_share and not goals.several:
      raise ValueError(
          f'mismatched_share is {recipe.mismatched_share}, but all goal '
          'examples have the same instruction, so none can have that of '
          'another one: leave it out.')
    self._held_out_test = None if held_out_goals is None else (
        held_out_goals_lib.GoalTest(held_out_goals, _JUDGED))
    self._learner = workers.DiscriminatorLearner(
        self._parameters, self._programs,
        replay.of_world(config.replay_size, world), goals,
        workers.DiscriminatorSettings(
            config.batch_size, config.discriminator_learning_rate, negatives),
        np.random.default_rng(draw_seed))
    self._lock = threading.Lock()  # It guards B, generator, counters.

  def probabilities(self, images: Any, instructions: Sequence[str]
                   ) -> np.ndarray:
    """Returns D(c, s), float32 [N], of images uint8 [N, H, W, 3] and N texts.

    Raises ValueError if they are something else, or if an instruction cannot be
    read.
    """
    return tf.sigmoid(self._logits(images, instructions)).numpy()

  def rewards(self, images: Any, instructions: Sequence[str]) -> np.ndarray:
    """Returns reward_scale * f(D(c, s)), float32 [N]; see `probabilities`.

    f is the reward_form: by default 1 if D > reward_threshold, else 0.
    """
    return self.rate(images, instructions)[0]

  def rate(self, images: Any, instructions: Sequence[str]
          ) -> tuple[np.ndarray, np.ndarray]:
    """Returns `rewards` and `probabilities`, computed once."""
    logits = self._logits(images, instructions)
    rewards = rewards_lib.modelled(
        logits, self._config.reward_form, self._config.reward_scale,
        self._config.reward_threshold)
    return rewards.numpy(), tf.sigmoid(logits).numpy()

  def _logits(self, images: Any, instructions: Sequence[str]) -> tf.Tensor:
    images, codes = self._inputs(images, instructions)
    phi = self._parameters.snapshot()
    parts = [
        self._programs.logits(
            phi, tf.constant(_padded(images[rows], size)),
            tf.constant(_padded(codes[rows], size)))[:rows.stop - rows.start]
        for rows, size in _parts(len(images))]
    return tf.concat(parts, 0) if parts else tf.zeros([0])

  def _inputs(self, images: Any, instructions: Sequence[str]
             ) -> tuple[np.ndarray, np.ndarray]:
    """Returns images and codes, int32 [N, slots], if they can be read."""
    machine.claim_process()
    return (functions.checked(images, instructions, self.image_shape),
            self._grammar.encode(instructions))

  @property
  def ready(self) -> bool:
    """Whether enough states were added for an update."""
    return len(self._learner.buffer) >= self._learner.needed

  def add(self, images: Any, instructions: Sequence[str]) -> None:
    """Adds states of the policy to B, which drops its oldest.

    This is line 6 of Algorithm 1. Arguments are those of `probabilities`. They
    are copied.
    """
    images, codes = self._inputs(images, instructions)
    with self._lock:
      self._learner.add(codes, images)
      self.added += len(images)

  def update(self) -> dict[str, float]:
    """Updates D once: lines 7 to 12 of Algorithm 1.

    Returns:
      The loss, the shares of goal examples accepted and of negatives rejected
      in the batch before the update, and the norm of the gradient.

    Raises:
      ValueError: too few states were added; see `ready`.
      ArithmeticError: the loss or the gradient is not finite. An update by a
        gradient that is not finite is skipped.
    """
    machine.claim_process()
    with self._lock:
      if not self.ready:
        raise ValueError(
            f'B has {len(self._learner.buffer)} states; one update draws '
            f'{self._learner.needed}. Add states of the policy first, or make '
            'batch_size smaller or anticipated_negative_rate larger.')
      try:
        # Each state that was added is taken for one step of the policy.
        metrics = self._learner.update(self._parameters.snapshot(), self.added)
      except workers.NumericsError as error:
        raise ArithmeticError(
            f'{error}. A smaller discriminator_learning_rate, or a '
            'max_column_norm if it is 0, may help. Load what you saved last.'
        ) from error
      self.updates += 1
      return metrics

  def accepted(self) -> dict[str, float]:
    """Returns which shares of states D accepts now.

    They show how good D is where nobody knows the truth.

    Returns:
      The shares that D accepts, by name. 'policy_states_accepted' is that of at
      most 500 states drawn from B, once it has some. With held_out_goals,
      'held_out_goals_accepted' is that of at most 500 held-out examples. If
      they have several instructions, 'mismatched_goals_accepted' is that of
      as many held-out states, each with the instruction of another example.
    """
    machine.claim_process()
    phi, buffer = self._parameters.snapshot(), self._learner.buffer
    found = {} if self._held_out_test is None else (
        self._held_out_test.accepted(self._programs, phi))
    drawn = None
    with self._lock:
      if len(buffer):
        # They are drawn by a generator of their own, so that asking changes
        # nothing that is learned.
        drawn = buffer.sample(
            np.random.default_rng(self.added), min(len(buffer), _JUDGED))
    if drawn is not None:
      found['policy_states_accepted'] = float(np.mean(
          self._programs.probabilities(phi, drawn.observations, drawn.codes) >
          self._config.reward_threshold))
    return found

  def save(self, directory: str | os.PathLike) -> None:
    """Writes D as it is now as a reward model directory; see `load`.

    It replaces one that is there. Of networks of your own it has the
    parameters, and the name of the function that made them, but no code. Raises
    CheckpointError if it cannot be written.
    """
    machine.claim_process()
    network = self._model if isinstance(self._model, str) else (
        named.name(self._model))
    reward_models.save(directory, reward_models.RewardModel(
        network, self.image_shape, self._grammar, {
            name: value.numpy() for name, value in
            self._layout.split(self._parameters.snapshot()).items()}))

  def __deepcopy__(self, memo: Any) -> 'RewardLearner':
    return self  # Gymnasium copies the arguments of wrappers.

  def __reduce__(self) -> Any:
    how = "backend='numpy'" if isinstance(self._model, str) else 'model=...'
    raise pickle.PicklingError(
        'A RewardLearner cannot be sent to another process. Save it, and use '
        f'agile_tf.load_reward_model(directory, {how}) there.')


class _Settings(NamedTuple):
  """The settings of a learner."""
  model: str | own_networks.Make
  config: config_lib.Config  # Its own `model` is not used.
  recipe: recipe_settings.Recipe


def _settings(values: dict[str, Any]) -> _Settings:
  """Returns the settings of a learner, or raises ConfigError."""
  if unknown := sorted(values.keys() - SETTINGS):
    raise config_lib.ConfigError(
        f'A RewardLearner has no setting {", ".join(unknown)}; it has '
        f'{", ".join(SETTINGS)}.')
  # NumPy's numbers are numbers too.
  values = {name: value.item() if isinstance(value, np.generic) else value
            for name, value in values.items()}
  recipe = recipe_settings.Recipe(**{
      name: values.pop(name) for name in _RECIPE_SETTINGS if name in values})
  model = values.pop('model', config_lib.Config.model)
  if not callable(model) and model not in reward_models.NETWORKS:
    raise config_lib.ConfigError(
        f'model is {model!r:.100}; a RewardLearner has one of '
        f'{", ".join(reward_models.NETWORKS)}, or {own_networks.FUNCTION}, '
        'such as agile_tf.overlapping.make. Give the function itself and not '
        'its name.')
  return _Settings(
      model, config_lib.Config(**{'reward_scale': 1.0} | values), recipe)


def _dataset(goals: Goals) -> goal_dataset.GoalDataset:
  """Returns goal examples as a data set, or raises ValueError."""
  if isinstance(goals, goal_dataset.GoalDataset):
    return goals
  if isinstance(goals, str | os.PathLike):
    return goal_dataset.load(goals)
  try:
    images, texts = goals
  except (TypeError, ValueError):
    raise ValueError(
        f'goals is {goals!r:.100}: expected a pair of images and instructions, '
        'a GoalDataset or the path of its file.') from None
  if isinstance(texts, str | bytes | Set | Mapping) or (
      not isinstance(texts, Iterable)):
    raise ValueError(f'The goals have the instructions {texts!r:.100}: '
                     'expected a list, with one for each image.')
  texts = [*texts]
  try:
    images = np.asarray(images)
  except ValueError as error:  # Lists of different lengths.
    raise ValueError(f'The images of the goals are no array ({error}): '
                     'expected uint8 [N, H, W, 3].') from error
  if len(images.shape) != 4 or len(images) != len(texts) or not texts:
    raise ValueError(
        f'The goals are images {images.dtype} {list(images.shape)} with '
        f'{len(texts)} instructions: expected uint8 [N, H, W, 3] with N of '
        'them, at least one.')
  for i, text in enumerate(texts):
    if not isinstance(text, str):
      raise ValueError(f'The instruction of goal example {i} is {text!r:.100}: '
                       'expected a string for each image.')
  used = dict.fromkeys(texts)
  numbers = {text: i for i, text in enumerate(used)}
  return goal_dataset.GoalDataset(
      tuple(used), np.array([numbers[text] for text in texts]), images=images)


def _of_these(dataset: goal_dataset.GoalDataset, instructions: Sequence[str]
             ) -> goal_dataset.GoalDataset:
  """Returns the goal examples of these instructions; each needs one."""
  present = {dataset.instructions[i] for i in np.unique(dataset.instruction)}
  if missing := [text for text in instructions if text not in present]:
    raise ValueError(
        f'{len(missing)} of {len(instructions)} instructions have no goal '
        f'example, such as {missing[0]!r}: add one of each, or leave them out '
        'of instructions.')
  wanted = set(instructions)
  keep = np.array([text in wanted for text in dataset.instructions])[
      dataset.instruction]
  if keep.all():
    return dataset
  used, index = np.unique(dataset.instruction[keep], return_inverse=True)
  return goal_dataset.GoalDataset(
      tuple(dataset.instructions[i] for i in used), index, **{
          name: None if value is None else value[keep]
          for name, value in (('states', dataset.states),
                              ('images', dataset.images))})


def _image_shape(dataset: goal_dataset.GoalDataset,
                 model: str | own_networks.Make) -> tuple[int, int]:
  """Returns the height and width of goal examples as images.

  It raises ValueError if the paper's networks cannot see all of such images.
  """
  if dataset.images is None:
    return rendering.IMAGE_SIZE, rendering.IMAGE_SIZE
  height, width = dataset.images.shape[1:3]
  is_papers = isinstance(model, str)
  smallest = image_sizes.SMALLEST if is_papers else 1
  if min(height, width) < smallest:
    raise ValueError(
        f'The goal examples are images of {height} x {width} pixels; the '
        f'network needs at least {smallest} x {smallest}.')
  size, unseen = image_sizes.PATCH, image_sizes.unseen_pixels(height, width)
  if is_papers and unseen:
    raise ValueError(
        f'The goal examples are images of {height} x {width} pixels. The '
        f'network looks at whole patches of {size} x {size} pixels, so it '
        f'would not see {unseen}. '
        f'Give images whose sides are multiples of {size}: draw or '
        'scale them so, or add an edge with np.pad. Or give networks whose '
        'patches overlap: model=agile_tf.overlapping.make.')
  return height, width


def _as_images(dataset: goal_dataset.GoalDataset) -> goal_dataset.GoalDataset:
  """Returns goal examples that are images, which packed states become."""
  if dataset.images is not None:
    return dataset
  images = np.concatenate([
      rendering.render(world_lib.unpack(part)) for part in np.array_split(
          dataset.observations, 1 + len(dataset) // 4096)])
  return goal_dataset.GoalDataset(
      dataset.instructions, dataset.instruction, images=images)


def _check_memory(config: config_lib.Config, dataset: goal_dataset.GoalDataset,
                  image_shape: Sequence[int]) -> None:
  """Raises ConfigError if B and the goal examples do not fit into memory."""
  copied = dataset.states is not None or config.held_out_goals
  new = config.replay_size + (len(dataset) if copied else 0)
  size, free = new * int(np.prod(image_shape)), files.free_memory()
  if size > free:
    raise config_lib.ConfigError(
        f'B, with replay_size={config.replay_size}, and goal examples that '
        f'have to be drawn or divided take {size / 1e9:.1f} GB as images, and '
        f'{free / 1e9:.1f} GB are free. Make replay_size smaller, or give '
        'fewer goal examples.')


@functools.lru_cache(maxsize=32)
def _world(instructions: tuple[str, ...], parse: reward_models.Parse,
           tokens: tuple[str, ...], image_shape: tuple[int, int, int]
          ) -> worlds.World:
  """Returns a world for D; equal ones share their compiled programs."""
  return environments.without_environments(
      instructions_lib.Grammar(instructions, parse, tokens), image_shape)


def _parts(count: int) -> Iterator[tuple[slice, int]]:
  """Yields the parts of a batch, and the size that each is padded to."""
  start = 0
  while start < count:
    left = count - start
    # A single state is not padded. More states take the largest size that they
    # fill, and if they fill none but 1, the next larger one.
    if left == 1:
      size = 1
    else:
      *larger, _ = _SIZES
      size = next((each for each in larger if each <= left), larger[-1])
    yield slice(start, min(count, start + size)), size
    start += size


def _padded(rows: np.ndarray, size: int) -> np.ndarray:
  """Returns rows [n, ...], with the last one repeated, as [size, ...]."""
  return np.concatenate([rows, *[rows[-1:]] * (size - len(rows))])
