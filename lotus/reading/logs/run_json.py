"""Reads and checks a run's run.json, and the clocks of its hosts."""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lotus.common.errors import LotusError
from lotus.common.storage import files
from lotus.common.text.formatting import plural
from lotus.format.clock_offsets import Clock
from lotus.inside.trace.log.log_format import SCHEMA
from lotus.reading.logs.event_log import Shift, newer, parse_json
from lotus.reading.logs.process_tree import is_a

_MOST_OPENED = 8  # runs beside each other


def read(path: Path) -> dict[str, Any]:
    """Return the content of a run directory's run.json. Raises LotusError, with what to do."""
    again = "record one with: lotus trace -o DIRECTORY -- python train.py"
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        raise LotusError(f"there is no run at {path}; {again}") from None
    except NotADirectoryError:
        raise LotusError(
            f"{path} is a file, not a run directory: give the directory that lotus trace made"
        ) from None
    except OSError as error:
        raise LotusError(f"cannot read {path}: {error.strerror}; see: ls -ld {path}") from None
    if not names:
        where = "this directory" if path == Path() else path
        raise LotusError(f"{where} has no files; {again}")
    if "run.json" not in names:
        if {"events", "processes.jsonl"} & set(names):
            raise LotusError(f"{path} is half written: it has no run.json; {again}")
        inside = [name for name in sorted(names) if (path / name / "run.json").is_file()]
        newest = max(inside, key=lambda name: (path / name).stat().st_mtime_ns, default="")
        if inside:
            again = f"it holds {plural(len(inside), 'run')}; type: lotus report "
            again += shlex.quote(str(path / newest))
            if len(inside) > 1 and all(_is_of_job(path / name) for name in inside[:_MOST_OPENED]):
                again += "; lotus merge makes one run of those of a job's hosts"
        raise LotusError(f"{path} is not a run directory: it has no run.json; {again}")
    try:
        text = files.read(path / "run.json", files.LARGEST)
    except OSError as error:
        raise LotusError(
            f"cannot read {path / 'run.json'}: {error.strerror}; see: ls -l {path / 'run.json'}"
        ) from None
    manifest = parse_json(text)
    if manifest is None:
        raise LotusError(f"{path / 'run.json'} is half written or damaged; {again}")
    if not isinstance(manifest, dict) or not is_a(manifest.get("schema"), range(1, 1 << 31)):
        raise LotusError(f"{path / 'run.json'} was not written by lotus; {again}")
    if manifest["schema"] > SCHEMA:
        raise LotusError(newer(str(path), manifest["schema"]))
    return manifest


def _is_of_job(path: Path) -> bool:
    """Return True if a run has some of the ranks of a job, and not all."""
    try:
        ranks = files.read_json(path / "run.json", files.LARGEST)["ranks"]
        return len(ranks) < max(int(rank["world_size"]) for rank in ranks)
    except (OSError, ValueError, TypeError, KeyError):
        return False


def clocks(hosts: Sequence[Mapping[str, Any]]) -> dict[str, Shift]:
    """Return the shift of each clock other than the run's own."""
    shifts: dict[str, Shift] = {}
    for host in hosts:
        at, offset = (host.get(name) for name in ("at_ns", "offset_ns"))
        drift = host.get("drift_ppb")
        sound = is_a(at, int) and is_a(offset, int) and type(drift) in (int, float)
        if not sound or abs(drift) > 1e6 or abs(offset) >= 1 << 62:  # type: ignore[arg-type]
            continue
        if offset or drift:
            shifts[str(host.get("clock"))] = Clock(at, offset, drift).shift  # type: ignore[arg-type]
    return shifts
