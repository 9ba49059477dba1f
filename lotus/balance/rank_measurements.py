"""Measures each rank in a run of several: its own time per step, its input, its memory.

A rank's own time per step is that of the program's step and of taking a batch that is ready, less
its waiting for other ranks in the synchronisation of gradients. Its input time is that of a batch
in its workers, divided by their number. Times are float64 nanoseconds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import flag, float_column, int_column, plain_value
from lotus.analysis.common.loader_titles import title_of
from lotus.analysis.common.remade_loaders import merged, number_of
from lotus.analysis.common.scope import RunLike, iterated, table
from lotus.common.errors import LotusError
from lotus.common.numbers.array_types import Bools, Floats, Ints
from lotus.common.storage import declared
from lotus.inside.trace.log.log_format import FAILED, STOPPED
from lotus.settings.share_plan import MOST_RANKS, ModelSignature
from lotus.settings.tuned_file import Target
from lotus.tune.simulation.loop_edges import first_of_process

WARM = 3  # of a rank's first steps that are left out, if it has five times as many
_AGAIN = "record it again with: lotus trace -o RUN -- torchrun --nproc-per-node N train.py"
_ACCUMULATED = 1.5  # batches for each synchronisation, from which on gradients are accumulated
_NAMED = 8  # ranks that one message names
EPOCH, RUN = 32, 52  # bits of a step's key from which on it has its epoch, and its run


@dataclass(frozen=True)
class Rank:
    """Measurements of one rank. `sizes`, `step_ns` and `key` have a row per step, `fetch_*` per
    batch.
    """

    rank: int
    host: str
    batch: int  # samples of its batches but the last of an epoch
    workers: int
    prefetch: int  # batches ahead that each worker may be
    sizes: Floats  # samples
    step_ns: Floats  # its own: without exposed synchronisation where that was traced
    key: Ints  # shared by ranks' steps that synchronised; RUN: of which run
    fetch_sizes: Floats
    fetch_ns: Floats  # of one worker, or of the main process where there are none; in their order
    whole_ns: float  # mean from one batch to the next, with waits, without epochs' starts
    after_ns: float  # mean from when the last rank had arrived to the end, on its own clock; NaN
    memory_bytes: float = math.nan  # of all its processes, the largest that was seen; NaN: not read
    memory_limit: float = math.nan  # its share of its host's memory


@dataclass(frozen=True)
class Job:
    """The ranks of one loader, by their numbers 0 to N - 1."""

    ranks: tuple[Rank, ...]
    title: str
    loader: Target | None
    synchronised: bool  # the synchronisation was traced
    collective_ns: float  # mean that a step takes after the last rank has arrived; NaN: not traced
    measured_ns: float  # mean from one batch to the next, as the ranks' `whole_ns`; NaN: not known
    notes: tuple[str, ...] = ()
    model: ModelSignature | None = None  # that all ranks train; None: not told, or not the same

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The samples per step of each rank."""
        return tuple(rank.batch for rank in self.ranks)

    @property
    def global_batch(self) -> int:
        """The samples per step of all ranks together."""
        return sum(self.batch_sizes)


def measure(run: RunLike, loader: int | None = None, also: Sequence[RunLike] = ()) -> Job:
    """Return the job of a run: its largest loader, or the one with that number.

    `also`: runs of the same job with other batch sizes. Their steps and batches are added, to
    measure how a step's time grows with the batch. Raises LotusError if the run cannot be balanced.
    """
    job = _job(run, loader)
    for place, other in enumerate(also, 1):
        job = _joined(job, _job(other, loader), place)
    return job


