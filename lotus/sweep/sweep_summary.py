"""Computes the report of a sweep: each setting over its repeats, the knee, what saturates.

Runs are read one after the other, and only their numbers are kept.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import plain_value
from lotus.analysis.common.remade_loaders import merged
from lotus.common.errors import LotusError
from lotus.common.numbers.statistics import t_quantile
from lotus.common.text.formatting import plural
from lotus.reading import run as runs
from lotus.settings.space import Setting
from lotus.sweep.knee import Knee, knee
from lotus.sweep.run_numbers import MOST_NAMED, OPERATION_MEASURES, Reduced, chosen, missing, reduce
from lotus.sweep.saturation import Limit, limits
from lotus.sweep.sweep_record import Sweep

KEYS = ["setting", "kind", "operation"]
INTERVAL = ["mean", "low", "high", "repeats"]
_MUCH_READ = 100e6  # bytes
_BETWEEN_0_AND_1 = ("_share", "_bound", "utilisation", "retiring")


@dataclass(frozen=True)
class Series:
    """Settings that differ only in the number of workers.

    name      their common parameters, "" if only the workers were set
    settings  their indices in `SweepSummary.settings`, by workers
    """

    name: str
    settings: list[int]
    knee: Knee | None
    limits: list[Limit]


@dataclass(frozen=True)
class SweepSummary:
    """The summary of a sweep. Tables have a row per setting (its index in `settings`) and measure.

    runs        a row per run that counts: setting, repeat, and the measures of
                `run_numbers.Reduced`
    measures    setting, measure, mean, low, high, repeats (with a measurement); low and high are
                the 95 % interval of the mean by Student's t, NaN for one repeat
    operations  setting, kind, operation, measure, mean, low, high, repeats
    failed      label, repeat, problem, log (relative path) of each failed run
    """

    path: str
    manifest: Mapping[str, Any]
    settings: list[Setting]
    labels: list[str]
    varied: tuple[str, ...]
    planned: int
    done: int
    pending: int
    failed: list[dict[str, Any]]
    loaders: list[str]  # titles of the reported loader; one unless the runs differ
    cores: float  # that the program could use; NaN: not known
    runs: pd.DataFrame
    measures: pd.DataFrame
    operations: pd.DataFrame
    series: list[Series]
    best: Series | None  # the series with the best throughput
    counted: bool  # hardware events were counted
    notes: list[str] = field(default_factory=list)

    def of(self, setting: int, measure: str) -> tuple[float, float, float]:
        """Return (mean, low, high) of a measure; NaN if it was not measured."""
        table = self.measures
        row = table[(table["setting"] == setting) & (table["measure"] == measure)]
        if not len(row):
            return math.nan, math.nan, math.nan
        mean, low, high = (float(row[name].iloc[0]) for name in ("mean", "low", "high"))
        return mean, low, high

    def per_operation(self, measure: str, column: str = "mean") -> pd.DataFrame:
        """Return a row per operation: kind, operation, and a column per setting (its index).

        Operations with the most CPU time come first; those without this measure are left out.
        """
        table = self.operations
        if not len(table):
            return pd.DataFrame(columns=["kind", "operation"])
        weight = table[table["measure"] == "cpu_s"].groupby(["kind", "operation"])["mean"].sum()
        mine = table[table["measure"] == measure]
        wide = mine.pivot(index=["kind", "operation"], columns="setting", values=column)
        order = weight.reindex(wide.index).fillna(0.0).sort_values(ascending=False, kind="stable")
        ordered: pd.DataFrame = wide.reindex(order.index).reset_index()
        return ordered


def summarise(
    sweep: Sweep, progress: Callable[[int, int], None] = lambda done, total: None
) -> SweepSummary:
    """Read the runs of a sweep and compute its summary; reports how many have been read."""
    settings = sweep.settings()
    notes: list[str] = []
    rows: list[dict[str, Any]] = []
    parts: list[pd.DataFrame] = []
    loaders: dict[str, None] = {}
    other_loaders: dict[str, None] = {}
    done_runs = sweep.runs[sweep.runs["state"] == "done"]
    records = sweep.manifest["runs"]
    for count, (number, row) in enumerate(done_runs.iterrows()):
        progress(count, len(done_runs))
        where = sweep.path / str(row["directory"])
        reduced = _reduced(where, sweep, records[int(str(number))], notes)
        if reduced is None:
            continue
        place = {"setting": int(row["setting"]), "repeat": int(row["repeat"])}
        rows.append({**place, **reduced.measures})
        parts.append(reduced.operations.assign(**place))
        loaders[reduced.loader] = None
        other_loaders.update(dict.fromkeys(reduced.others))
        if reduced.lost:
            notes.append(f"{row['directory']}: {reduced.lost} records were lost")
    progress(len(done_runs), len(done_runs))
    notes += _others(list(other_loaders), sweep.manifest["plan"]["loader"])
    frame = pd.DataFrame(rows, columns=None if rows else ["setting", "repeat"])
    operations = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return built(sweep, frame, operations, list(loaders), notes, settings)


def _reduced(
    where: Path, sweep: Sweep, record: Mapping[str, Any], notes: list[str]
) -> Reduced | None:
    target = sweep.manifest["plan"]["loader"]
    elapsed, used = record.get("elapsed_ns"), record.get("cpu_s")
    try:
        run = merged(runs.load(where))
        loader = chosen(run, target)
        if loader is None:
            notes.append(f"{record['directory']}: {missing(run, target)}")
            return None
        return reduce(
            run,
            loader,
            math.nan if elapsed is None else elapsed / 1e9,
            math.nan if used is None else float(used),
        )
    except LotusError as error:
        notes.append(str(error))
        return None


def _others(names: Sequence[str], target: Any) -> list[str]:
    """Return a note on the loaders that the report does not cover."""
    if not names:
        return []
    why = "the loader that --loader names" if target else "the loader with the most samples"
    listed = ", ".join(names[:MOST_NAMED])
    listed += f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    hint = "" if target else "; use --loader to sweep another"
    return [f"the program also iterates {listed}; this sweep covers {why}{hint}"]


def built(
    sweep: Sweep,
    rows: pd.DataFrame,
    operations: pd.DataFrame,
    loaders: list[str],
    notes: list[str],
    settings: list[Setting],
) -> SweepSummary:
    """Summarise the numbers of runs: `rows` and `operations` have setting and repeat."""
    manifest = sweep.manifest
    cores = _cores(manifest)
    series = [
        _series(name, places, settings, rows, cores)
        for name, places in _groups(settings, sweep.varied).items()
    ]
    states = sweep.runs["state"].value_counts()
    rates = [_best_rate(line, rows) for line in series]
    return SweepSummary(
        path=str(sweep.path),
        manifest=manifest,
        settings=settings,
        labels=[label(setting, sweep.varied) for setting in settings],
        varied=sweep.varied,
        planned=len(sweep.runs),
        done=int(states.get("done", 0)),
        pending=int(states.get("pending", 0)),
        failed=_failed(sweep, settings),
        loaders=loaders,
        cores=cores,
        runs=rows,
        measures=_measures(rows),
        operations=_operations(operations),
        series=series,
        best=series[int(np.argmax(rates))] if max(rates, default=0.0) > 0 else None,
        counted="ipc" in rows or "frontend_bound" in rows,
        notes=[*notes, *_notes(manifest), *_few(rows), *_cold(rows)],
    )


def label(setting: Setting, varied: Sequence[str]) -> str:
    """Describe a setting: "4 workers, prefetch 2"."""
    words = [plural(setting.num_workers, "worker")]
    return ", ".join([*words, *_common(setting, varied)])


def _common(setting: Setting, varied: Sequence[str]) -> list[str]:
    """Describe a setting's parameters besides its workers."""
    words = []
    if "prefetch_factor" in varied and setting.prefetch_factor is not None:
        words.append(f"prefetch {setting.prefetch_factor}")
    if "pin_memory" in varied:
        words.append("pinned" if setting.pin_memory else "not pinned")
    if "persistent_workers" in varied and setting.num_workers:
        words.append("persistent" if setting.persistent_workers else "not persistent")
    if "start_method" in varied and setting.start_method is not None:
        words.append(setting.start_method)
    return words


