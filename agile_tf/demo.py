r"""Makes a page that runs the networks of GridLU runs in a browser.

  python -m agile_tf.demo --run_dir=runs/relations --output=demo.html

The page is one file, which needs no server and no network: open it or send it.
Whoever opens it changes a board and an instruction, sees what D, the reward
model, believes of them beside the truth, and lets the policy act.
--run_dir=A,B puts two agents on one page. The page is made of the files in
`demo_page`:

  world.js     GridLU: states, physics, truth, pictures, boards to start from
  language.js  instructions: menus, English and the paper's grammar
  network.js   policy and reward model, for a worker of the browser
  page.js, page.html, page.css
"""

import base64
from collections.abc import Sequence
import json
import os
import pathlib
import re
from typing import Any

from absl import flags
import numpy as np

from agile_tf import config as config_lib
from agile_tf import numpy_networks
from agile_tf.evaluation import options
from agile_tf.recipe import settings
from agile_tf.training import checkpoints
from gridlu import archives
from gridlu import files
from gridlu import flagfiles
from gridlu import program
from gridlu import tasks
from gridlu import world

# world.js has the rules of these tasks.
_TASKS = ('relations', 'put_down', 'crowded', 'arrangements')

_SOURCES = pathlib.Path(__file__).parent / 'demo_page'

# network.js needs these parameters of both networks, by --model, to compute
# features. The names are those of `numpy_networks.shapes` without 'features/'.
_FEATURES = {
    'nmn': ('stem/patches/w', 'stem/patches/b', 'stem/neighbours/w',
            'stem/neighbours/b', 'film_nmn/w', 'film_nmn/gamma',
            'film_nmn/beta'),
    'lstm': ('instruction_lstm/embeddings', 'instruction_lstm/w',
             'instruction_lstm/b', *(f'layer_{i}/w' for i in range(1, 6)),
             'gamma/w', 'gamma/b', 'beta/w', 'beta/b'),
}
# The NMN's policy has these; its discriminator does not.
_MERGE = ('merge/convolution/w', 'merge/convolution/b')
# These parameters compute the outputs from the features. Those of the policy's
# baseline and of its reward prediction are left out: the page shows neither.
_HEADS = {'policy': ('hidden/w', 'hidden/b', 'logits/w', 'logits/b'),
          'discriminator': ('hidden/w', 'hidden/b', 'logit/w')}


def weights(checkpoint: checkpoints.Checkpoint, group: str, model: str,
            num_tokens: int) -> dict[str, np.ndarray]:
  """Returns a network's parameters in float16, by their names on the page.

  Args:
    checkpoint: The checkpoint of a run.
    group: 'policy' or 'discriminator'.
    model: The run's --model.
    num_tokens: The number of tokens of its instructions.

  Raises:
    CheckpointError: if one is not there, has another shape, or is too large
      for float16.
  """
  features = _FEATURES[model]
  if (group, model) == ('policy', 'nmn'):
    features += _MERGE
  # The names in the checkpoint, by those on the page.
  names = {**{name: f'{group}/features/{name}' for name in features},
           **{name: f'{group}/{name}' for name in _HEADS[group]}}
  saved = checkpoint.group(group)
  if missing := sorted(set(names.values()) - saved.keys()):
    raise checkpoints.CheckpointError(
        f'{checkpoint.path} has no {", ".join(missing)}; expected the '
        f'parameters of --model={model}.')
  shapes = numpy_networks.shapes(
      model, group, num_tokens, world.NUM_POLICY_ACTIONS)
  try:
    for saved_name in names.values():
      archives.expect(saved, saved_name, np.float32,
                      shapes[saved_name.removeprefix(f'{group}/')])
  except ValueError as error:
    raise checkpoints.CheckpointError(
        f'{checkpoint.path} does not fit ({error}).') from error
  with np.errstate(over='ignore'):
    found = {name: saved[saved_name].astype('<f2')
             for name, saved_name in names.items()}
  for name, values in found.items():
    if not np.isfinite(values).all():
      raise checkpoints.CheckpointError(
          f'{checkpoint.path} has numbers in {names[name]} that float16 cannot '
          'hold; expected all between -65504 and 65504.')
  return found


