"""The signals that let a run save and stop."""

import signal


def signals() -> list[int]:
  """Returns the numbers of the signals that stop a run of this process.

  SIGINT and SIGTERM stop a run even if they were ignored: a script's shell
  starts background jobs with SIGINT ignored, and `kill -INT` must stop these.
  The others stay ignored where they are, such as SIGHUP under nohup.
  """
  return [signal.SIGINT, signal.SIGTERM, *(
      each for each in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
      if signal.getsignal(each) not in (signal.SIG_IGN, None))]
