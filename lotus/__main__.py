"""The command `lotus`, which is also `python -m lotus`."""

import signal
import sys

# Nothing is begun while the command is imported, and nothing left once it has ended: Ctrl-C then
# ends the process without a traceback. Where the signal is ignored it remains so.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from lotus.cli import main

if __name__ == "__main__":
    sys.exit(main())
