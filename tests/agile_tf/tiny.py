"""A run that is small enough for a test."""

from agile_tf import config as config_lib


def flags(**changes) -> list[str]:
  """Returns the flags of a tiny AGILE run."""
  settings = dict(
      policy_workers=2, policy_threads=1, episode_length=4, rollout_length=2,
      instructions='SameLocation.*AGENT', batch_size=4, replay_size=64,
      anticipated_negative_rate=0.5, steps_per_discriminator_update=8,
      dataset_size=32, reward_prediction_replay_size=32,
      reward_prediction_batch_size=2, steps=64, log_steps=16)
  return [f'--{name}={value}' for name, value in (settings | changes).items()]


def config(**changes) -> config_lib.Config:
  """Returns the settings of a tiny AGILE run."""
  values = {}
  for flag in flags(**changes):
    name, _, text = flag.removeprefix('--').partition('=')
    kind = type(getattr(config_lib.Config, name))
    values[name] = text == 'True' if kind is bool else kind(text)
  return config_lib.Config(**values)
