"""The command line: finds the verb's file in lotus/commands/ and calls it."""

import argparse
import errno
import gc
import importlib
import os
import pkgutil
import signal
import sys
from collections.abc import Sequence
from typing import cast

import lotus.commands
from lotus.commands.common.protocol import Command
from lotus.commands.common.usage import UsageParser
from lotus.common.errors import LotusError
from lotus.common.terminal.interrupts import Interrupts
from lotus.common.terminal.stderr import open_missing, say
from lotus.common.version import __version__

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_EPILOG = """\
examples:
  lotus trace -- python train.py     record a training run
  lotus report lotus-runs/train-...  explain a recorded run
  lotus demo                         see both on a small generated data set

`lotus COMMAND --help` explains a command.
terms: `lotus schema report` describes each number and its unit
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `lotus` with these arguments (default: the process's own); returns the exit code."""
    open_missing()
    if argv is None:
        _search_standard_library_first()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with Interrupts(main.__code__):
            code = _run(arguments)
            sys.stdout.flush()  # here, where a failure can still be reported
            if argv is None:
                gc.freeze()  # the interpreter would look for garbage in all modules before it ends
            return code
    except LotusError as error:
        # One line, even if a name in it has line breaks.
        say("lotus: " + str(error).replace("\n", "\\n"))
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has gone (`lotus report R | head`): no traceback at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if isinstance(error, FileNotFoundError) and _is_working_directory_gone():
            say("lotus: the working directory was removed; change to one that exists")
            return 2
        if isinstance(error, PermissionError):
            from lotus.common.storage.unreadable import unreadable

            if text := unreadable(error):
                say(f"lotus: {text}")
                return 2
        if error.errno not in _DISK_FULL:
            raise
        # Errors of our own files are reported where they are written: this is stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        say(f"lotus: cannot write to the standard output: {error.strerror}")
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _is_working_directory_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _search_standard_library_first() -> None:
    """Search the working directory and PYTHONPATH later: their modules are for the program."""
    folder = os.path.dirname(os.__file__)
    standard = [path for path in sys.path if path in (folder, os.path.join(folder, "lib-dynload"))]
    sys.path[:] = [*standard, *(path for path in sys.path if path not in standard)]


def _run(arguments: list[str]) -> int:
    """Run the verb of the command line; returns the exit code."""
    names = _names()
    if not arguments:
        parser().print_help()
        return 2
    if "_".join(arguments[:2]) in names:  # a verb of two words
        arguments[:2] = [" ".join(arguments[:2])]
    elif begun := _begun_by(arguments[0], names):
        if arguments[1:] in (["-h"], ["--help"]):
            parser(begun).print_help()
            return 0
        verbs = ", ".join(f"lotus {name.replace('_', ' ')}" for name in begun)
        say(f"lotus: {arguments[0]!r} is no command by itself; there are: {verbs}")
        return 2
    elif not arguments[0].startswith("-") and arguments[0].replace(" ", "_") not in names:
        say(f"lotus: there is no command {arguments[0]!r}; {_instead(arguments[0], names)}")
        return 2
    # Only the verb of the command line is imported; all of them for `--help`.
    wanted = [name for name in names if arguments[:1] == [name.replace("_", " ")]] or names
    args, unknown = (whole := parser(wanted)).parse_known_args(arguments)
    if unknown:
        _refuse(whole, args, arguments, unknown)
    return int(args.run(args))


def _instead(word: str, names: Sequence[str]) -> str:
    """Return what somebody may have meant by a word that is no verb, and where all are listed."""
    import difflib

    verbs = [name.replace("_", " ") for name in names]
    near = difflib.get_close_matches(word, verbs, n=1)
    meant = f"did you mean `lotus {near[0]}`? " if near else ""
    return f"{meant}`lotus --help` lists the commands"


def _refuse(
    whole: argparse.ArgumentParser,
    args: argparse.Namespace,
    arguments: Sequence[str],
    unknown: Sequence[str],
) -> None:
    """End with exit code 2 and an error that says what is wrong with the command line."""
    if not hasattr(args, "verb"):  # an option before the verb
        whole.error(f"unrecognized arguments: {' '.join(unknown)}")
    from lotus.commands.common import misplaced_options

    if not hasattr(args, "command"):
        raise LotusError(misplaced_options.plain_message(arguments[0], args.verb, unknown))
    raise LotusError(misplaced_options.message(arguments[0], args.verb, arguments[1:], unknown))


def _begun_by(word: str, names: Sequence[str]) -> list[str]:
    """Return the files of the verbs of two words that begin with a word that is no verb itself."""
    return [] if word in names else [name for name in names if name.startswith(f"{word}_")]


def _names() -> list[str]:
    modules = pkgutil.iter_modules(lotus.commands.__path__)
    return [module.name for module in modules if not module.ispkg]


def parser(names: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser of these files of lotus/commands/ (default: of all)."""
    wanted = _names() if names is None else names
    commands = [cast(Command, importlib.import_module(f"lotus.commands.{name}")) for name in wanted]
    whole = UsageParser(
        prog="lotus",
        description="Shows where a PyTorch training's data loading spends its time.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    whole.add_argument("--version", action="version", version=f"lotus {__version__}")
    verbs = whole.add_subparsers(metavar="COMMAND", required=True)
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
        verb.set_defaults(run=command.run, verb=verb, every_verb=parser)
    return whole
