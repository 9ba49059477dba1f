"""`lotus merge`: combine the runs that the hosts of a job recorded into one."""

import argparse
import shlex
from pathlib import Path

from lotus.commands.common import options
from lotus.common.terminal.stderr import say

NAME = "merge"
HELP = "combine the runs that the hosts of a job recorded into one run"
EPILOG = """\
examples:
  lotus merge node0/run node1/run -o job
      how the hosts' clocks were compared, how large the error may be, and
      which ranks are missing
  lotus report job
  lotus merge shared/run-* -o job

In a job of several hosts each host records a run of its own, for example with
lotus trace -o run-$(hostname) -- torchrun ... It writes DIR with copies of
their logs; the runs themselves stay as they are. Times are converted to the
first host's clock: while the job ran, its hosts measured how far their clocks
differ, through the store by which torchrun's processes find each other. Runs
of different jobs are refused.

exit codes: 0 merged, 2 a run cannot be read or is of another job, or DIR cannot
be written

see also: lotus trace, lotus report, lotus balance
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="runs of one job, one of each host"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="run directory to make (required)",
    )
    options.add_force(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing at the end")


def run(args: argparse.Namespace) -> int:
    from lotus.recording import run_merge  # which imports pandas

    merged = run_merge.merge(args.runs, args.output, args.force)
    if not args.quiet:
        for line in [*run_merge.sentences(merged), *merged.notes]:
            say(f"lotus: {line}")
        say(f"next: lotus report {shlex.quote(str(args.output))}")
    return 0
