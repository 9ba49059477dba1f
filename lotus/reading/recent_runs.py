"""The newest runs of lotus-runs/ in the current directory, the default of several commands."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lotus.common.errors import LotusError
from lotus.common.storage import files
from lotus.format import manifest
from lotus.format.run_directory import ATTACHED, RUNS, SWEEP, script_name

_MOST = 200  # directories whose run.json is read: those changed last


@dataclass(frozen=True)
class Recent:
    """A run or sweep in lotus-runs/.

    program: the program that its directory is named after; well: whether its exit code is 0; empty:
    it has ended, and no process of it has written a log, as where no DataLoader was iterated.
    """

    path: Path
    began_ns: int  # since the epoch
    program: str
    well: bool
    empty: bool = False


def newest(verb: str, sweeps: bool = False) -> tuple[Path, Path | None]:
    """Return the run, or with `sweeps` also the sweep, that began last, and a later empty run.

    An empty run is returned only where all are. `verb`: for the error. Raises LotusError if there
    is none.
    """
    last, passed = None, None
    for recent in _recent(sweeps):
        last = last or recent
        if not recent.empty:
            passed = last.path if last is not recent else None
            return recent.path, passed
    if last is None:
        raise _none(verb)
    return last.path, None


def two_newest() -> tuple[Path, Path]:
    """Return the newest run with exit code 0 and the one of its program before: (older, newer).

    Raises LotusError if there are not two.
    """
    runs = list(_recent(sweeps=False))
    ended = [run for run in runs if run.well and not run.empty]
    if not ended:
        raise _none("compare A B", " that ended with exit code 0" if runs else "")
    last = ended[0]
    before = next((run for run in ended[1:] if run.program == last.program), None)
    if before is None:
        others = ", ".join(str(run.path) for run in ended[1:4])
        raise LotusError(
            f"{last.path} is the only run of {last.program} in {RUNS}/ of this directory "
            "that ended with exit code 0; record another one, or name what to compare: "
            "lotus compare A B" + (f" (there are {others})" if others else "")
        )
    return before.path, last.path


def _none(verb: str, which: str = "") -> LotusError:
    words = verb.split()
    named = verb if len(words) > 1 else f"{verb} RUN"
    return LotusError(
        f"no run was given, and there is none{which} in {RUNS}/ of this directory "
        f"({os.getcwd()}); name one: lotus {named}, or record one: lotus trace -- python train.py"
    )


def _recent(sweeps: bool) -> Iterator[Recent]:
    """Yield the runs, the newest first."""
    names = [manifest.NAME]
    if sweeps:
        names.append(SWEEP)
    written: list[tuple[int, Path]] = []
    try:
        with os.scandir(RUNS) as entries:
            for entry in entries:
                for name in names:
                    path = Path(entry.path, name)
                    if path.is_file() and not path.is_symlink():
                        written.append((path.stat().st_mtime_ns, path))
    except FileNotFoundError:
        return
    except OSError as error:
        raise LotusError(
            f"cannot look for runs in {RUNS}/: {error.strerror}; see: ls -ld {RUNS}"
        ) from None
    written.sort(reverse=True)
    runs = [_read(path, ns) for ns, path in written[:_MOST]]
    yield from sorted(runs, key=lambda run: -run.began_ns)


def _read(path: Path, written_ns: int) -> Recent:
    """Read a run's manifest; if it is damaged, the run is as old as that file."""
    record: Any = None
    try:
        record = files.read_json(path, files.LARGEST)
    except (OSError, ValueError):
        record = None
    known: dict[str, Any] = record if isinstance(record, dict) else {}
    began, command = known.get("start_wall_ns"), known.get("command")
    words = command if isinstance(command, list) and command else [""]
    return Recent(
        path=path.parent,
        began_ns=began if type(began) is int else written_ns,
        program=script_name([str(word) for word in words]),
        well=known.get("state") == "ended" and known.get("exit_code") == 0,
        empty=path.name == manifest.NAME
        and known.get("state") == "ended"
        and not any((path.parent / name).exists() for name in ("events", ATTACHED)),
    )
