"""Builds the paper's mapping from functions to operations, applies it, and evaluates it."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from lotus.analysis.common.run_contents import RunContents, parts_of
from lotus.common.errors import LotusError
from lotus.common.storage import files
from lotus.joining.sample_join import TO_COMPARE, Mapped
from native_map.errors import UnusableError
from native_map.estimate import validation
from native_map.paper import attribution, importers
from native_map.paper import paper_mapping as maps
from native_map.paper.function_counts import Profile

if TYPE_CHECKING:
    from lotus.mapping.isolated_samples import Isolation
    from lotus.reading.run import Run
COLLATE, LOADER = "collate", "Loader"


@dataclass(frozen=True)
class Applied:
    """A profile attributed to operations: the tables of native_map.paper.attribution.apply."""

    mapping: maps.Mapping
    profile: Profile
    operations: pd.DataFrame
    pairs: pd.DataFrame
    leftovers: pd.DataFrame


@dataclass(frozen=True)
class Judged:
    """The accuracy of a mapping. `table` and `summary` are those of
    native_map.estimate.validation; `pairs` has precision and recall of a mapping against the join,
    None without a mapping."""

    table: pd.DataFrame
    summary: pd.DataFrame
    pairs: pd.DataFrame | None
    notes: list[str]


@contextlib.contextmanager
def _as_lotus_errors() -> Iterator[None]:
    try:
        yield
    except UnusableError as error:
        raise LotusError(str(error)) from None
    except OSError as error:
        raise LotusError(
            f"cannot read {error.filename}: {error.strerror}; see: lotus map apply --help"
        ) from None


def build(isolation: "Isolation", minimum_runs: int = maps.MINIMUM_RUNS) -> maps.Mapping:
    """Build the mapping from isolated runs. Raises LotusError if they have no samples."""
    counts = {
        str(name): int(runs)
        for name, runs in zip(
            isolation.operations["operation"], isolation.operations["runs"], strict=True
        )
    }
    with _as_lotus_errors():
        # Per sample, because a quick operation is called more often in its bucket than a slow one.
        return maps.build(isolation.a_sample(), minimum_runs, counts)


def read(path: Path) -> maps.Mapping:
    """Raises LotusError."""
    with _as_lotus_errors():
        return maps.read(path)


def is_mapping(path: Path) -> bool:
    """Return True if a file can be read as a mapping."""
    try:
        read(path)
    except LotusError:
        return False
    return True


def write(mapping: maps.Mapping, path: Path) -> None:
    """Raises LotusError."""
    files.replace(path, maps.to_json(mapping))


def apply(
    mapping: maps.Mapping, profile: Path, op_seconds: Mapping[str, float] | None = None
) -> Applied:
    """Apply the mapping to an exported profile. Raises LotusError."""
    with _as_lotus_errors():
        loaded = importers.load(profile)
        return Applied(mapping, loaded, *attribution.apply(mapping, loaded, op_seconds))


def seconds(run: "Run") -> dict[str, float]:
    """Return the seconds of each operation, collate and the data set's own code in a run."""
    contents = RunContents(parts_of(run))
    sums = contents.operations.cells.groupby("operation")["duration_ns"].sum() / 1e9
    by_operation = {str(name): float(duration) for name, duration in sums.items()}
    # Isolated runs have a data set's own code under its loader, which is no traced operation.
    by_operation.setdefault(LOADER, float(contents.samples["self_ns"].sum()) / 1e9)
    return {**by_operation, COLLATE: float(run.batches["collate_ns"].sum()) / 1e9}


def judge(mapped: Mapped, mapping: maps.Mapping | None = None) -> Judged:
    """Compare samples and a mapping with exact counts. Raises LotusError without counts."""
    table = mapped.compared
    if not len(table):
        raise LotusError(f"there is no truth to compare with: {_why_none(mapped)}")
    pairs: pd.DataFrame | None = None
    notes: list[str] = []
    if mapping is not None:
        functions, pairs, notes = _mapped(mapped, mapping, table)
        table = validation.with_mapping(table, functions)
    return Judged(table, validation.summary(table), pairs, notes)


def _why_none(mapped: Mapped) -> str:
    again = "lotus trace --counters --perf --perf-kernel -o DIRECTORY -- COMMAND"
    for note in mapped.notes:
        if TO_COMPARE in note:
            return f"{note.partition(f': {TO_COMPARE}')[0]}; record again with {again}"
    events = ", ".join(mapped.events)
    if "factor" in mapped.calibration:  # only where a sampled event was counted too
        return (
            f"no operation was counted while {events} was sampled from its begin to its end; "
            f"record again with {again}"
        )
    return f"{events} was sampled and not counted; record again with {again}"


def _mapped(
    mapped: Mapped, mapping: maps.Mapping, table: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Apply the mapping to the same samples without their times and threads."""
    rows, pairs = [], []
    operations = set(table["operation"])
    names = [str(name) for name in mapping.operations["name"]]
    strange = sorted(name for name in names if name not in operations and name != COLLATE)
    notes = [f"the mapping has {name}, which this run did not count" for name in strange]
    for event in dict.fromkeys(table["event"]):
        of = mapped.functions[mapped.functions["event"] == event]
        profile = _profile(mapped, str(event))
        with _as_lotus_errors():
            summed, _, _ = attribution.apply(mapping, profile)
        for row in summed.to_dict("records"):
            name = str(row["operation"])
            label = "" if name == COLLATE else name
            rows.append({"operation": label, "event": event, "mapped": float(row["samples"])})
        entries = mapping.kept.rename(columns={"module": "library"})
        # The join keeps collate apart from operations by its kind.
        collates = of["kind"] == "collate"
        of = of.assign(
            operation=of["operation"].mask(collates, COLLATE),
            kind=of["kind"].mask(collates, "operation"),
        )
        pairs.append(validation.precision_recall(entries, of, str(event)).assign(event=event))
    functions = pd.DataFrame(rows, columns=["operation", "event", "mapped"])
    return functions, pd.concat(pairs, ignore_index=True), notes


def _profile(mapped: Mapped, event: str) -> Profile:
    """Return counts by library and function, as from a profiler without times and threads."""
    keys = ["kind", "operation", "helper_of", "event"]
    rows = mapped.functions[mapped.functions["event"] == event]
    # From the samples alone, because Mapped.functions includes the exact totals.
    raw = rows[[*keys, "library", "function", "share"]].merge(
        mapped.operations[[*keys, "count"]], on=keys
    )
    raw = raw.assign(samples=raw["share"] * raw["count"])
    table = raw.groupby(["library", "function"], as_index=False)[["samples"]].sum()
    table = table.rename(columns={"library": "module"})
    table["module"] = table["module"].where(table["module"] != "[unknown]", "")
    total = float(table["samples"].sum())
    return Profile("samples", table, ("samples",), (), {"samples": total})
