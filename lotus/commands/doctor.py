"""`lotus doctor`: what this machine can measure, and how to enable the rest."""

import argparse
import json
import sys

NAME = "doctor"
HELP = "say what this machine can measure, and how to enable the rest"
EPILOG = """\
examples:
  lotus doctor
      what works: counting, sampling, top-down; and a command for each gap
  lotus doctor --all
      all that was looked at
  lotus doctor --json | jq .summary
      the same for programs

It takes a few seconds, changes nothing and writes nothing.

exit codes: 0 whatever it finds

see also: lotus trace --counters, lotus trace --perf, lotus map
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="show what is as it should be, too")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a document for programs; fields: lotus schema doctor",
    )


def run(args: argparse.Namespace) -> int:
    from lotus import doctor
    from lotus.reporters import doctor as reporter

    found = doctor.examine()
    if args.json:
        print(json.dumps(found.document(), indent=2))
        return 0
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # a terminal that has no µ shows a question mark
    reporter.write(found, sys.stdout, everything=args.all)
    return 0
