"""`lotus doctor`: what this machine can measure, and how to enable the rest."""

import argparse

from lotus.commands.common import options, output
from lotus.common.terminal.progress import progress

NAME = "doctor"
HELP = "show what this machine can measure, and how to enable the rest"
EPILOG = """\
examples:
  lotus doctor
      what works: counting, sampling, top-down; and a command for each gap
  lotus doctor --all
      every check, also those that passed
  lotus doctor --json | jq .summary
      the same for programs

It takes a few seconds, changes nothing and writes nothing.

exit codes: 0 whatever it finds

see also: lotus trace --counters, lotus trace --perf, lotus map
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="also show the checks that passed")
    options.add_json(parser, "doctor")


def run(args: argparse.Namespace) -> int:
    from lotus.doctor import examination
    from lotus.reporters import doctor_report
    from lotus.reporters.base import console

    with progress("examining this machine"):
        examined = examination.examine()
    if args.json:
        output.print_document(examined.document())
        return 0
    output.replace_unprintable()
    doctor_report.write(console.plain_console(), examined, everything=args.all)
    return 0
