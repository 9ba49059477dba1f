"""One loader's part of a run: the tables of every rank, and facts about it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import (
    batch_rows,
    flag,
    float_column,
    int_column,
    median,
    plain_value,
    process_keys,
    with_columns,
)
from lotus.analysis.common.loader_operations import LoaderOperations
from lotus.analysis.common.loader_samples import LoaderSamples
from lotus.analysis.common.loader_titles import title_of
from lotus.analysis.common.loop_spans import loop_spans
from lotus.analysis.common.run_contents import Partials, RunContents, one_process, parts_of
from lotus.analysis.common.warm_up import without_warm_up
from lotus.common.terminal.progress import Advance
from lotus.common.torch_defaults import TORCH_PREFETCH

_OF_LOADERS = ("batches", "waits", "epochs")
TABLES = (*_OF_LOADERS, "workers", "resources", "paths")
_MOSTLY = 0.5
_MOST_WORKERS = 1 << 12  # of a loader that anybody starts; a damaged log may tell any number


class RunLike(Protocol):
    """The part of a `lotus.Run` that analysis needs; read-only."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """run.json, as `lotus.Run` has it."""

    @property
    def loaders(self) -> pd.DataFrame:
        """The table of loaders, as `lotus.Run` has it."""


@dataclass(frozen=True)
class Scope:
    """The tables of one loader, all ranks; `settings` are the loader's own parameters.

    `calls`: of operations. Their table, and that of the samples, may not fit in memory.
    """

    loader: int
    settings: dict[str, Any]
    ranks: list[int]
    level: str
    partial: bool  # not every batch was to be recorded
    times_created: int  # how many times the program created it, one loader after the other
    cores: float  # that this loader's processes may use on one rank; NaN: not known
    worker_cores: float  # that its workers may use together, all ranks; 0.0: not known, or none
    machine_cores: float  # of the whole machine; NaN: not known
    shm_bytes: float  # size of /dev/shm; NaN: not known
    memory_bytes: float  # of the machine; NaN: not known
    preloaded: str  # libraries by LD_PRELOAD, as the environment names them; "": none
    program_cpu_ns: float  # of all that ran in the program, until its end; NaN: not known
    worker_start_ns: float  # usual start of a worker, of whichever loader; NaN: none had workers
    operations: pd.DataFrame
    calls: LoaderOperations
    fetched: LoaderSamples
    batches: pd.DataFrame
    waits: pd.DataFrame
    epochs: pd.DataFrame
    workers: pd.DataFrame
    resources: pd.DataFrame
    paths: pd.DataFrame
    blocking: pd.DataFrame
    places: pd.DataFrame
    first_batches: pd.DataFrame
    sample_digests: pd.DataFrame
    full_collections: pd.DataFrame
    machine: pd.DataFrame
    memory: pd.DataFrame
    children: pd.DataFrame
    own_code: pd.DataFrame
    stack_times: pd.DataFrame
    loops: Callable[[], pd.DataFrame]  # of all loaders, as loop_spans has them
    titles: Mapping[int, str]  # of all loaders, as `title`
    no_stacks: str  # why `own_code` has none, as `Run.no_stacks`; "": not known

    @property
    def ops(self) -> pd.DataFrame:
        """The table of `calls`."""
        return self.calls.table()

    @property
    def samples(self) -> pd.DataFrame:
        """The table of `fetched`."""
        return self.fetched.table()

    @property
    def num_workers(self) -> int:
        """Workers of one rank; 0: the main process makes the batches."""
        known = self.settings.get("num_workers")
        if not isinstance(known, int):
            known = int(max(int_column(self.batches, "worker"), default=-1)) + 1
        return min(max(known, 0), _MOST_WORKERS)

    @property
    def is_taken_aside(self) -> bool:
        """True if another thread than the main one takes the batches, as one that reads ahead."""
        return bool(_taken_aside(self.waits))

    @property
    def prefetch_factor(self) -> int:
        """Batches that each worker makes ahead; torch's default if it is not known."""
        return int(self.settings.get("prefetch_factor") or TORCH_PREFETCH)

    @property
    def epoch_count(self) -> int:
        """The number of epochs, however many ranks iterate the loader."""
        return len(np.unique(int_column(self.epochs, "epoch")))

    @property
    def each_is_left(self) -> bool:
        """True if a rank has several iterations, and each was left before its end."""
        of_ranks = np.unique(int_column(self.epochs, "rank"), return_counts=True)[1]
        return of_ranks.max(initial=0) > 1 and not flag(self.epochs, "exhausted").any()

    @property
    def title(self) -> str:
        """The name by which a user knows the loader."""
        return title_of(self.settings) or f"loader {self.loader}"


