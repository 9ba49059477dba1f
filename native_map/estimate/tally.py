"""Sums over joined samples, chunk by chunk."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from native_map.estimate.interval_join import Index, Ints, thread_keys

MERGE_ROWS = 500_000  # of partial sums kept before they are added up

FLAGS = ["attributed", "counted"]
KEYS = ["pid", "tid", "kind", "operation", "helper_of", *FLAGS, "event", "library", "function"]


class Tally:
    """Sums over samples, chunk by chunk, per thread, operation and function.

    `counted` says of each interval row whether its exact counts are known (`counted_rows`).
    Memory grows with the number of different (thread, operation, function), not with the samples.
    """

    def __init__(
        self,
        index: Index,
        intervals: pd.DataFrame,
        events: list[str],
        counted: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        operation = intervals["operation"].astype("category").cat
        self._operations = _Names([""])
        names = self._operations.codes([str(name) for name in operation.categories])
        codes = operation.codes.to_numpy()
        self._operation = np.where(codes >= 0, np.append(names, 0)[codes], 0)
        self._counted = np.zeros(len(intervals), bool) if counted is None else counted
        self._events, self._kinds = list(events), _Names(list(index.kinds))
        self._libraries, self._functions = _Names(), _Names()
        self._parts: list[pd.DataFrame] = []
        self._most = MERGE_ROWS

    def add(
        self,
        samples: pd.DataFrame,
        attributed: pd.DataFrame,
        functions: pd.DataFrame | None = None,
    ) -> None:
        """Add a chunk: samples (pid, tid, event, period), their rows of Index.attribute, and the
        parallel table of library and function, if known."""
        if not len(samples):
            return
        row, helper = (attributed[name].to_numpy() for name in ("interval", "helper_of"))
        key = thread_keys(samples)
        none = np.zeros(len(samples), np.int64)
        columns = {
            "thread": pd.factorize(key)[0].astype(np.int64),
            "kind": self._kinds.of(attributed["kind"]),
            "operation": _at(self._operation, row, 0),
            "helper_of": _at(self._operation, helper, 0),
            "attributed": (row >= 0).astype(np.int64),
            "counted": _at(self._counted, row, 0),
            "event": samples["event"].to_numpy(np.int64),
            "library": none if functions is None else self._libraries.of(functions["library"]),
            "function": none if functions is None else self._functions.of(functions["function"]),
        }
        group = _combined(list(columns.values()))
        period = samples["period"].to_numpy().astype(np.float64)
        first = np.empty(group.max() + 1, np.int64)
        first[group[::-1]] = np.arange(len(group))[::-1]
        part = pd.DataFrame({name: values[first] for name, values in columns.items()})
        part["pid"], part["tid"] = key[first] >> 32, samples["tid"].to_numpy(np.int64)[first]
        part["samples"] = np.bincount(group)
        part["count"] = np.bincount(group, weights=period)
        part["squares"] = np.bincount(group, weights=period * period)
        self._parts.append(part[[*KEYS, "samples", "count", "squares"]])
        if sum(map(len, self._parts)) > self._most:
            self._parts = [self._merged()]
            self._most = max(MERGE_ROWS, 2 * len(self._parts[0]))

    def _merged(self) -> pd.DataFrame:
        if not self._parts:
            return pd.DataFrame(columns=[*KEYS, "samples", "count", "squares"], dtype=np.int64)
        return pd.concat(self._parts, ignore_index=True).groupby(KEYS, as_index=False).sum()

    def table(self) -> pd.DataFrame:
        """Return KEYS, samples, count (sum of periods) and squares (sum of their squares).

        helper_of is the operation helped; attributed: within an interval; counted: see Tally.
        """
        merged = self._merged()
        named = {
            "kind": self._kinds.list(),
            "operation": self._operations.list(),
            "helper_of": self._operations.list(),
            "event": self._events,
            "library": self._libraries.list() or [""],
            "function": self._functions.list() or [""],
        }
        for name, categories in named.items():
            codes = merged[name].to_numpy(np.int64)
            merged[name] = pd.Categorical.from_codes(codes, categories=pd.Index(categories))
        return merged.astype(dict.fromkeys(FLAGS, bool))


class _Names:
    """Numbers for names that arrive as the categories of successive chunks."""

    def __init__(self, names: list[str] | None = None) -> None:
        self._number = {name: at for at, name in enumerate(names or [])}

    def codes(self, names: list[str]) -> Ints:
        number = self._number
        return np.array([number.setdefault(name, len(number)) for name in names], np.int64)

    def of(self, column: pd.Series) -> Ints:
        values = column.astype("category").cat
        codes = values.codes.to_numpy()
        names = [str(name) for name in values.categories]
        if (codes < 0).any():
            names.append("[unknown]")
        return self.codes(names)[codes]

    def list(self) -> list[str]:
        return list(self._number)


def _at(values: npt.NDArray[np.generic], row: Ints, none: int) -> Ints:
    """Return the value of each row, `none` for row -1."""
    if not len(values):
        return np.full(len(row), none, np.int64)
    return np.where(row >= 0, values[row], none).astype(np.int64)


def _combined(columns: list[Ints]) -> Ints:
    """Return numbers from 0, one for each combination of values of the columns."""
    key, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        many = int(column.max()) + 1
        if size * many >= 1 << 62:
            key = pd.factorize(key)[0].astype(np.int64)
            size = int(key.max()) + 1
        key, size = key * many + column, size * many
    return pd.factorize(key)[0].astype(np.int64)