def _groups(settings: Sequence[Setting], varied: Sequence[str]) -> dict[str, list[int]]:
    """Map names to indices of settings that differ only in the number of workers, sorted by it.

    A setting without workers has only pinning, so it starts every series with the same pinning.
    """
    groups: dict[str, list[int]] = {}
    for place, setting in enumerate(settings):
        if setting.num_workers:
            groups.setdefault(", ".join(_common(setting, varied)), []).append(place)
    for place, setting in enumerate(settings):
        if not setting.num_workers:
            alike = [
                name
                for name, places in groups.items()
                if settings[places[0]].pin_memory == setting.pin_memory
            ]
            for name in alike:
                groups[name].append(place)
            if not alike:
                groups.setdefault(", ".join(_common(setting, varied)), []).append(place)
    return {
        name: sorted(places, key=lambda place: settings[place].num_workers)
        for name, places in groups.items()
    }


def _series(
    name: str, places: list[int], settings: Sequence[Setting], rows: pd.DataFrame, cores: float
) -> Series:
    table: dict[int, dict[str, list[float]]] = {}
    for place in places:
        mine = rows[rows["setting"] == place].drop(columns=["setting", "repeat"])
        if len(mine):
            values = {str(measure): [float(v) for v in mine[measure]] for measure in mine}
            table[settings[place].num_workers] = values
    rates = {workers: values.get("samples_per_s", []) for workers, values in table.items()}
    result = knee(rates)
    return Series(name, places, result, limits(table, result, cores))