def _job(run: RunLike, loader: int | None) -> Job:
    run = merged(run)
    loaders = iterated(run)
    loader = None if loader is None else number_of(run, loader)
    if not loaders:
        raise LotusError(f"no DataLoader was iterated in this run: {_AGAIN}")
    if loader is not None and loader not in loaders:
        names = ", ".join(str(number) for number in sorted(loaders))
        raise LotusError(f"there is no loader {loader} in this run; there are: {names}")
    chosen = loaders[0] if loader is None else loader
    tables = {
        name: frame[int_column(frame, "loader") == chosen]
        for name, frame in (("batches", table(run, "batches")), ("loaders", run.loaders))
    }
    batches = tables["batches"]
    world = _world(run, batches)
    settings = _settings(tables["loaders"], world)
    _balanceable(settings)
    notes = _alike(run.loaders, chosen, settings[0])
    syncs = table(run, "syncs")
    own, synced = _by_rank(batches, world), _by_rank(syncs, world)
    ranks = [_rank(rank, own[rank], settings[rank], synced[rank], notes) for rank in range(world)]
    first = settings[0]
    after, collective = _after_arrival(syncs, world)
    synchronised = bool(len(syncs)) and not math.isnan(collective)
    if not synchronised:
        notes.append(
            "the synchronisation of gradients was not traced: the time a rank waited for the "
            "others counts as its own step, so ranks look more alike than they are"
        )
    measured = float(np.mean([rank.whole_ns for rank in ranks]))
    ranks = [replace(rank, after_ns=after[rank.rank]) for rank in ranks]
    return Job(
        ranks=tuple(_with_memory(run, ranks)),
        title=title_of(first) or f"loader {chosen}",
        loader=_target(first),
        synchronised=synchronised,
        collective_ns=collective,
        measured_ns=measured,
        notes=tuple(dict.fromkeys(notes)),
        model=_model(table(run, "models"), world),
    )


def _model(models: pd.DataFrame, world: int) -> ModelSignature | None:
    """Return the model with most parameters, if every rank has it."""
    if not len(models) or not {"parameters", "shapes"} <= set(models.columns):
        return None
    largest = models.sort_values("parameters", ascending=False).drop_duplicates("rank")
    signatures = {
        (int(row[0]), str(row[1])) for row in largest[["parameters", "shapes"]].to_numpy()
    }
    if len(signatures) != 1 or set(int_column(largest, "rank").tolist()) != set(range(world)):
        return None
    parameters, shapes = signatures.pop()
    return ModelSignature(parameters, shapes) if 0 < len(shapes) <= 200 else None


def _world(run: RunLike, batches: pd.DataFrame) -> int:
    """Return the number of ranks. Raises LotusError if not all of them were recorded."""
    present = sorted({int(rank) for rank in int_column(batches, "rank")})
    recorded = [entry for entry in run.manifest.get("ranks") or [] if isinstance(entry, Mapping)]
    started = {entry["rank"] for entry in recorded if type(entry.get("rank")) is int}
    world_sizes = {int(size) for size in int_column(batches, "world_size")}
    world_sizes |= {
        entry["world_size"] for entry in recorded if type(entry.get("world_size")) is int
    }
    world_sizes = {size for size in world_sizes if size > 0}
    if len(world_sizes) > 1:
        sizes = ", ".join(str(size) for size in sorted(world_sizes))
        raise LotusError(
            f"the run holds jobs of {sizes} ranks, which cannot be balanced as one: {_AGAIN}"
        )
    world: int = max(
        [*world_sizes, *(rank + 1 for rank in present), *(rank + 1 for rank in started), 1]
    )
    if world > MOST_RANKS:
        raise LotusError(f"the run has {world:,} ranks; a plan is for {MOST_RANKS:,} at most")
    if world == 1:
        raise LotusError(f"the run has one rank, so there is nothing to balance: {_AGAIN}")
    silent = [rank for rank in range(world) if rank not in present]
    missing = [rank for rank in silent if rank not in started]
    if missing:
        raise LotusError(
            f"of {world} ranks {_ranks(missing)} left no record: trace every host and join them "
            "with: lotus merge A B -o RUN"
        )
    if silent:
        raise LotusError(f"{_ranks(silent)} of {world} took no batch of this loader: {_AGAIN}")
    return world


def _ranks(ranks: Sequence[int]) -> str:
    listed = ", ".join(str(rank) for rank in ranks[:_NAMED])
    suffix = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {listed}{suffix}"


