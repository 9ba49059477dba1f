"""Python functions and lines under each operation, from py-spy's stacks.

py-spy's clock is known to some ten milliseconds only, which is longer than most operations. So a
stack is told by its frames: the frames of lotus's hooks say that a fetch, a collate or an operation
is running, and the first frame above the hook that lies in the lines of an operation says which.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from lotus.errors import LotusError
from lotus.inside.guard import HOOK_FILE
from native_map import py_spy
from native_map.errors import Unusable

if TYPE_CHECKING:
    from lotus.run import Run
_STILL = "; all else of the run is there: lotus report RUN"
COLUMNS = ["kind", "operation", "function", "file", "line", "self_ns", "total_ns", "samples"]
UNKNOWN = "(unknown operation)"
LOTUS = "lotus"  # what tracing itself costs, and what py-spy sees of it
_OURS = re.compile(r"/lotus/inside/\w+\.py$")
# Names of hooks, the last part of what py-spy calls them; all else of ours is no place to be in.
_FETCH, _COLLATE = "fetch", "collate"
_OPERATION = ("__call__", "one")


class _Places:
    """The lines in which operations begin: (file, first, last, name)."""

    def __init__(self, rows: Iterable[tuple[str, int, int, str]]) -> None:
        self._by_file: dict[str, list[tuple[int, int, str]]] = {}
        for file, first, last, name in rows:
            self._by_file.setdefault(file, []).append((first, last, name))

    def find(self, file: str, line: int) -> str | None:
        """The operation whose lines hold this one; of several the one of fewest lines.

        Operations that inherit one function cannot be told apart, and are named together.
        """
        found: dict[int, dict[str, None]] = {}
        for first, last, name in self._by_file.get(file, ()):
            if first <= line <= last:
                found.setdefault(last - first, {})[name] = None
        return " or ".join(found[min(found)]) if found else None


def label(nodes: pd.DataFrame, places: _Places) -> list[tuple[str, str]]:
    """(kind, operation) of each node: what a thread that is in it does for a batch; else ("", "").

    A parent stands before its children.
    """
    labels: list[tuple[str, str]] = []
    columns = (nodes[one].tolist() for one in ("parent", "function", "file", "line"))
    for parent, function, file, line in zip(*columns, strict=True):
        kind, operation = labels[parent] if parent >= 0 else ("", "")
        if file == HOOK_FILE:
            name = function.rpartition(".")[2]
            if name == _FETCH:
                kind, operation = "fetch", ""
            elif name == _COLLATE:
                kind, operation = "collate", ""
            elif name in _OPERATION and kind != "collate":
                kind, operation = "operation", UNKNOWN
        elif _OURS.search(file):
            kind, operation = LOTUS, ""
        elif kind == "operation" and operation == UNKNOWN:
            operation = places.find(file, line) or UNKNOWN
        labels.append((kind, operation))
    return labels


def python_functions(run: "Run") -> pd.DataFrame:
    """One row per kind, operation, function, file and line, those of most time first.

    kind ("operation", "collate", "fetch": the data set's own code, "lotus": what records),
    operation ("" for the others; of several that inherit one function all of them),
    function, file, line, self_ns (the line was running, or C code that it called), total_ns (it
    stood anywhere in the stack), samples. Empty without `lotus trace --py-spy`. Raises LotusError.
    """
    told = (run.manifest.get("recorders") or {}).get("py_spy") or {}
    slices = told.get("slices")
    places = _Places(_located(run))
    parts = []
    for one in slices if isinstance(slices, list) else []:
        try:
            stacks = _read(run, told, one)
        except Unusable as error:
            raise LotusError(str(error)) from None
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise LotusError(f"what py-spy recorded cannot be read: {error}{_STILL}") from None
        parts.append(_sums(stacks, places))
    if not parts:
        return pd.DataFrame(columns=COLUMNS)
    keys = COLUMNS[:5]
    table = pd.concat(parts, ignore_index=True).groupby(keys, as_index=False).sum()
    order = ["kind", "operation", "self_ns", "total_ns"]
    return table.sort_values(order, ascending=[True, True, False, False], ignore_index=True)


def _located(run: "Run") -> list[tuple[str, int, int, str]]:
    rows = run.operations
    rows = rows[rows["file"] != ""]
    columns = (rows[one].tolist() for one in ("file", "first", "last", "operation"))
    return [(str(f), int(a), int(b), str(name)) for f, a, b, name in zip(*columns, strict=True)]


def _read(run: "Run", told: dict[str, Any], one: dict[str, Any]) -> py_spy.Stacks:
    name = str(one["file"])
    if "/" in name or name.startswith("."):
        raise LotusError(f"run.json names a file of py-spy's outside of the run{_STILL}")
    rate = int(told.get("rate") or 100)
    path = run.path / "py-spy" / name
    if path.is_symlink() or path.parent.is_symlink() or not path.is_file():
        raise LotusError(
            f"a file of py-spy's in the run is a link or gone, and was not read{_STILL}"
        )
    start, seen, end = (int(one[when]) for when in ("start_ns", "seen_ns", "end_ns"))
    workers = run.workers[run.workers["end_ns"].notna()]
    # A worker's loop runs on its main thread, whose number is the pid.
    ends = dict(zip(workers["pid"].tolist(), workers["end_ns"].astype("int64"), strict=True))
    return py_spy.read(path, start, seen, end, 10**9 // rate, ends)


def _sums(stacks: py_spy.Stacks, places: _Places) -> pd.DataFrame:
    labels = label(stacks.nodes, places)
    grouped = stacks.samples[stacks.samples["node"] >= 0].groupby("node")["weight_ns"]
    own = grouped.agg(["sum", "size"])
    found: dict[tuple[Any, ...], list[int]] = {}
    parents = stacks.nodes["parent"].tolist()
    functions, files, lines = (stacks.nodes[one].tolist() for one in ("function", "file", "line"))
    for node, weight, count in zip(
        own.index.tolist(), own["sum"].tolist(), own["size"].tolist(), strict=True
    ):
        kind, operation = labels[node]
        if not kind:
            continue
        at, seen = node, set()
        while at >= 0 and labels[at] == (kind, operation):
            frame = (functions[at], files[at], lines[at])
            if files[at] != HOOK_FILE and frame not in seen:
                seen.add(frame)
                sums = found.setdefault((kind, operation, *frame), [0, 0, 0])
                if at == node:
                    sums[0] += weight
                    sums[2] += count
                sums[1] += weight
            at = parents[at]
    rows = [(*key, *sums) for key, sums in found.items()]
    return pd.DataFrame(rows, columns=COLUMNS)
