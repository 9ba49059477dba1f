"""Where the output of a verb goes: files of -o, the page of --html, the document of --json."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lotus.common import files
from lotus.common.errors import LotusError

_STDOUT = ("-", "/dev/stdout")


def destination(
    path: Path,
    *,
    overwrite: bool,
    option: str = "-o",
    directory: bool = False,
    stdout: bool = False,
) -> Path | None:
    """Where `option` sends the output, decided before any work; None for the standard output.

    `overwrite` says whether something that is there already may be replaced: -f, of verbs that
    have it. `stdout` says whether `-` stands for the standard output. Raises LotusError if nothing
    can be written there. (A directory that is there is looked into by what writes it: it replaces
    only what lotus wrote.)
    """
    if str(path) in _STDOUT and directory:
        raise LotusError(f"this makes a directory: name it with {option} DIR")
    if str(path) in _STDOUT and stdout:
        return None
    if not directory:
        files.writable(path, option)
    elif os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
        raise LotusError(f"{path} is not a directory; {option} names another one")
    if not overwrite and (path.is_file() or path.is_dir()):
        raise LotusError(f"{path} exists: overwrite it with -f, or name another with {option}")
    return path


def print_document(document: Mapping[str, Any]) -> None:
    """Print the document of --json."""
    print(files.json_text(document))


def replace_unprintable() -> None:
    """Let a terminal that has no µ show a question mark."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
