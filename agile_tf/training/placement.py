"""Where a policy thread's programs run: on a device of this run.

A thread chooses a device at the start of each rollout. There it acts, is
rewarded and computes its gradients. The parameters, their updates and the
discriminator's worker stay on the first device of this process. A device only
computes: everything that must be kept between two rollouts is in this process.
So the devices of a run may change at any time.
"""

from collections.abc import Callable, Sequence
import contextlib
import threading
import time
from typing import Any, Protocol

from absl import logging
import tensorflow as tf

_Program = Callable[..., Any]

# How often it is said that policy threads have no device.
_REMINDER_SECONDS = 60


class LostError(Exception):
  """A device that no longer answers. The rollout it had is dropped."""


class Device(Protocol):
  """A device that runs programs for policy threads.

  Attributes:
    name: What messages call it.
    compiling: Held by a thread until it has made its first steps here, so that
      the threads of a device do not all compile the same programs.
  """
  name: str
  compiling: contextlib.AbstractContextManager

  def play(self, program: _Program, *inputs: Any) -> Any:
    """Runs a `signatures.Play` or `signatures.Act`.

    Raises:
      LostError: if the device does not answer. The same holds below.
    """

  def reward(self, program: _Program, *inputs: Any) -> Any:
    """Runs a `signatures.ModelReward`."""

  def gradients(self, program: _Program, *inputs: Any) -> Any:
    """Runs a `signatures.PolicyGradients` on a rollout that was played here."""


class LocalDevice:
  """A device of this process."""

  def __init__(self, name: str = ''):
    """Takes TensorFlow's name of the device; '' leaves the choice to it."""
    self.name = name
    self.compiling: contextlib.AbstractContextManager = threading.Lock()

  def _run(self, program: _Program, *inputs: Any) -> Any:
    if not self.name:
      return program(*inputs)
    with tf.device(self.name):
      return program(*inputs)

  play = reward = gradients = _run


class Seat:
  """The place of one policy thread."""

  def __init__(self, thread: int, devices: Callable[[], Sequence[Device]]):
    """Takes the thread's number and a function that returns the devices."""
    self._thread = thread
    self._devices = devices
    self._device: Device

  def _choose(self) -> Device:
    devices = self._devices()
    if not devices:
      logging.log_every_n_seconds(
          logging.WARNING,
          'No device is left for policy threads. They wait for one.',
          _REMINDER_SECONDS)
      time.sleep(0.5)  # Then the thread may be stopped, or try again.
      raise LostError('There is no device for policy threads.')
    return devices[self._thread % len(devices)]

  def compiling(self) -> contextlib.AbstractContextManager:
    """Returns what to hold until this thread has made its first steps."""
    devices = self._devices()
    if not devices:
      return contextlib.nullcontext()
    return devices[self._thread % len(devices)].compiling

  def play(self, program: _Program) -> _Program:
    """Returns a program that begins a rollout on a device of this moment."""
    def play(*inputs: Any) -> Any:
      self._device = self._choose()
      return self._device.play(program, *inputs)

    return play

  def reward(self, program: _Program) -> _Program:
    """Returns a program that runs where the rollout was played."""
    return lambda *inputs: self._device.reward(program, *inputs)

  def gradients(self, program: _Program) -> _Program:
    """Returns a program that runs where the rollout was played."""
    return lambda *inputs: self._device.gradients(program, *inputs)


class Placement:
  """The devices of a run, over which its policy threads are dealt."""

  def __init__(self, local: Sequence[str] = ('',),
               remote: Callable[[], Sequence[Device]] = tuple):
    """Takes the devices.

    Args:
      local: TensorFlow's names of this process's devices.
      remote: Returns the devices of other machines that can be used now.
    """
    self._local = [LocalDevice(name) for name in local]
    self._remote = remote

  def devices(self) -> list[Device]:
    """Returns the devices that can be used now; this process's come first."""
    return [*self._local, *self._remote()]

  def seat(self, thread: int) -> Seat:
    """Returns the seat of a policy thread, by its number."""
    return Seat(thread, self.devices)
