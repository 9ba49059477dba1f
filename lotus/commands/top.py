"""`lotus top`: what a run does now, or did last."""

import argparse
import sys

from lotus.commands.common import arguments, options

NAME = "top"
HELP = "show what a run does now, once a second, or what a killed run did last"
EPILOG = """\
examples:
  lotus top lotus-runs/train-20260101-120000
      throughput, waits, what each worker does; q or Ctrl-C ends lotus top,
      the run goes on
  lotus top --once RUN
      the same as text, once
  lotus top --stacks RUN
      with the Python stack of each process
  lotus top --json RUN | jq -r .verdict.kind
      moving, hung, slow, step, dead, ...

It reads shared memory, files and /proc from outside and does not slow the
program. --stacks runs py-spy, which reads the processes' memory without
stopping them, so a stack may be inconsistent. It writes nothing.

exit codes: 0 shown, 2 there is no run that can be read

see also: lotus trace --live, lotus report
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser, optional=True)
    parser.add_argument(
        "--once",
        action="store_true",
        help="print the state once and exit (default: refresh it on a terminal until q)",
    )
    options.add_json(parser, "top")
    parser.add_argument(
        "--interval",
        type=arguments.real(0.1, 3600),
        default=1.0,
        metavar="S",
        help="seconds between two refreshes (default: 1)",
    )
    parser.add_argument(
        "--stacks",
        action="store_true",
        help="also show Python stacks, which py-spy reads from a few processes at each refresh",
    )


def run(args: argparse.Namespace) -> int:
    from lotus.reporters.live import top_screen

    if args.run_directory is None:
        args.run_directory = options.newest_run(NAME)
    if args.once or args.json or not sys.stdout.isatty():
        top_screen.once(args.run_directory, args.json, args.stacks)
        return 0
    top_screen.follow(args.run_directory, args.interval, args.stacks)
    return 0
