"""`lotus merge`: one run of those that the hosts of a job recorded."""

import argparse
import shlex
from pathlib import Path

from lotus.streams import say

NAME = "merge"
HELP = "make one run of those that the hosts of a job recorded"
EPILOG = """\
examples:
  lotus merge node0/run node1/run -o job
      how the hosts' clocks were compared, how wrong that may be, and
      which ranks are missing
  lotus report job
  lotus merge shared/run-* -o job

Each host of a job of several hosts records a run of its own, for example by
lotus trace -o run-$(hostname) -- torchrun ... It writes DIR with copies of
their logs; the runs stay as they are. Times are brought onto the first host's
clock by what the hosts measured of each other's clocks over the job's own
rendezvous store while it ran; run.json keeps it. Runs of different jobs are
refused.

exit codes: 0 merged, 2 a run cannot be read or is of another job, or DIR cannot
be written

see also: lotus trace, lotus report, lotus balance
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="runs of one job")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="DIR", help="directory of the whole run"
    )
    parser.add_argument("-f", "--force", action="store_true", help="overwrite an earlier run")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing at the end")


def run(args: argparse.Namespace) -> int:
    from lotus import merge  # which imports pandas

    merged = merge.merge(args.runs, args.output, args.force)
    if not args.quiet:
        for line in [*merge.sentences(merged), *merged.notes]:
            say(f"lotus: {line}")
        say(f"next: lotus report {shlex.quote(str(args.output))}")
    return 0
