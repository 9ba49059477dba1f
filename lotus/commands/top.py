"""`lotus top`: what a run does now, or did last."""

import argparse
import sys
from pathlib import Path

from lotus import arguments

NAME = "top"
HELP = "show what a run does now, once a second; of a killed one what it did last"
EPILOG = """\
examples:
  lotus top lotus-runs/train-20260101-120000
      throughput, waits, what each worker does; q or Ctrl-C ends lotus top,
      the run goes on
  lotus top --once RUN
      the same once, as text
  lotus top --stacks RUN
      with the Python stack of each process
  lotus top --json RUN | jq -r .verdict.kind
      moving, hung, slow, step, dead, ...

It looks from outside, at shared memory, files and /proc: the program is not
slowed. --stacks asks py-spy, which reads the processes' memory without stopping
them, so that a stack may be torn. It writes nothing.

exit codes: 0 shown, 2 there is no run that can be read

see also: lotus trace --live, lotus report
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_directory", type=Path, metavar="RUN", help="run directory, as lotus trace made it"
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="print what is known now, and end (default: once a second, on a terminal)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a document for programs; fields: lotus schema top",
    )
    parser.add_argument(
        "--interval",
        type=arguments.real(0.1, 3600),
        default=1.0,
        metavar="S",
        help="seconds between looks (default: 1)",
    )
    parser.add_argument(
        "--stacks",
        action="store_true",
        help="show Python stacks too, by py-spy, of a few processes a look",
    )


def run(args: argparse.Namespace) -> int:
    from lotus.live import screen

    if args.once or args.json or not sys.stdout.isatty():
        screen.once(args.run_directory, args.json, args.stacks)
        return 0
    screen.follow(args.run_directory, args.interval, args.stacks)
    return 0
