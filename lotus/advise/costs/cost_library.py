"""Costs of operations that plans on this machine have measured: a small file for each operation.

They are in `~/.cache/lotus/costs` (`$XDG_CACHE_HOME`). A file is written whole, or not at all. Of
two plans that end at the same time, one may lose what it has measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lotus.advise.costs.predicted_costs import SAME_SIZE, CostRecord, measured_costs
from lotus.common.storage import declared, files

FORMAT = "lotus costs 1"
_MOST_RECORDS = 64  # of an operation; the latest stay
_MOST_OF_ONE_SIZE = 8
_MOST_FILES = 512
_LARGEST = 1 << 20  # bytes of a file


@dataclass(frozen=True)
class _CostFile:
    """The content of a file. `operation` is its name and parameters, for people."""

    format: str
    operation: str
    records: list[CostRecord]

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f'"format" is not "{FORMAT}"')


def folder() -> Path:
    """Return the folder of the user's library."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "lotus" / "costs"


def read(
    keys: Sequence[str], place: Path | None = None
) -> tuple[dict[str, list[CostRecord]], list[str]]:
    """Return the records of these operations, and a note for each file that is damaged."""
    found: dict[str, list[CostRecord]] = {}
    notes = []
    for key in keys:
        path = _path(place or folder(), key)
        try:
            found[key] = _read(path).records
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            notes.append(f"{path} is left out, and is written anew: {error}")
    return found, notes


def add(events: Sequence[Mapping[str, Any]], cpu: str, place: Path | None = None) -> list[str]:
    """Record what was measured of operations; return notes."""
    root = place or folder()
    now, notes = time.time(), list[str]()
    for event in events:
        if event.get("event") != "operation" or event["key"] is None or not event["cpu_ns"]:
            continue
        costs = measured_costs(event)
        facts = (cpu, event["versions"], now, event["waited_share"])
        own = [CostRecord(cost, *facts) for cost in costs]
        path = _path(root, event["key"])
        try:
            earlier = _read(path).records
        except (OSError, ValueError):
            earlier = []
        about = f"{event['qualified_name']}: {event['description']}"
        document = asdict(_CostFile(FORMAT, about, _bounded([*own, *earlier])))
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with files.atomic(path, 0o600) as file:
                file.write(files.json_text(document, indent=None).encode())
        except OSError as error:
            notes.append(f"costs of operations are not kept: {error.strerror or error}: {root}")
            break
    _forget_oldest(root)
    return notes


def _bounded(records: Sequence[CostRecord]) -> list[CostRecord]:
    """Return the latest records, and not too many of one size."""
    kept: list[CostRecord] = []
    for record in sorted(records, key=lambda each: -each.measured_at):
        alike = sum(
            other.cost.kind == record.cost.kind
            and other.cpu == record.cpu
            and other.versions == record.versions
            and max(other.cost.bytes, record.cost.bytes)
            <= SAME_SIZE * min(other.cost.bytes, record.cost.bytes)
            for other in kept
        )
        if alike < _MOST_OF_ONE_SIZE:
            kept.append(record)
    return kept[:_MOST_RECORDS]


def _read(path: Path) -> _CostFile:
    """Raises OSError, and ValueError where it is none."""
    return declared.read_as(_CostFile, files.read_json(path, _LARGEST), "the file")


def _path(root: Path, key: str) -> Path:
    return root / f"{key[:32]}.json"


def _forget_oldest(root: Path) -> None:
    """Remove the files that were written longest ago, beyond so many."""
    try:
        paths = [path for path in root.iterdir() if path.suffix == ".json"]
        if len(paths) > _MOST_FILES:
            paths.sort(key=lambda path: path.stat().st_mtime)
            for path in paths[:-_MOST_FILES]:
                path.unlink(missing_ok=True)
    except OSError:
        pass