def _packed(parameters: dict[str, np.ndarray]) -> dict[str, Any]:
  """Returns parameters as `readWeights` of network.js takes them."""
  return {
      'shapes': [[name, value.shape] for name, value in parameters.items()],
      'base64': base64.b64encode(
          b''.join(value.tobytes() for value in parameters.values())).decode()}


def _agent(run_dir: str, step: int | None) -> dict[str, Any]:
  """Returns what the page has to know of a run."""
  config, recipe = settings.load(os.path.join(run_dir, 'config.json'))
  if config.world not in _TASKS:
    raise program.UserError(
        f'{run_dir} was trained on --world={config.world}; expected a run of '
        f'{", ".join(_TASKS[:-1])} or {_TASKS[-1]}, because the page knows '
        'only the rules of these GridLU tasks.')
  if config.model not in config_lib.MODELS:
    raise program.UserError(
        f'{run_dir} was trained with --model={config.model}; expected one of '
        f'{", ".join(config_lib.MODELS)}, because the page knows only these '
        'networks.')
  checkpoint = checkpoints.load(run_dir, step)
  task = tasks.find(config.world)
  checkpoints.check_tokens(checkpoint, task.tokens)
  has_discriminator = bool(checkpoint.group('discriminator'))

  def packed(group: str) -> dict[str, Any]:
    return _packed(weights(checkpoint, group, config.model, len(task.tokens)))

  return {
      'name': os.path.basename(os.path.abspath(run_dir)),
      'task': config.world,
      # Several tasks have the instructions of 'relations'.
      'language': task.instructions()[0].task,
      'instructions': len(task.instructions()),
      'steps': checkpoint.values['steps'],
      'reward': config.reward,
      'threshold': config.reward_threshold,
      'imitates': bool(recipe.imitation_cost),
      'episodeLength': config.episode_length,
      'immovable': world.find_physics(config.physics).immovable,
      'model': config.model,
      'tokens': checkpoint.values['tokens'],
      'policy': packed('policy'),
      'discriminator': packed('discriminator') if has_discriminator else None}


def make(run_dirs: Sequence[str], step: int | None = None) -> str:
  """Returns the page of one run or several as HTML.

  Args:
    run_dirs: The directories of runs, in the order of the page.
    step: The step of the checkpoint; None for each run's newest.

  Raises:
    ConfigError or CheckpointError: if a run cannot be read.
    UserError: if one is not of GridLU or has other networks than the paper's,
      or two have the same name.
  """
  agents = [_agent(run_dir, step) for run_dir in run_dirs]
  names = [agent['name'] for agent in agents]
  if len(set(names)) < len(names):
    raise program.UserError(
        f'--run_dir={",".join(run_dirs)}: expected directories with different '
        'names, which the page shows.')
  parts = {path.name: path.read_text('utf-8')
           for path in _SOURCES.iterdir() if path.suffix in ('.js', '.css')}
  # A '<' could end the page's script.
  parts['agents'] = json.dumps(agents).replace('<', r'\u003c')
  for name, part in parts.items():
    assert not re.search('</(script|style)|<!--', part), name
  text = (_SOURCES / 'page.html').read_text('utf-8')
  # A comment such as /*world.js*/ stands where this part belongs.
  return re.sub(r'/\*([\w.]+)\*/', lambda match: parts[match[1]], text)


def _define_flags() -> None:
  flags.DEFINE_list(
      'run_dir', None, "The runs' directories, with commas between them; "
      '"trained" for the agent that comes with the package.', required=True)
  flags.DEFINE_integer(
      'checkpoint', None, 'The step of the checkpoint; default: the newest.')
  program.define_path(
      'output', None, 'The page to write, an .html file.', required=True)


@program.main(_define_flags, expand=flagfiles.expand)
def main() -> None:
  """Writes the page of runs."""
  values = flags.FLAGS
  files.check_output('output', values.output, '.html')
  if not values.run_dir:
    raise program.UserError(
        '--run_dir is empty: expected the directories of runs, with commas '
        'between them, or "trained".')
  page = make(
      [options.run_path(path) for path in values.run_dir], values.checkpoint)
  with files.replacing(values.output) as file:
    file.write(page)
  print(program.printable(
      f'{values.output}: {len(page) / 1e6:.1f} MB. Open it in a browser, or '
      'send it to others.'))


if __name__ == '__main__':
  main()
