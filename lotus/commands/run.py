"""`lotus run`: run a command with the loader settings of a tuned.json."""

import argparse
from pathlib import Path

from lotus import launch, settings
from lotus.streams import say

NAME = "run"
HELP = "run a command with loader settings that were found, without a change of its code"
EPILOG = """\
examples:
  lotus run --settings tuned.json -- python train.py
  lotus run --settings tuned.json -- torchrun --nproc-per-node 2 train.py
  lotus run --settings tuned.json -- lotus trace -- python train.py
  lotus run --settings tuned.json --print

The command keeps its terminal, its output, its exit code and its signals. Nothing is recorded.
With --print, or without a command, the change of code that does the same is printed instead.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lotus run [options] -- COMMAND ..."
    parser.add_argument(
        "--settings",
        type=Path,
        default=settings.DEFAULT,
        metavar="FILE",
        help=f"what `lotus tune` wrote ({settings.DEFAULT})",
    )
    parser.add_argument(
        "--print", action="store_true", dest="show", help="print the change of code, run nothing"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="do not say what differs")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    tuned = settings.read(args.settings)
    if args.show or not command:
        for entry in tuned.loaders:
            if len(tuned.loaders) > 1:
                print(f"# {entry.loader.words()}")
            print("\n".join(settings.code_change(entry.setting)))
        return 0
    if not args.quiet:
        for text in settings.differences(tuned, command):
            say(f"lotus: {text}")
    outcome, missing = settings.run(command, tuned)
    for text in missing:
        say(f"lotus: {text}")
    return launch.end_as(outcome)
