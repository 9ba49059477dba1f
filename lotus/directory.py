"""The run directory: its name, its making, and when it may be overwritten."""

import contextlib
import itertools
import json
import re
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from lotus import files, manifest
from lotus.errors import LotusError

_LARGEST = 64 << 20  # bytes of run.json that are read


def make_default(command: Sequence[str]) -> Path:
    """Make lotus-runs/SCRIPT-TIME; of two that start at once each gets its own.

    Raises LotusError where it cannot be made.
    """
    base = Path("lotus-runs") / f"{_script_name(command)}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        base.parent.mkdir(exist_ok=True)
        for number in itertools.count(2):
            path = base if number == 2 else base.with_name(f"{base.name}-{number - 1}")
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
                return path
    except OSError as error:
        raise _cannot_make(base, error) from None
    raise AssertionError


def _script_name(command: Sequence[str]) -> str:
    if command[0] == "-c":
        return "code"
    scripts = [word for word in command if re.search(r"\.(py|sh|bash)$", word)]
    if "-m" in command[:-1] and not scripts:
        name = command[command.index("-m") + 1]
    elif scripts:
        name = Path(scripts[0]).stem
    else:
        name = Path(command[0]).name
    return re.sub(r"[^\w.]+", "-", name).strip("-.")[:60] or "run"


def make(path: Path, force: bool = False) -> None:
    """Make a run directory (mode 0700), or with `force` empty an earlier run of its records.

    Raises LotusError where something else stands there, or where it cannot be made.
    """
    try:
        if path.exists() and not path.is_dir():
            raise LotusError(f"{path} is a file; choose another directory with -o")
        if path.is_dir() and any(path.iterdir()):
            _empty(path, force)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_make(path, error) from None


def _cannot_make(path: Path, error: OSError) -> LotusError:
    return LotusError(
        f"cannot make the run directory {path}: {error.strerror}; choose another one with -o"
    )


def _empty(path: Path, force: bool) -> None:
    if not is_run(path):
        raise LotusError(
            f"{path} is not empty and holds no lotus run; choose another directory with -o"
        )
    _spare_running(path)
    if not force:
        raise LotusError(
            f"{path} holds an earlier run; -f overwrites it, -o chooses another directory"
        )
    # Only what lotus wrote: a report that the user saved beside it stays.
    for old in (*path.glob(f".{manifest.NAME}.*"), path / "processes.jsonl"):
        old.unlink(missing_ok=True)
    for name in ("perf.data", "perf.data.old"):
        (path / name).unlink(missing_ok=True)
    for name, pattern in (("events", "*.ltr"), ("state", "*.state"), ("py-spy", "*.json")):
        folder = path / name
        if folder.is_symlink():
            folder.unlink()
            continue
        for old in folder.glob(pattern):
            old.unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()
    (path / manifest.NAME).unlink()


_STILL = 60  # s after whose last record another host's run is taken for one that was killed


def _spare_running(path: Path) -> None:
    """Raise LotusError where another host is recording there: its run would lose its records."""
    record = json.loads(files.read(path / manifest.NAME, _LARGEST))
    host = record.get("host")
    if record.get("state") != "running" or host in (None, socket.gethostname()):
        return
    written = max((log.stat().st_mtime for log in path.glob("*/*")), default=0.0)
    if time.time() - max(written, (path / manifest.NAME).stat().st_mtime) < _STILL:
        raise LotusError(
            f"host {json.dumps(str(host))[1:-1]:.100} is recording in {path}; give each host of a "
            f"job its own directory, as with -o {path}-$(hostname), and lotus merge makes one run"
        )


def is_run(path: Path) -> bool:
    """Whether a directory holds a run.json that lotus wrote."""
    try:
        record = json.loads(files.read(path / manifest.NAME, _LARGEST))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and {"schema", "lotus", "command"} <= record.keys()