def _settings(loaders: pd.DataFrame, world: int) -> list[dict[str, Any]]:
    """Return the loader's parameters on each rank; if a rank lacks them, those of the first that
    has them.
    """
    rank = int_column(loaders, "rank")
    rows = [
        {str(name): plain_value(value) for name, value in row.items()}
        for row in loaders.to_dict("records")
    ]
    own: dict[int, dict[str, Any]] = {}
    for owner, row in zip(rank.tolist(), rows, strict=True):
        own.setdefault(owner, row)
    spare = rows[0] if rows else {}
    return [own.get(rank, spare) for rank in range(world)]


def _balanceable(settings: Sequence[Mapping[str, Any]]) -> None:
    """Raise LotusError for loaders whose samples cannot be shared out differently."""
    for parameters in settings:
        where = f" at {parameters['call_site']}" if parameters.get("call_site") else ""
        title = f"the loader of {parameters.get('dataset') or 'its data set'}{where}"
        if parameters.get("dataset_kind") == "iterable":
            raise LotusError(
                f"{title} is of an iterable data set, which chooses its samples itself: they "
                "cannot be shared out; only map-style data sets can be balanced"
            )
        batching = parameters.get("batch_sampler")
        if batching is not None and batching != "BatchSampler":
            raise LotusError(
                f"{title} has a batch sampler of its own, {batching}, whose batches cannot be made "
                "larger or smaller; give the loader batch_size and sampler instead"
            )
        if parameters and parameters.get("batch_size") is None:
            raise LotusError(
                f"{title} has no batch size (batch_size=None): its data set makes the batches; "
                "give the loader a batch_size to balance it"
            )


def _target(settings: Mapping[str, Any]) -> Target | None:
    """Return what identifies the loader where it is created; a run records only where it was
    iterated.
    """
    facts = {name: settings.get(name) or None for name in ("dataset", "sampler")}
    try:
        return declared.read_as(Target, {"dataset_length": settings.get("dataset_length"), **facts})
    except ValueError:
        return None


def _alike(loaders: pd.DataFrame, chosen: int, settings: Mapping[str, Any]) -> list[str]:
    """Return a note if the plan would match other loaders as well."""
    target = _target(settings)
    other_loaders = loaders[int_column(loaders, "loader") != chosen]
    number_of = int_column(other_loaders, "loader").tolist()
    rows = other_loaders.to_dict("records")
    alike = sorted(
        {
            place
            for place, row in zip(number_of, rows, strict=True)
            if _target({str(name): plain_value(value) for name, value in row.items()}) == target
        }
    )
    if target is None or not alike:
        return []
    names = ", ".join(str(name) for name in alike[:_NAMED])
    return [
        f"loader {names} has the same data set, length and sampler: the plan does not tell them "
        f"apart from loader {chosen}"
    ]


_COLUMNS = (
    "rank", "host", "pid", "worker", "epoch", "batch", "size", "flags", "first", "fetch_start_ns",
    "fetch_ns", "wait_start_ns", "wait_ns", "taken_ns", "ready_ns", "step_ns", "exposed_ns",
)  # fmt: skip


def _by_rank(frame: pd.DataFrame, world: int) -> list[pd.DataFrame]:
    """Return the rows of each rank, sorting the table only once."""
    frame = frame[[name for name in _COLUMNS if name in frame.columns]]
    rank = int_column(frame, "rank")
    order = np.argsort(rank, kind="stable")
    ends = np.searchsorted(rank[order], np.arange(world + 1))
    frame = frame.iloc[order]
    return [frame.iloc[begin:end] for begin, end in pairwise(ends)]


