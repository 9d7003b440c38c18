"""Ctrl-C while a program is still imported; importing this module handles it.

`gridlu.program` answers Ctrl-C once a program runs, but its imports take
seconds. Until then Python would print a traceback. The process still ends by
the signal, so its exit code is 130 for a shell.
"""

import sys
import types


def _report(kind: type[BaseException], error: BaseException,
            traceback: types.TracebackType | None) -> None:
  """Reports an uncaught exception; an interruption needs no traceback."""
  if issubclass(kind, KeyboardInterrupt):
    print('Interrupted.', file=sys.stderr)
  else:
    sys.__excepthook__(kind, error, traceback)


# Only the programs of this project, started by `python -m`, report so. In other
# programs that import this package, uncaught exceptions are reported as before.
if any(option == '-m' and name.startswith(('agile_tf.', 'gridlu.'))
       for option, name in zip(sys.orig_argv, sys.orig_argv[1:])):
  sys.excepthook = _report
