"""Registers GridLU's tasks with Gymnasium, where it is installed."""

from gymnasium.envs import registration

from gridlu import tasks


def register() -> None:
  """Registers an environment for each task; see `gridlu.gym`."""
  for name, task in tasks.TASKS.items():
    if task.gym_id not in registration.registry:
      registration.register(
          id=task.gym_id, entry_point='gridlu.gym:GridLUEnv',
          kwargs={'task': name})