def iterated(run: RunLike) -> list[int]:
    """Return the numbers of the loaders that were iterated, the one with the most samples first."""
    batches = table(run, "batches")
    loader, size = int_column(batches, "loader"), np.nan_to_num(float_column(batches, "size"))
    known = pd.Series(size).groupby(loader).sum()
    for name in ("waits", "epochs"):
        others = pd.Index(np.unique(int_column(table(run, name), "loader")))
        known = known.reindex(known.index.union(others), fill_value=0.0)
    known = known[known.index >= 0]
    return [int(loader) for loader in known.sort_values(ascending=False, kind="stable").index]


def scopes(
    run: RunLike,
    loaders: Sequence[int] | None = None,
    advance: Advance = lambda done, whole: None,
    partials: Partials = one_process,
) -> list[Scope]:
    """Return a Scope of each of `loaders`; by default of all that were iterated, in order.

    `advance` is told how many of how many pieces of the run are read, `partials` reads them.
    """
    wanted = iterated(run) if loaders is None else loaders
    tables = {name: table(run, name) for name in TABLES}
    parts = {name: _by_loader(tables[name]) for name in _OF_LOADERS}
    contents = RunContents(parts_of(run), advance, partials)
    whole = cache(lambda name: _by_loader(table(run, name)))
    loops = cache(lambda: loop_spans(tables["epochs"], tables["waits"]))

    def calls(loader: int) -> LoaderOperations:
        return LoaderOperations(contents, loader, lambda: whole("ops")(loader))

    def fetched(loader: int) -> LoaderSamples:
        return LoaderSamples(contents, loader, lambda: whole("samples")(loader))

    return [_scope(run, tables, parts, calls(loader), fetched(loader), loops) for loader in wanted]


def _by_loader(frame: pd.DataFrame) -> Callable[[int], pd.DataFrame]:
    """Return a function loader -> its rows; sorts once however many loaders there are."""
    loader = int_column(frame, "loader")
    if not len(frame) or (loader == loader[0]).all():
        # The usual case, which must not copy ten million rows.
        return lambda wanted: frame if len(frame) and loader[0] == wanted else frame.iloc[:0]
    order = np.argsort(loader, kind="stable")
    ordered = loader[order]

    def rows(wanted: int) -> pd.DataFrame:
        first, last = np.searchsorted(ordered, [wanted, wanted + 1])
        return frame.iloc[order[first:last]].reset_index(drop=True)

    return rows


def table(run: Any, name: str) -> pd.DataFrame:
    """Return a table of the run; empty if the run has none of that name."""
    frame = getattr(run, name, None)
    return frame if isinstance(frame, pd.DataFrame) else pd.DataFrame()


