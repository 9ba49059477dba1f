"""Words for a charge: what it is, and the next step to take against it."""

import math
from dataclasses import dataclass

import numpy as np

from lotus.analysis import causes as kinds
from lotus.analysis.causes import Charge
from lotus.analysis.columns import flag, integer, median, number, ratio, total
from lotus.analysis.components import core_taken
from lotus.analysis.scope import Scope

WAITING = 0.5  # off the CPU for more than this share: waits, does not compute


@dataclass(frozen=True)
class Circumstances:
    """What decides between one piece of advice and another."""

    workers: int
    cores: float  # NaN: not known
    needed: float  # workers that would keep up with the consumer's step; NaN: not known
    batches: float  # of the longest epoch: more workers have nothing to do; inf: not known
    idle_share: float  # of the workers' time
    prefetch: int
    pinned: bool
    persistent: bool
    in_order: bool
    spawned: bool
    level: str
    partial: bool  # not every batch was to be recorded
    batch_bytes: float
    pipe_bytes: float
    iterable: bool
    paths: dict[int, str]


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
        prefetch=int(settings.get("prefetch_factor") or 2),
        pinned=bool(settings.get("pin_memory")),
        persistent=bool(settings.get("persistent_workers")),
        in_order=settings.get("in_order") is not False,
        spawned=settings.get("start_method") in ("spawn", "forkserver"),
        level=scope.level,
        partial=scope.partial,
        batch_bytes=median(number(batches, "bytes")),
        pipe_bytes=median(number(batches, "send_bytes")),
        iterable=settings.get("dataset_kind") == "iterable",
        paths=dict(
            zip(
                integer(paths, "sample").tolist(),
                paths["path"].astype(str) if "path" in paths else [],
                strict=True,
            )
        ),
    )


def _most_batches(scope: Scope) -> float:
    """Of an epoch that came to its end, on one rank."""
    found = number(scope.epochs, "batches")[flag(scope.epochs, "exhausted")]
    return float(np.nanmax(found, initial=0.0)) or math.inf


def title(charge: Charge, around: Circumstances) -> str:
    """A short name of the cause."""
    evidence = charge.evidence
    if charge.kind == kinds.OPERATION:
        return charge.name + (" (waits, not computing)" if _waits(charge) else "")
    if charge.kind == kinds.DATASET:
        method = "next" if around.iterable else "__getitem__"
        text = f"the data set's own code ({method}, outside its operations)"
        return text + (", which waits, not computing" if _waits(charge) else "")
    if charge.kind == kinds.FETCH:
        if around.level == "batch":
            return "making the samples (not split at --level batch)"
        return "the rest of the fetch, outside samples and collate"
    if charge.kind == kinds.COLLATE:
        return "collate: putting samples together into a batch"
    if charge.kind == kinds.SEND:
        return "sending batches from the workers (pickle, pipe, unpickle)"
    if charge.kind == kinds.COLD_FILES:
        return f"reading cold files from storage (in {charge.name})"
    if charge.kind == kinds.SLOW_SAMPLES and "samples" in evidence:
        count = int(evidence["samples"])
        if count == 1:
            return f"one slow sample: index {int(evidence['slowest_sample'])}"
        return f"{count} slow samples, the slowest at index {int(evidence['slowest_sample'])}"
    if charge.kind == kinds.SLOW_WORKER and "worker" in evidence:
        return f"one slow worker: worker {int(evidence['worker'])}" + (
            f" of rank {int(evidence['rank'])}" if evidence["rank"] > 0 else ""
        )
    if charge.kind == kinds.STARTUP:
        return "start-up: from iter() to the first batch"
    if charge.kind == kinds.SHUTDOWN:
        return "shut-down of the workers at the end of an epoch"
    return charge.name


def advise(charge: Charge, around: Circumstances) -> str:
    """The next step to take, as one or two sentences."""
    kind, evidence = charge.kind, charge.evidence
    if kind in (kinds.OPERATION, kinds.DATASET, kinds.FETCH):
        return _against_work(charge, around)
    if kind == kinds.COLLATE:
        return (
            "Make collate_fn cheaper: stack tensors once instead of copying or padding in Python, "
            "and leave conversions to the samples. " + _more_workers(around)
        )
    if kind == kinds.CONSUMER:
        return _against_consumer(around)
    if kind == kinds.STARTUP:
        return _against_startup(evidence, around)
    if kind == kinds.SHUTDOWN:
        if around.persistent:
            return "The workers are kept until the end, whose share is less in a longer run."
        return "Keep the workers: persistent_workers=True."
    if kind == kinds.SEND:
        return _against_sending(around)
    if kind == kinds.PIN:
        return "Pinning copies every batch: try pin_memory=False, or smaller batches (uint8)."
    if kind == kinds.SLOW_SAMPLES:
        return _against_slow_samples(evidence, around)
    if kind == kinds.SLOW_WORKER:
        return (
            f"Its samples take {evidence.get('times', math.nan):.1f} times the others'. See what "
            "only this worker does: its shard or files, worker_init_fn, CPU affinity, a neighbour "
            "on its core. Batches come back in order, so all wait for it."
        )
    if kind == kinds.COLD_FILES:
        return (
            "The files came from storage, not from the page cache: keep them on a faster or local "
            "disk, in memory, or in fewer and larger files. More workers read more at a time."
        )
    if kind == kinds.INDEX:
        return (
            "The workers were idle while the loop waited: raise prefetch_factor "
            f"({around.prefetch} now) and look for a slow sampler."
        )
    if kind == kinds.MAIN:
        return "Look for a slow sampler or batch sampler: it runs in the main process."
    if around.partial:
        return (
            "Record every batch (no --batches, --every or --max-log) to see what they waited for."
        )
    return (
        "The run or a worker ended while it made them, or their log was lost: `lotus top RUN` "
        "shows at what each process was."
    )