def _rank(
    rank: int,
    batches: pd.DataFrame,
    settings: Mapping[str, Any],
    syncs: pd.DataFrame,
    notes: list[str],
) -> Rank:
    order = np.argsort(float_column(batches, "taken_ns"), kind="stable")
    batches = batches.iloc[order].reset_index(drop=True)
    size = float_column(batches, "size")
    sound = (size > 0) & ((int_column(batches, "flags", 0) & (FAILED | STOPPED)) == 0)
    step, taken_at = float_column(batches, "step_ns"), float_column(batches, "taken_ns")
    exposed = _exposed(taken_at, step, syncs, notes)
    own = np.maximum(step - exposed, 0.0) + _taking(batches)
    stepped = sound & np.isfinite(own) & ~np.isnan(taken_at)
    stepped &= ~_warming(stepped)
    fetch = float_column(batches, "fetch_ns")
    usable = sound & np.isfinite(fetch) & (fetch >= 0)
    fresh = first_of_process(batches) & usable
    if usable.sum() > 2 * fresh.sum():
        usable &= ~fresh
    if not stepped.any() or not usable.any():
        raise LotusError(
            f"rank {rank} has too few batches of which both fetch and step were recorded: {_AGAIN}"
        )
    sizes, counts = np.unique(size[stepped], return_counts=True)
    workers = settings.get("num_workers")
    if not isinstance(workers, int) or workers < 0:
        workers = int(int_column(batches, "worker").max()) + 1
    prefetch = settings.get("prefetch_factor")
    hosts = [str(host) for host in batches["host"].unique()] if "host" in batches else []
    return Rank(
        rank=rank,
        host=next((host for host in hosts if host), ""),
        batch=int(sizes[np.flatnonzero(counts == counts.max())[-1]]),
        workers=workers,
        prefetch=prefetch if isinstance(prefetch, int) and prefetch > 0 else 2,
        sizes=size[stepped],
        step_ns=own[stepped],
        key=_keys(batches)[stepped],
        fetch_sizes=size[usable],
        fetch_ns=fetch[usable],
        whole_ns=_mean(
            (float_column(batches, "wait_ns") + step)[stepped & ~flag(batches, "first")]
        ),
        after_ns=math.nan,
    )


def _taking(batches: pd.DataFrame) -> Floats:
    """Return the time to take a batch that is ready, which is the rank's own even with a fast
    input.
    """
    wait = np.maximum(np.nan_to_num(float_column(batches, "wait_ns")), 0.0)
    was_ready = float_column(batches, "ready_ns") < float_column(batches, "wait_start_ns")
    was_ready &= int_column(batches, "worker") >= 0
    usual = float(np.median(wait[was_ready])) if was_ready.any() else 0.0
    return np.where(int_column(batches, "worker") >= 0, np.minimum(wait, usual), 0.0)


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan


def _keys(batches: pd.DataFrame) -> Ints:
    """Return one number per epoch and batch, the same on all ranks of a synchronous job."""
    epoch, batch = int_column(batches, "epoch"), int_column(batches, "batch")
    return ((epoch << EPOCH) + batch) & ((1 << RUN) - 1)


def _warming(stepped: Bools) -> Bools:
    """Select the first steps, in which memory is allocated and kernels are chosen."""
    place = np.cumsum(stepped)
    return np.asarray((place <= WARM) & (stepped.sum() >= 5 * WARM))


def _exposed(taken: Floats, step: Floats, syncs: pd.DataFrame, notes: list[str]) -> Floats:
    """Return the part of each step's synchronisation that nothing overlapped; 0 if not traced."""
    synced = np.zeros(len(taken))
    ready, exposed = float_column(syncs, "ready_ns"), float_column(syncs, "exposed_ns")
    begun = np.flatnonzero(~np.isnan(taken))
    if not len(syncs) or not len(begun):
        return synced
    place = np.searchsorted(taken[begun], ready, side="right") - 1
    inside = place >= 0
    row = begun[np.maximum(place, 0)]
    inside &= ~(ready > taken[row] + step[row])  # those of another loader's loop are left out
    np.add.at(synced, row[inside], np.nan_to_num(exposed[inside]))
    if inside.any() and len(begun) >= _ACCUMULATED * inside.sum():
        notes.append(
            f"gradients are synchronised once in {len(begun) / inside.sum():.1f} batches: they are "
            "accumulated; a step is one batch here, so ranks wait for each other less often than "
            "is assumed"
        )
    return synced