def _scope(
    run: RunLike,
    tables: Mapping[str, pd.DataFrame],
    parts: Mapping[str, Callable[[int], pd.DataFrame]],
    calls: LoaderOperations,
    fetched: LoaderSamples,
    loops: Callable[[], pd.DataFrame],
) -> Scope:
    loader = calls.loader
    mine = {name: part(loader) for name, part in parts.items()}
    batches, workers = mine["batches"], tables["workers"]
    processes = process_keys(batches)
    keep = np.isin(process_keys(workers), processes) | (int_column(workers, "loader") == loader)
    rows = run.loaders[int_column(run.loaders, "loader") == loader]
    settings = {
        str(name): plain_value(value)
        for name, value in (rows.iloc[0].to_dict() if len(rows) else {}).items()
    }
    times_created = int(settings.pop("made", 1))
    ranks = sorted({int(rank) for rank in int_column(batches, "rank")})
    paths, resources = tables["paths"], tables["resources"]
    manifest, spent = run.manifest, getattr(run, "program_cpu_ns", None)
    return Scope(
        loader=loader,
        settings=settings,
        ranks=ranks,
        level=str(manifest.get("level") or "op"),
        partial=bool(manifest.get("batches")) or (manifest.get("every") or 1) != 1,
        times_created=times_created,
        cores=_cores(
            manifest,
            len(ranks),
            _allowed(mine["epochs"], workers[keep]),
            _entered_quota(table(run, "machine"), mine["epochs"]),
        ),
        worker_cores=float(_allowed(workers[keep])),
        machine_cores=float((manifest.get("cpu") or {}).get("logical") or "nan"),
        shm_bytes=float(manifest.get("shm_bytes") or "nan"),
        memory_bytes=float(manifest.get("memory_bytes") or "nan"),
        preloaded=str((manifest.get("environment") or {}).get("LD_PRELOAD") or ""),
        program_cpu_ns=spent if isinstance(spent, float) else math.nan,
        worker_start_ns=median(
            float_column(workers, "ready_ns") - float_column(workers, "start_ns")
        ),
        operations=table(run, "operations"),
        calls=calls,
        fetched=fetched,
        batches=_with_idle_of_loop(batches, mine["epochs"]),
        waits=without_warm_up(mine["waits"]),
        epochs=mine["epochs"],
        workers=workers[keep].reset_index(drop=True),
        resources=_with_sharers(resources[np.isin(process_keys(resources), processes)], workers),
        paths=paths[np.isin(process_keys(paths), processes)].reset_index(drop=True),
        blocking=_of_loop(_of_pids(table(run, "blocking"), batches, mine["waits"]), mine["waits"]),
        places=_of_loop(_of_pids(table(run, "places"), batches, mine["waits"]), mine["waits"]),
        machine=table(run, "machine"),
        children=_of_pids(table(run, "children"), batches, mine["waits"]),
        memory=_of_pids(table(run, "memory"), batches, mine["waits"]),
        own_code=table(run, "own_code"),
        stack_times=table(run, "stack_times"),
        loops=loops,
        titles=_titles(run.loaders),
        no_stacks=str(getattr(run, "no_stacks", "")),
        first_batches=_of_pids(table(run, "first_batches"), batches),
        sample_digests=_of_pids(table(run, "sample_digests"), batches),
        full_collections=_of_pids(table(run, "full_collections"), batches, mine["waits"]),
    )


def _titles(loaders: pd.DataFrame) -> dict[int, str]:
    rows = ({str(name): value for name, value in row.items()} for row in loaders.to_dict("records"))
    numbers = int_column(loaders, "loader").tolist()
    return {
        number: title_of(row) or f"loader {number}"
        for number, row in zip(numbers, rows, strict=True)
    }


def _of_pids(frame: pd.DataFrame, *tables: pd.DataFrame) -> pd.DataFrame:
    pids = np.unique(np.concatenate([int_column(each, "pid") for each in tables]))
    return frame[np.isin(int_column(frame, "pid"), pids)].reset_index(drop=True)


def _of_loop(blocking: pd.DataFrame, waits: pd.DataFrame) -> pd.DataFrame:
    """Return observations (or places) without those of a main thread that iterates no loader.

    Of a main process, its main thread is observed. Where another thread takes the batches, as one
    that reads ahead, the main thread waits for that one at a lock.
    """
    if not len(blocking) or not (aside := _taken_aside(waits)):
        return blocking
    mine = np.isin(int_column(blocking, "pid"), aside) & (int_column(blocking, "worker") < 0)
    return blocking[~mine].reset_index(drop=True)