def _waits(charge: Charge) -> bool:
    return charge.evidence.get("waiting_share", math.nan) > WAITING


def _against_work(charge: Charge, around: Circumstances) -> str:
    if charge.kind == kinds.FETCH and around.level == "batch":
        return "Record with --level op to see which operation it is. " + _more_workers(around)
    if charge.kind == kinds.DATASET and around.level == "sample":
        return "Record with --level op to see which operation it is. " + _more_workers(around)
    look = ""
    if charge.kind == kinds.DATASET:
        look = " Name its parts with --op package.module:function or lotus.span to split it."
    if _waits(charge):
        return (
            "It waits (network, lock, sleep, or a core that others use): more workers overlap it "
            "at no cost in cores. " + _more_workers(around, waits=True) + look
        )
    if around.workers >= around.cores:
        return f"Make it cheaper, or do it once, ahead of time. {_more_workers(around)}{look}"
    return f"{_more_workers(around)} Or make it cheaper, or do it once, ahead of time.{look}"


def _more_workers(around: Circumstances, waits: bool = False) -> str:
    cores = math.inf if waits or math.isnan(around.cores) else int(around.cores)
    wanted = min(around.needed * 1.1, around.batches) if around.needed > 0 else math.nan
    number_of = f"about {math.ceil(wanted)}" if wanted < 1000 else "as many as there are cores"
    if around.workers == 0:
        count = min(math.ceil(wanted) if wanted < 1000 else cores, cores)
        shown = f"num_workers={max(1, int(count))}" if math.isfinite(count) else "num_workers"
        return (
            f"The main process makes every batch itself: set {shown} to overlap it with the step."
        )
    if around.workers >= cores:
        return (
            f"The {around.workers} workers have {int(cores)} cores: more workers will not help "
            "without more cores."
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


def _against_consumer(around: Circumstances) -> str:
    if around.workers == 0:
        return "Loading keeps up. What is left to gain is in the training step itself."
    text = f"Loading keeps up: the workers are idle {around.idle_share:.0%} of their time. "
    enough = math.ceil(around.needed * 1.2) if around.needed > 0 else 0
    if 0 < enough < around.workers:
        plural = "s" if enough > 1 else ""
        text += f"About {enough} worker{plural} would do. "
    return text + "What is left to gain is in the training step itself."


def _against_startup(evidence: dict[str, float], around: Circumstances) -> str:
    parts = ("iter_ns", "workers_ns", "first_batch_ns", "first_send_ns")
    largest = max(parts, key=lambda one: evidence.get(one, 0.0))
    again = evidence.get("epochs", 1) > 1 and not around.persistent and around.workers > 0
    text = "Keep the workers between epochs: persistent_workers=True. " if again else ""
    if largest == "first_batch_ns":
        return text + (
            "Most of it is the first batch: open files and build indices once, before the workers "
            "start, not in the first __getitem__ of each."
        )
    if largest == "first_send_ns":
        return text + (
            "Most of it is the first sending of each worker, which imports what pickling needs: "
            "use fewer workers, or a newer torch."
        )
    if around.spawned:
        return text + (
            "Workers are started with spawn or forkserver and import everything anew: make imports "
            "and the pickled data set lighter, or use fork."
        )
    if largest == "workers_ns":
        return text + (
            "Most of it is the workers' own start: look at worker_init_fn, at what the data set "
            "does in a new worker, and at the number of workers."
        )
    return text + (
        "Most of it is iter() itself: starting workers copies the main process's memory map; use "
        "fewer workers, or start them before large data is loaded."
    )


def _against_sending(around: Circumstances) -> str:
    piped = around.pipe_bytes > 0.5 * around.batch_bytes and around.pipe_bytes > 65_536
    if piped or not around.batch_bytes > 0:
        return (
            "Batches go through a pipe as pickled Python objects or arrays: return torch tensors "
            "(they travel in shared memory), fewer and larger ones, of a smaller dtype."
        )
    return (
        "Make batches smaller (uint8 instead of float32, convert after loading; crop or reduce "
        "before collate); batches of many small tensors cost a descriptor each."
    )


def _against_slow_samples(evidence: dict[str, float], around: Circumstances) -> str:
    where = around.paths.get(int(evidence.get("slowest_sample", -1)))
    text = f"Look at {where}. " if where else "Look at these samples. "
    text += "Reduce or re-encode them ahead of time"
    if around.workers > 1 and around.in_order:
        text += (
            "; in-order batches wait behind them: in_order=False (torch >= 2.6) or a larger "
            "prefetch_factor hides them"
        )
    return text + "."