def _after_arrival(syncs: pd.DataFrame, world: int) -> tuple[list[float], float]:
    """Return the mean time of each rank from the last arrival to its end, and of the collective.

    Both are NaN if unknown. The collective takes as long as the last rank waits, which needs no
    common clock.
    """
    nothing = [math.nan] * world, math.nan
    if not len(syncs):
        return nothing
    frame = pd.DataFrame(
        {
            "rank": int_column(syncs, "rank"),
            "step": int_column(syncs, "step"),
            "ready": float_column(syncs, "ready_ns"),
            "end": float_column(syncs, "end_ns"),
            "exposed": float_column(syncs, "exposed_ns"),
        }
    ).dropna()
    by_step = frame.groupby("step")
    frame["last"] = by_step["ready"].transform("max")
    frame = frame[by_step["rank"].transform("nunique") == world]
    if not len(frame):
        return nothing
    # Clocks of several hosts are aligned with an error; no time is negative.
    frame["after"] = np.maximum(frame["end"] - frame["last"], 0.0)
    own = frame.groupby("rank")["after"].mean()
    least = np.maximum(frame.groupby("step")["exposed"].min(), 0.0)
    return [float(own.get(rank, math.nan)) for rank in range(world)], float(least.mean())


def _with_memory(run: RunLike, ranks: Sequence[Rank]) -> list[Rank]:
    """Return the ranks with the known memory of their workers and training processes."""
    resources = table(run, "resources")
    resources = resources[int_column(resources, "worker") >= 0]
    pss, rss = float_column(resources, "pss"), float_column(resources, "rss")
    of, pid = int_column(resources, "rank"), int_column(resources, "pid")
    epochs = table(run, "epochs")
    trains, peak = int_column(epochs, "rank"), float_column(epochs, "peak_rss")
    local: dict[str, int] = {}
    for rank in ranks:
        local[rank.host] = local.get(rank.host, 0) + 1
    result = []
    for rank in ranks:
        mine = of == rank.rank
        used = limit = math.nan
        main = 0.0  # of the process that forked them, before it trained
        if mine.any():
            largest = pd.Series(np.where(pss > 0, pss, rss)[mine]).groupby(pid[mine]).max()
            # Epochs may have separate workers; only as many as exist at once count.
            largest = largest.sort_values(ascending=False).iloc[: max(rank.workers, 1)]
            main = float(pd.Series(rss[mine]).groupby(pid[mine]).first().median())
            used = float(largest.sum()) + main
        most_bytes = float(pd.Series(peak[trains == rank.rank]).max())  # NaN: not told
        if not math.isnan(most_bytes):
            used = most_bytes if math.isnan(used) else used - main + max(main, most_bytes)
        memory = _memory_of(run.manifest, rank.host)
        if memory is not None:
            limit = memory / local[rank.host]
        result.append(replace(rank, memory_bytes=used, memory_limit=limit))
    return result


def _memory_of(manifest: Mapping[str, Any], host: str) -> float | None:
    """Return the bytes of a host's memory, if the run has them."""
    for host_facts in manifest.get("hosts") or []:
        if (
            isinstance(host_facts, Mapping)
            and host_facts.get("host") == host
            and host_facts.get("memory_bytes")
        ):
            return float(host_facts["memory_bytes"])
    memory = manifest.get("memory_bytes")
    if memory and manifest.get("host") in (None, "", host):
        return float(memory)
    return None


def _joined(job: Job, other: Job, place: int) -> Job:
    """Return `job` with the steps and batches of another run; `place` is its number, from 1."""
    if len(other.ranks) != len(job.ranks):
        raise LotusError(
            f"--also: that run has {len(other.ranks)} ranks, this one {len(job.ranks)}: it must be "
            "the same job with another batch size"
        )
    ranks = []
    for mine, theirs in zip(job.ranks, other.ranks, strict=True):
        if mine.workers != theirs.workers:
            raise LotusError(
                f"--also: rank {mine.rank} has {theirs.workers} workers there and {mine.workers} "
                "here: only the batch size may differ"
            )
        ranks.append(
            replace(
                mine,
                sizes=np.concatenate((mine.sizes, theirs.sizes)),
                step_ns=np.concatenate((mine.step_ns, theirs.step_ns)),
                key=np.concatenate((mine.key, theirs.key + (place << RUN))),
                fetch_sizes=np.concatenate((mine.fetch_sizes, theirs.fetch_sizes)),
                fetch_ns=np.concatenate((mine.fetch_ns, theirs.fetch_ns)),
            )
        )
    notes = (*job.notes, *other.notes)
    return replace(job, ranks=tuple(ranks), notes=tuple(dict.fromkeys(notes)))