def _best_rate(series: Series, rows: pd.DataFrame) -> float:
    if "samples_per_s" not in rows:
        return 0.0
    mine = rows[rows["setting"].isin(series.settings)]
    means = mine.groupby("setting")["samples_per_s"].mean().dropna()
    return float(means.max()) if len(means) else 0.0


def _measures(rows: pd.DataFrame) -> pd.DataFrame:
    columns = ["setting", "measure", *INTERVAL]
    names = [name for name in rows.columns if name not in ("setting", "repeat")]
    if not len(rows):
        return pd.DataFrame(columns=columns)
    long = rows.melt(["setting"], names, "measure", "value")
    return _intervals(long, ["setting", "measure"])[columns]


def _operations(operations: pd.DataFrame) -> pd.DataFrame:
    columns = [*KEYS, "measure", *INTERVAL]
    if not len(operations):
        return pd.DataFrame(columns=columns)
    measured = operations.astype(dict.fromkeys(OPERATION_MEASURES, "float64"))
    long = measured.melt(KEYS, list(OPERATION_MEASURES), "measure", "value")
    return _intervals(long, [*KEYS, "measure"])[columns]


def _intervals(long: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return means of `value` with 95 % intervals (Student's t), in the order of the rows."""
    measured = long[long["value"].notna()]
    table = measured.groupby(list(keys), as_index=False, sort=False).agg(
        mean=("value", "mean"), spread=("value", "std"), repeats=("value", "size")
    )
    count = table["repeats"].to_numpy(np.float64)
    wide = np.array([t_quantile(int(repeats) - 1) for repeats in count])
    half_width = np.where(count > 1, wide * table["spread"].to_numpy() / np.sqrt(count), np.nan)
    mean = table["mean"].to_numpy(np.float64)
    shares = table["measure"].astype(str).str.endswith(_BETWEEN_0_AND_1).to_numpy()
    # Only the share of bad speculation, a difference, can be below 0.
    least = np.where(table["measure"] == "bad_speculation", -np.inf, np.minimum(mean, 0.0))
    most = np.where(shares, np.fmax(mean, 1.0), np.inf)
    return table.assign(
        low=np.fmax(mean - half_width, least), high=np.fmin(mean + half_width, most)
    ).assign(low=lambda t: t["low"].where(count > 1), high=lambda t: t["high"].where(count > 1))


def _failed(sweep: Sweep, settings: Sequence[Setting]) -> list[dict[str, Any]]:
    failures = []
    for record, (_, row) in zip(sweep.manifest["runs"], sweep.runs.iterrows(), strict=True):
        if row["state"] == "failed":
            failures.append(
                {
                    "label": label(settings[int(row["setting"])], sweep.varied),
                    "repeat": int(row["repeat"]),
                    "exit_code": plain_value(row["exit_code"]),
                    "signal": plain_value(row["signal"]),
                    "problem": str(record.get("problem") or "it failed")[:1000],
                    "log": f"{row['directory']}.log",
                }
            )
    return failures


def _cores(manifest: Mapping[str, Any]) -> float:
    cpu: Mapping[str, Any] | None = manifest.get("cpu")
    known = cpu or {}
    bounds = [known.get("affinity") or known.get("logical"), known.get("quota")]
    numbers = [float(bound) for bound in bounds if bound]
    return min(numbers, default=math.nan)


def _few(rows: pd.DataFrame) -> list[str]:
    repeats = int(rows.groupby("setting").size().max()) if len(rows) else 0
    if repeats != 2:
        return []
    return ["with two rounds, intervals are ±12.7 standard errors; with three (--repeat 3), ±4.3"]


def _cold(rows: pd.DataFrame) -> list[str]:
    """Return a note if the first run filled the page cache for all others."""
    if "read_bytes" not in rows or len(rows) < 3:
        return []
    first, later = rows["read_bytes"].iloc[0], rows["read_bytes"].iloc[1:].median()
    if not first > max(_MUCH_READ, 10 * later):
        return []
    return [
        f"the first run read {first / 1e9:.1f} GB from storage, the others {later / 1e9:.1f}: "
        "the page cache was empty, so its times cannot be compared with theirs"
    ]


def _notes(manifest: Mapping[str, Any]) -> list[str]:
    return [note[:1000] for note in manifest["notes"]]
