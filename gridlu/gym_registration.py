"""Tells Gymnasium, if it is installed, of GridLU; see `gridlu.gym`."""

from gymnasium.envs import registration

_TASKS = {
    'GridLU-Relations-v0': 'relations',
    'GridLU-Arrangements-v0': 'arrangements'}


def register() -> None:
  """Registers the environments, unless they are."""
  for name, task in _TASKS.items():
    if name not in registration.registry:
      registration.register(
          id=name, entry_point='gridlu.gym:GridLUEnv', kwargs={'task': task})
