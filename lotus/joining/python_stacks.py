"""Finds Python functions and lines under each operation, from py-spy's stacks.

py-spy's clock is accurate to about ten milliseconds, which is longer than most operations. So a
stack is assigned by its frames: frames of lotus's hooks show that a fetch, a collate or an
operation is running, and the first frame above the hook within the lines of an operation shows
which.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from lotus.common.errors import LotusError
from lotus.format import stack_frames
from lotus.inside.common.guard import HOOK_FILE
from lotus.joining.recorded_run import RecordedRun
from native_map.errors import UnusableError
from native_map.recording import py_spy

_STILL = "; all else of the run is there: lotus report RUN"
COLUMNS = ["kind", "operation", "function", "file", "line", "self_ns", "total_ns", "samples"]
UNKNOWN = "(unknown operation)"
LOTUS = "lotus"  # the cost of tracing itself, and the frames of it that py-spy sees
_OURS = re.compile(r"/lotus/inside/(?:\w+/)*\w+\.py$")
# Names of hooks, the last part of py-spy's names; other frames of lotus do not count.
_FETCH, _COLLATE = "fetch", "collate"
_OPERATION = ("__call__", "call_unary", "one")  # "one": in runs of earlier versions


class _Places:
    """The lines in which operations begin: (file, first, last, name)."""

    def __init__(self, rows: Iterable[tuple[str, int, int, str]]) -> None:
        self._by_file: dict[str, list[tuple[int, int, str]]] = {}
        for file, first, last, name in rows:
            self._by_file.setdefault(file, []).append((first, last, name))

    def find(self, file: str, line: int) -> str | None:
        """Return the operation whose lines contain this one; of several the one with fewest lines.

        Operations that inherit the same function cannot be distinguished and are named together.
        """
        by_size: dict[int, dict[str, None]] = {}
        for first, last, name in self._by_file.get(file, ()):
            if first <= line <= last:
                by_size.setdefault(last - first, {})[name] = None
        return " or ".join(by_size[min(by_size)]) if by_size else None


def label(nodes: pd.DataFrame, places: _Places) -> list[tuple[str, str]]:
    """Return (kind, operation) of each node: the work on a batch that it is part of; else ("", "").

    Parents come before their children.
    """
    labels: list[tuple[str, str]] = []
    columns = (nodes[name].tolist() for name in ("parent", "function", "file", "line"))
    for parent, function, file, line in zip(*columns, strict=True):
        kind, operation = labels[parent] if parent >= 0 else ("", "")
        if file == HOOK_FILE:
            name = stack_frames.bare_name(function)
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


def python_functions(run: RecordedRun) -> pd.DataFrame:
    """Return a row per kind, operation, function, file and line, most time first.

    kind ("operation", "collate", "fetch": the data set's own code, "lotus": what records),
    operation ("" for the others; of several that inherit one function all of them),
    function, file, line, self_ns (the line was running, or C code that it called), total_ns (it
    stood anywhere in the stack), samples. Empty without `lotus trace --py-spy`. Raises LotusError.
    """
    recorder = (run.manifest.get("recorders") or {}).get("py_spy") or {}
    slices = recorder.get("slices")
    places = _Places(_located(run))
    parts, names = [], set()
    for part in slices if isinstance(slices, list) else []:
        try:
            if (name := str(part["file"])) in names:
                raise ValueError("run.json names a file twice")
            names.add(name)
            stacks = _read(run, recorder, part)
        except UnusableError as error:
            raise LotusError(str(error)) from None
        except (OSError, KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise LotusError(f"what py-spy recorded cannot be read: {error}{_STILL}") from None
        parts.append(_sums(stacks, places))
    if not parts:
        return pd.DataFrame(columns=COLUMNS)
    keys = COLUMNS[:5]
    table = pd.concat(parts, ignore_index=True).groupby(keys, as_index=False).sum()
    order = ["kind", "operation", "self_ns", "total_ns"]
    return table.sort_values(order, ascending=[True, True, False, False], ignore_index=True)


def _located(run: RecordedRun) -> list[tuple[str, int, int, str]]:
    rows = run.operations
    rows = rows[rows["file"] != ""]
    columns = (rows[name].tolist() for name in ("file", "first", "last", "operation"))
    return [(str(f), int(a), int(b), str(name)) for f, a, b, name in zip(*columns, strict=True)]


def _read(run: RecordedRun, recorder: dict[str, Any], part: dict[str, Any]) -> py_spy.PySpyStacks:
    name = str(part["file"])
    if "/" in name or name.startswith("."):
        raise LotusError(f"run.json names a file of py-spy's outside of the run{_STILL}")
    rate = int(recorder.get("rate") or 100)
    if not 0 < rate <= 10**9:
        raise ValueError(f"its rate is {rate}")
    path = run.path / "py-spy" / name
    if path.is_symlink() or path.parent.is_symlink() or not path.is_file():
        raise LotusError(
            f"a file of py-spy's in the run is a link or missing, and was not read{_STILL}"
        )
    start, seen, end = (int(part[when]) for when in ("start_ns", "seen_ns", "end_ns"))
    workers = run.workers[run.workers["end_ns"].notna()]
    # A worker's loop runs on its main thread, whose tid is the pid.
    ends = dict(zip(workers["pid"].tolist(), workers["end_ns"].astype("int64"), strict=True))
    return py_spy.read(path, start, seen, end, 10**9 // rate, ends)


def _sums(stacks: py_spy.PySpyStacks, places: _Places) -> pd.DataFrame:
    """Time and samples of each place, counted once per stack even if it recurs."""
    labels = label(stacks.nodes, places)
    inside = stacks.samples[stacks.samples["node"] >= 0]
    own = inside.groupby("node")[["weight_ns", "count"]].sum()
    size = len(stacks.nodes)
    weights, counts = [0] * size, [0] * size
    for node, weight, count in own.itertuples(name=None):
        weights[node], counts[node] = weight, count
    parents = stacks.nodes["parent"].tolist()
    columns = (stacks.nodes[name].tolist() for name in ("function", "file", "line"))
    frames = list(zip(*columns, strict=True))
    totals = list(weights)  # with all that is above a node under the same label
    for node in range(size - 1, -1, -1):
        parent = parents[node]
        if parent >= 0 and labels[parent] == labels[node]:
            totals[parent] += totals[node]
    by_place: dict[tuple[Any, ...], list[int]] = {}
    for node in _outermost(parents, labels, frames):
        if labels[node][0] and frames[node][1] != HOOK_FILE and totals[node]:
            sums = by_place.setdefault((*labels[node], *frames[node]), [0, 0, 0])
            sums[1] += totals[node]
    for node in range(size):
        if labels[node][0] and frames[node][1] != HOOK_FILE and weights[node]:
            key = (*labels[node], *frames[node])
            sums = by_place[key]
            sums[0] += weights[node]
            sums[2] += counts[node]
    rows = [(*key, *sums) for key, sums in by_place.items()]
    return pd.DataFrame(rows, columns=COLUMNS)


def _outermost(
    parents: list[int], labels: list[tuple[str, str]], frames: list[tuple[Any, ...]]
) -> Iterator[int]:
    """Select nodes whose frame does not recur below them in the same stretch of one label.

    Walks through the tree once, as searching below every node would be quadratic in its depth.
    """
    above: list[list[int]] = [[] for _ in parents]
    waiting = []
    for node, parent in enumerate(parents):
        if parent >= 0 and labels[parent] == labels[node]:
            above[parent].append(node)
        else:
            waiting.append(node)
    active: set[tuple[Any, ...]] = set()
    ends = -1  # marks in `waiting` that the node before it is left
    while waiting:
        node = waiting.pop()
        if node == ends:
            active.discard(frames[waiting.pop()])
            continue
        if frames[node] not in active:
            yield node
            active.add(frames[node])
            waiting += [node, ends]
        waiting += above[node]
