"""`lotus doctor`: what this machine can measure, and how to enable the rest."""

import argparse
import json
import sys

NAME = "doctor"
HELP = "say what this machine can measure, and how to enable the rest"
EPILOG = """\
examples:
  lotus doctor                          what works, and a command for each gap
  lotus doctor --all                    all that was looked at
  lotus doctor --json | jq .summary     the same for programs

The exit code is 0 whatever it finds.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="show also what is as it should be")
    parser.add_argument("--json", action="store_true", help="print a document for programs")


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
