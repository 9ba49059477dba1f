"""The command line: finds the verb's file in lotus/commands/ and hands the arguments over."""

import argparse
import errno
import importlib
import os
import pkgutil
import signal
import sys
from collections.abc import Sequence
from typing import Any

import lotus
import lotus.commands
from lotus.errors import LotusError
from lotus.streams import open_missing, say

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_EPILOG = """\
examples:
  lotus trace -- python train.py     record a training run
  lotus report lotus-runs/train-...  explain a recorded run
  lotus demo                         see both on a small made data set

`lotus COMMAND --help` explains a command.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `lotus` with these arguments (default: the process's own); returns the exit code."""
    open_missing()
    arguments = list(sys.argv[1:] if argv is None else argv)
    names = _names()
    if "_".join(arguments[:2]) in names:  # a verb of two words
        arguments[:2] = [" ".join(arguments[:2])]
    # Only the verb that was asked for is imported; all of them for `--help` and for a wrong one.
    wanted = [name for name in names if arguments[:1] == [name.replace("_", " ")]] or names
    args = parser(wanted).parse_args(arguments)
    try:
        code = int(args.run(args))
        sys.stdout.flush()  # here, where it can be said that it failed
        return code
    except LotusError as error:
        # One line, whatever names are in it.
        say("lotus: " + str(error).replace("\n", "\\n"))
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has gone (`lotus report R | head`): no traceback at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in _FULL:
            raise
        # Of files of ours it is said where they are written: this is stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        say(f"lotus: cannot write to the standard output: {error.strerror}")
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _names() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(lotus.commands.__path__)]


def parser(names: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of these files of lotus/commands/; of all by default."""
    wanted = _names() if names is None else names
    commands: list[Any] = [importlib.import_module(f"lotus.commands.{name}") for name in wanted]
    parser = argparse.ArgumentParser(
        prog="lotus",
        description="Shows where a PyTorch training's data loading spends its time.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"lotus {lotus.__version__}")
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in commands:
        verb = verbs.add_parser(
            command.NAME,
            help=command.HELP,
            description=command.HELP,
            epilog=command.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(verb)
        verb.set_defaults(run=command.run)
    return parser
