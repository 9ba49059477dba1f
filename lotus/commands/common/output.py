"""The output of a verb: files of -o, the page of --html, the document of --json."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lotus.common.errors import LotusError
from lotus.common.storage import files

_STDOUT = ("-", "/dev/stdout")


def destination(
    path: Path,
    *,
    overwrite: bool,
    option: str = "-o",
    directory: bool = False,
    stdout: bool = False,
) -> Path | None:
    """Return the path that `option` names, before any work; None for the standard output.

    `overwrite` (-f, for verbs that have it) allows replacing an existing file. `stdout` means that
    `-` stands for the standard output. Raises LotusError if nothing can be written there. (An
    existing directory is checked by the code that writes it, which replaces only files of lotus.)
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
    """Print a question mark on terminals that cannot show µ."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
