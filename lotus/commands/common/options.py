"""Options that several verbs share, and the command after `--`."""

import argparse
from pathlib import Path

from lotus.commands.common import arguments
from lotus.common.errors import LotusError
from lotus.common.terminal.stderr import say


def add_run(parser: argparse.ArgumentParser, about: str = "", optional: bool = False) -> None:
    """Add the run directory that a verb reads; with `optional`, by default the newest one."""
    text = about or "run directory, as lotus trace made it"
    if optional:
        parser.add_argument(
            "run_directory",
            type=Path,
            nargs="?",
            metavar="RUN",
            help=f"{text} (default: the newest in lotus-runs)",
        )
    else:
        parser.add_argument("run_directory", type=Path, metavar="RUN", help=text)


def newest_run(verb: str, sweeps: bool = False) -> Path:
    """Return the newest run of lotus-runs/, for a verb without RUN, and print its path to stderr.

    Raises LotusError if there is none.
    """
    from lotus.reading import recent_runs

    path, empty = recent_runs.newest(verb, sweeps)
    passed = f" (in {empty}, which is newer, no DataLoader was iterated)" if empty else ""
    say(f"lotus: the newest run: {path}{passed}")
    return path


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add --trust, for verbs that look up the functions of samples."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="open the files of this machine that the samples name, and run perf on its own data, "
        "even if the run was copied here or belongs to another user",
    )


def add_perf_data(parser: argparse.ArgumentParser) -> None:
    """Add --perf-data."""
    parser.add_argument(
        "--perf-data",
        type=Path,
        metavar="FILE",
        help="file with the samples of perf to join (default: RUN/perf.data)",
    )


def add_json(parser: argparse._ActionsContainer, schemas: str) -> None:
    """Add --json; `schemas` is the name of the document's schema in `lotus schema`."""
    parser.add_argument(
        "--json",
        action="store_true",
        help=f"print a JSON document for programs; its fields: lotus schema {schemas}",
    )


def add_backend(parser: argparse.ArgumentParser) -> None:
    """Add --backend and --scheduler, for verbs that read all samples and operations."""
    parser.add_argument(
        "--backend",
        choices=("one", "processes", "dask"),
        help="what reads the samples and operations of a run: this process alone, processes of "
        "this machine, or the workers of a dask cluster, which see the run at the same path "
        "(default: processes for more than 30 million on four cores or more, else one)",
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="of the dask cluster, for --backend dask"
    )


def add_loader(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --loader, by which one of the program's loaders is chosen; `what` is done with it."""
    parser.add_argument(
        "--loader", type=arguments.loader, metavar="N|NAME",
        help=f"the loader to {what}: its number by first iteration, the class of its data set, the "
        "FILE:LINE that makes or iterates it, or its name in a report (default: the one with the "
        "most samples)",
    )  # fmt: skip


def add_loader_number(parser: argparse.ArgumentParser, what: str, most: int = 1_000_000) -> None:
    """Add --loader, by which a loader of a recorded run is chosen; `what` is done with it."""
    parser.add_argument(
        "--loader", type=arguments.whole(0, most), metavar="N",
        help=f"number of the loader {what} (default: the one with the most samples)",
    )  # fmt: skip


def add_output(parser: argparse.ArgumentParser, about: str, metavar: str = "DIR") -> None:
    """Add -o, for verbs that write; `about` describes the output and its default."""
    parser.add_argument("-o", "--output", type=Path, metavar=metavar, help=about)


def add_force(
    parser: argparse.ArgumentParser, about: str = "overwrite an earlier run in the directory of -o"
) -> None:
    """Add -f, for verbs that otherwise refuse to overwrite."""
    parser.add_argument("-f", "--force", action="store_true", help=about)


def add_command(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the user's command, which follows the options and `--`."""
    parser.usage = f"lotus {verb} [options] -- COMMAND ..."
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def command(args: argparse.Namespace) -> list[str]:
    """Return the words of the user's command, without the `--`; empty if there is none."""
    words: list[str] = args.command
    return words[1:] if words[:1] == ["--"] else words


def required_command(args: argparse.Namespace, verb: str, hint: str = "") -> list[str]:
    """Return the result of `command`. Raises LotusError, with `hint` or an example, if empty."""
    words = command(args)
    if not words:
        hint = hint or f"try `lotus {verb} -- python train.py`"
        raise LotusError(f"no command to {verb.split()[0]}; {hint}")
    return words