def _taken_aside(waits: pd.DataFrame) -> list[int]:
    """Return the processes in which another thread than the main one takes most batches."""
    pids, tids = int_column(waits, "pid"), int_column(waits, "tid")
    other = (tids > 0) & (tids != pids)
    return [int(pid) for pid in np.unique(pids[other]) if other[pids == pid].mean() > _MOSTLY]


def _with_sharers(resources: pd.DataFrame, workers: pd.DataFrame) -> pd.DataFrame:
    """Add sharers: how many workers of its rank, of whichever loader, were ready then.

    A worker shares its pages with them, once they are forked: what the PSS divides them by.
    """
    times, count = float_column(resources, "time_ns"), np.zeros(len(resources))
    ready_ns, end_ns = float_column(workers, "ready_ns"), float_column(workers, "end_ns")
    of_ranks = pd.Series(ready_ns).groupby(int_column(workers, "rank")).indices
    for rank, rows in pd.Series(times).groupby(int_column(resources, "rank")).indices.items():
        own = np.asarray(of_ranks.get(rank, []), np.int64)
        own = own[np.isfinite(ready_ns[own])]
        begun = np.searchsorted(np.sort(ready_ns[own]), times[rows], "right")
        ended = np.searchsorted(np.sort(end_ns[own]), times[rows], "right")  # NaN: sorts last
        count[rows] = begun - ended
    return resources.assign(sharers=count).reset_index(drop=True)


def _with_idle_of_loop(batches: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """Add idle_in_loop_ns: idle time since the epoch began, not between two epochs."""
    row = batch_rows(epochs, batches, ("rank", "loader", "epoch"))
    begin = float_column(epochs, "start_ns")
    begin = begin[np.maximum(row, 0)] if len(epochs) else np.full(len(batches), np.nan)
    since = float_column(batches, "fetch_start_ns") - np.where(row >= 0, begin, np.nan)
    idle = np.minimum(float_column(batches, "idle_ns"), np.fmax(since, 0.0))
    return with_columns(batches, {"idle_in_loop_ns": idle})


def _allowed(*tables: pd.DataFrame) -> int:
    """Return how many CPUs the processes of these tables may use together; 0 if not known."""
    spans: set[tuple[int, int]] = set()
    for text in {str(text) for each in tables if "cpus" in each for text in each["cpus"]}:
        for part in text.split(",") if text else ():
            first, _, last = part.partition("-")
            spans.add((int(first), int(last or first)))
    count, counted = 0, -1  # the last CPU that is counted
    for low, high in sorted(spans):
        count += max(high - max(low - 1, counted), 0)
        counted = max(counted, high)
    return count


def _entered_quota(machine: pd.DataFrame, epochs: pd.DataFrame) -> float:
    """Return the CPU quota (cores) of the program's own cgroups in its loops; 0.0: none is known.

    `manifest.cpu.quota` is that of the program that starts it, which it may have left.
    """
    quota, start = float_column(machine, "quota_millicores"), float_column(epochs, "start_ns")
    if not np.isfinite(start).any():
        return 0.0
    known = quota[(float_column(machine, "time_ns") >= np.nanmin(start)) & (quota > 0)]
    return float(known.min(initial=math.inf)) / 1000 if known.size else 0.0


def _cores(manifest: Mapping[str, Any], ranks: int, allowed: int, entered: float) -> float:
    cpu = manifest.get("cpu") or {}
    limits = [allowed, cpu.get("affinity") or cpu.get("logical"), cpu.get("quota"), entered]
    known = [float(limit) for limit in limits if limit]
    return min(known) / max(ranks, 1) if known else float("nan")
