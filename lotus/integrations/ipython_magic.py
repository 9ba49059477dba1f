"""`%load_ext lotus` and `%%lotus`: a cell of a notebook is traced, and its verdict shown below."""

import argparse
import importlib
import shlex
import sys
from pathlib import Path
from typing import Any, NoReturn

from lotus.common.errors import LotusError
from lotus.format import manifest, run_directory
from lotus.recording import session


class _Parser(argparse.ArgumentParser):
    """Options of the magic; a wrong one prints a line and does not end the kernel."""

    def error(self, message: str) -> NoReturn:
        raise LotusError(f"{message}; %%lotus? shows the options")


def register(shell: Any) -> None:
    """Add the magic to an IPython shell."""

    def lotus(line: str, cell: str) -> None:
        """Run the cell traced, then show where its data loading spends its time.

        %%lotus [-o DIR] [-f] [--level batch|sample|op|op+cpu]

        The cell runs as without it: names, output and exceptions are its own. The run is kept in
        DIR (default: lotus-runs/notebook-TIME; -f replaces an earlier one), and the variable
        _lotus_run holds it.
        """
        run_cell(shell, line, cell)

    shell.register_magic_function(lotus, magic_kind="cell", magic_name="lotus")


def run_cell(shell: Any, line: str, cell: str) -> None:
    """Run a cell under `lotus.trace` and display its `Run`. Raises what the cell raises."""
    display: Any = importlib.import_module("IPython.display").display
    # What does not compile is not run: IPython shows the error of the magic, and only that.
    shell.compile.ast_parse(shell.transform_cell(cell))
    try:
        options = _options(line)
        path = options.output or run_directory.make_plain(["notebook"])
        recording = session.trace(path, level=options.level, force=options.force)
        recorded = recording.__enter__()
    except LotusError as error:
        print(f"lotus: {error}; the cell was not run", file=sys.stderr)
        return
    try:
        result = shell.run_cell(cell)
    finally:
        recording.__exit__(None, None, None)
    try:
        run = recorded.load()
    except LotusError as error:
        print(f"lotus: {error}", file=sys.stderr)
    else:
        shell.user_ns["_lotus_run"] = run
        display(run)
    failure = result.error_before_exec or result.error_in_exec
    if failure is not None:
        # IPython has printed the error: raise it for the caller, but do not print it again.
        failure._render_traceback_ = list
        raise failure


def _options(line: str) -> argparse.Namespace:
    parser = _Parser(prog="%%lotus", add_help=False)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("-f", "--force", action="store_true")
    parser.add_argument("--level", choices=manifest.LEVELS, default="op")
    try:
        return parser.parse_args(shlex.split(line))
    except ValueError as error:
        raise LotusError(f"%%lotus {line}: {error}") from None
