"""What decides between one piece of advice and another: the loader's settings and its machine."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import core_taken
from lotus.analysis.batches.core_use import CoreUse, core_use
from lotus.analysis.batches.own_code import HotFunction, hot_functions
from lotus.analysis.batches.repeated_samples import shared_generators, times_read
from lotus.analysis.batches.wait_spread import wait_spread
from lotus.analysis.common.columns import flag, integer, median, number, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.verdict.causes.ledger import SHARED, core_shared
from lotus.common.formatting import plural

_SEVERAL = 3  # batches of a worker


@dataclass(frozen=True)
class Circumstances:
    """What is known of a loader beside its charges."""

    workers: int
    cores: float  # NaN: not known
    needed: float  # workers that would keep up with the training step; NaN: not known
    batches: float  # of the longest epoch: more workers have nothing to do; inf: not known
    idle_share: float  # of the workers' time
    shared: float  # of the time in which batches were made off a core: others had it
    prefetch: int
    pinned: bool
    persistent: bool
    in_order: bool
    made: int  # how many loaders the program made of it
    call_site: str  # file:line that made it; "": not known
    hot: list[HotFunction]  # in the data set's own code, as hot_functions has them
    hot_in_sampler: list[HotFunction]
    times_read: int  # how often an epoch has each sample
    shared_generators: dict[str, int]  # as shared_generators has them
    spawned: bool
    level: str
    partial: bool  # not every batch was to be recorded
    batch_bytes: float
    pipe_bytes: float
    iterable: bool
    in_sequence: bool  # the sampler takes the samples in their order
    paths: dict[int, str]
    use: CoreUse
    wait_spread: tuple[float, float]  # as wait_spread has it
    descriptors: float  # open in a process at a time, at most; NaN: not known
    descriptor_limit: float  # the highest of a process; NaN: none, or not known
    shm_share: float  # of /dev/shm that was filled, at most; NaN: not known
    without_data: int  # workers that made no batch while others made several each


def circumstances(scope: Scope) -> Circumstances:
    """Gather them from a loader's tables."""
    batches, settings = scope.batches, scope.settings
    fetch, step = number(batches, "fetch_ns"), number(scope.waits, "step_ns")
    idle = total(number(batches, "idle_in_loop_ns"))
    step_ns = median(step)
    # More workers do not give back the time in which others had the cores.
    measured = (fetch - core_taken(batches, np.nan_to_num(fetch)))[~np.isnan(fetch)]
    mean = float(measured.mean()) if measured.size else float("nan")
    paths = scope.paths
    return Circumstances(
        workers=scope.num_workers,
        cores=scope.cores,
        needed=ratio(mean, step_ns),
        batches=_most_batches(scope),
        idle_share=ratio(idle, idle + total(fetch)),
        shared=core_shared(scope),
        prefetch=int(settings.get("prefetch_factor") or 2),
        pinned=bool(settings.get("pin_memory")),
        persistent=bool(settings.get("persistent_workers")),
        in_order=settings.get("in_order") is not False,
        made=scope.made,
        call_site=str(settings.get("call_site") or ""),
        hot=hot_functions(scope.own_code, "fetch"),
        hot_in_sampler=hot_functions(scope.own_code, "sampler"),
        times_read=times_read(scope),
        shared_generators=shared_generators(scope),
        spawned=settings.get("start_method") in ("spawn", "forkserver"),
        level=scope.level,
        partial=scope.partial,
        batch_bytes=median(number(batches, "bytes")),
        pipe_bytes=median(number(batches, "send_bytes")),
        iterable=settings.get("dataset_kind") == "iterable",
        in_sequence=settings.get("sampler") == "SequentialSampler",
        paths=dict(
            zip(
                integer(paths, "sample").tolist(),
                paths["path"].astype(str) if "path" in paths else [],
                strict=True,
            )
        ),
        use=core_use(scope),
        wait_spread=wait_spread(scope),
        descriptors=_most(scope.resources, "descriptors"),
        descriptor_limit=_descriptor_limit(scope),
        shm_share=ratio(_most(scope.resources, "shm"), scope.shm_bytes),
        without_data=without_data(scope),
    )


def _descriptor_limit(scope: Scope) -> float:
    limits = number(scope.memory, "descriptor_limit")
    return float(limits.max()) if limits.size and (limits > 0).all() else math.nan


def _most(frame: pd.DataFrame, name: str) -> float:
    return float(np.nanmax(number(frame, name), initial=-math.inf)) if len(frame) else math.nan


def _most_batches(scope: Scope) -> float:
    """Of an epoch that came to its end, on one rank."""
    batches = number(scope.epochs, "batches")[flag(scope.epochs, "exhausted")]
    return float(np.nanmax(batches, initial=0.0)) or math.inf


def without_data(scope: Scope) -> int:
    """How many workers made no batch in the whole run, while the others made several each.

    So it is where an iterable data set has fewer shards than there are workers.
    """
    workers = scope.num_workers
    if scope.partial or workers < 2 or scope.settings.get("dataset_kind") != "iterable":
        return 0
    made = integer(scope.batches, "worker")[number(scope.batches, "size") > 0]
    counts = np.bincount(made[(made >= 0) & (made < workers)], minlength=workers)
    busy = counts[counts > 0]
    return int((counts == 0).sum()) if busy.size and busy.min() >= _SEVERAL else 0


def workers_help(around: Circumstances, waits: bool = False) -> bool:
    """Whether `more_workers` advises some."""
    return "not help" not in more_workers(around, waits)


def more_workers(around: Circumstances, waits: bool = False) -> str:
    """A sentence on the number of workers; `waits`: the cause needs no core."""
    cores = math.inf if waits or math.isnan(around.cores) else int(around.cores)
    wanted = min(around.needed * 1.1, around.batches) if around.needed > 0 else math.nan
    number_of = f"about {math.ceil(wanted)}" if wanted < 1000 else "as many as there are cores"
    if around.workers == 0:
        count = min(math.ceil(wanted) if wanted < 1000 else cores, cores)
        shown = f"num_workers={max(1, int(count))}" if math.isfinite(count) else "num_workers"
        return (
            f"The main process makes every batch itself: set {shown} to overlap it with the step."
        )
    if around.without_data:
        return (
            f"{around.without_data} of the {around.workers} workers had no data: split it into at "
            "least as many shards as there are workers. More workers will not help."
        )
    if around.workers >= cores:
        who = "worker has" if around.workers == 1 else f"{around.workers} workers have"
        return (
            f"The {who} {plural(int(cores), 'core')}: more workers will not help without more "
            "cores."
        )
    if not waits and around.use.fetch.delay_share >= SHARED:
        who = "worker was" if around.workers == 1 else f"{around.workers} workers were"
        return (
            f"The {who} ready without a free core for "
            f"{around.use.fetch.delay_share:.0%} of the time: more will not help."
        )
    if not waits and around.use.full:
        return (
            f"The program keeps {around.use.own_share:.0%} of its cores busy: more workers will "
            "not help without more cores."
        )
    if wanted > around.workers and wanted < 1000:
        if wanted <= cores:
            return f"Raise num_workers from {around.workers} to {number_of}."
        return (
            f"Raise num_workers from {around.workers} to {int(cores)} (the cores there are; to "
            f"keep up it would take {number_of})."
        )
    limit = "" if math.isinf(cores) else f" (there are {int(cores)} cores)"
    return f"Raise num_workers from {around.workers}{limit}."
