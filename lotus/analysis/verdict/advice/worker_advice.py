"""Advice on the number of workers."""

import math
from dataclasses import dataclass
from typing import Literal

from lotus.analysis.replay.gain_prediction import UNKNOWN
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.loop_time.batch_making import SHARED
from lotus.common.text.formatting import plural

HEADROOM = 1.1  # over the workers that keep up on average
# What more workers than this do to start-up, storage and network has not been tried.
_MOST_FOR_WAITING, _MOST_A_CORE = 16, 4
_LEAST_GAIN = 1.05  # times as fast: less is no reason to start processes
# Workers that lose no more than the first may gain the second, or more, where it is not known how
# much of what the loop's helper threads use is work: then it is to be measured.
_LITTLE_LOSS, _MUCH_AT_BEST = 0.9, 1.5
_KEPT = "persistent_workers=True"
_TRY_FIRST = "; measure it, as workers may cost more here than they save"
_AS_GOOD = 0.98  # of the best lower end: fewer workers are preferred
# Each worker of an iterable data set reads all of it, unless the data set asks which one it is.
_DIVIDED = "the data set divides its data among them (torch.utils.data.get_worker_info)"
_LITTLE_STEP = 10.0  # times as long as a step: making a batch gains little from running beside it


@dataclass(frozen=True)
class WorkerAdvice:
    """A sentence on the number of workers, and that number; None: the sentence names none.

    `kept`: they are kept from one epoch to the next. `advised`: more of them are worth a try now.
    `change`: what the sentence says about their number; "": neither that more help nor that they
    do not.
    """

    text: str
    workers: int | None = None
    kept: bool = False
    advised: bool = True
    change: Literal["more", "not more", ""] = "more"


def worker_advice(circumstances: Circumstances, waits: bool = False) -> WorkerAdvice:
    """Advise a number of workers; `waits`: the cause needs no core."""
    if circumstances.workers == 0:
        return _first_workers(circumstances, waits)
    reason = _futile(circumstances, waits)
    if reason:
        return WorkerAdvice(reason, advised=False, change="not more")
    # Of one, it is not known whether it does.
    if circumstances.iterable and circumstances.workers == 1:
        return WorkerAdvice(f"Raise num_workers from 1 only where {_DIVIDED}.", advised=False)
    cores = _cores(circumstances, waits)
    wanted = _wanted(circumstances)
    if not wanted > circumstances.workers:
        limit = "" if math.isinf(cores) else f" (there are {int(cores)} cores)"
        return WorkerAdvice(f"Raise num_workers from {circumstances.workers}{limit}.")
    most = min(
        cores,
        circumstances.resources.affordable,
        _most_for_waiting(circumstances) if waits else math.inf,
    )
    count = _worth_their_start(
        circumstances, int(min(math.ceil(wanted), max(most, circumstances.workers + 1)))
    )
    if count == circumstances.workers:
        short = "Epochs are so short that starting more workers takes longer than it saves."
        return WorkerAdvice(short, advised=False, change="not more")
    short = f"Raise num_workers from {circumstances.workers} to"
    if count >= wanted:
        return WorkerAdvice(f"{short} about {count}.", count)
    why = "limited by the cores; " if count == cores else ""
    why = (
        "limited by memory; "
        if count < cores and count >= circumstances.resources.affordable - 1
        else why
    )
    if wanted < 1000:
        why += f"keeping up would take about {math.ceil(wanted)}"
    else:
        why += "the training step takes next to no time"
    return WorkerAdvice(f"{short} {count} ({why}).", count)


def _worth_their_start(circumstances: Circumstances, count: int) -> int:
    """Return `count`, or fewer if starting so many workers costs more than they save."""
    while circumstances.replayed is not None and count > circumstances.workers:
        prediction = circumstances.replayed.with_workers(count)
        if not prediction.is_possible or prediction.gain >= 1.0:
            break
        count = (count + circumstances.workers) // 2
    return count


def _wanted(circumstances: Circumstances) -> float:
    """Return how many workers keep up with the training step; NaN: not known."""
    return (
        min(circumstances.needed * HEADROOM, circumstances.batches)
        if circumstances.needed > 0
        else math.nan
    )


def _cores(circumstances: Circumstances, waits: bool) -> float:
    return (
        math.inf if waits or math.isnan(circumstances.cores) else max(int(circumstances.cores), 1)
    )


def _most_for_waiting(circumstances: Circumstances) -> float:
    cores = circumstances.cores if math.isfinite(circumstances.cores) else 0.0
    return max(_MOST_FOR_WAITING, _MOST_A_CORE * cores, 2.0 * circumstances.workers)


def _first_workers(circumstances: Circumstances, waits: bool) -> WorkerAdvice:
    """Return advice for a loop that makes its batches itself."""
    cores = _cores(circumstances, waits)
    wanted = _wanted(circumstances)
    most = min(cores, circumstances.resources.affordable, _most_for_waiting(circumstances))
    most = 1 if circumstances.iterable else most
    known = wanted < 1000 or math.isfinite(cores)
    count = max(1, int(min(math.ceil(wanted), most) if wanted < 1000 else most)) if known else None
    if count and not waits:
        count = _surest(circumstances, count)
    kept = count is not None and _worth_keeping(circumstances, count)
    shown = f"num_workers={count}" if count else "num_workers"
    shown += f" and {_KEPT}" if kept else ""
    why = "to overlap this with the step"
    if circumstances.needed > _LITTLE_STEP:
        why = "to make batches in parallel" if count != 1 else "to make them during the step"
    text = "The main process makes every batch itself"
    gain = (
        circumstances.replayed.with_workers(count, kept)
        if circumstances.replayed and count
        else UNKNOWN
    )
    if gain.is_possible and gain.gain < _LEAST_GAIN:
        if circumstances.use.much_taken:
            taken = "other programs leave no core for workers"
            text = f"{text}, and {taken}: when they are not running, try {shown}."
            return WorkerAdvice(text, advised=False, change="")
        if circumstances.iterable and wanted > 1:
            text = f"{text}: set num_workers to 2 or more, but only where {_DIVIDED}."
            return WorkerAdvice(text, advised=False)
        if gain.gain < _LITTLE_LOSS or gain.high < _MUCH_AT_BEST:
            text = f"{text}, and workers would cost about what they save, or more."
            return WorkerAdvice(text, advised=False, change="not more")
    # Beside rivals, a worker may take from them what it gains, or not.
    if (
        circumstances.replayed
        and not waits
        and not (gain.is_shown and not circumstances.use.rivals)
    ):
        text = f"{text}, and workers are not shown to help: `lotus tune` measures it."
        return WorkerAdvice(text, advised=False, change="")
    doubt = "" if gain.is_shown or not gain.is_possible else _TRY_FIRST
    more = (
        f" More of them help only where {_DIVIDED}."
        if circumstances.iterable and wanted > 1
        else ""
    )
    return WorkerAdvice(f"{text}: set {shown} {why}{doubt}.{more}", count, kept)


def _surest(circumstances: Circumstances, most: int) -> int:
    """Return the number of workers, up to `most`, that gains most at worst; `most`: not known."""
    if circumstances.replayed is None:
        return most
    counts = sorted({most, *(2**power for power in range(most.bit_length()))})
    lows = {count: circumstances.replayed.with_workers(count).low for count in counts}
    best = max((low for low in lows.values() if math.isfinite(low)), default=math.nan)
    return next((count for count in counts if lows[count] >= _AS_GOOD * best), most)


def _worth_keeping(circumstances: Circumstances, workers: int) -> bool:
    """Return True if starting them anew would cost a noticeable part of each epoch."""
    if (
        circumstances.replayed is None
        or circumstances.epochs < 2
        or circumstances.times_created > 1
    ):
        return False
    kept, new = (circumstances.replayed.with_workers(workers, each) for each in (True, False))
    return new.is_possible and kept.low >= _LEAST_GAIN * new.low


def _futile(circumstances: Circumstances, waits: bool) -> str:
    """Return why more workers would not help; "" if they may, or if there is none yet."""
    workers, cores = circumstances.workers, _cores(circumstances, waits)
    if workers == 0:
        return ""
    if circumstances.shares.empty:
        return (
            f"{circumstances.shares.empty} of the {workers} workers had no data: split it into at "
            "least as many shards as there are workers. More workers will not help."
        )
    if circumstances.shares.lost:
        return (
            f"One of the {workers} workers made {circumstances.shares.largest:.0%} of an epoch's "
            "samples: divide the data evenly first."
        )
    if workers >= cores:
        who = "worker already has" if workers == 1 else f"{workers} workers already share"
        return (
            f"The {who} {plural(circumstances.cores, 'core')}: more workers will not help without "
            "more cores."
        )
    if not waits and circumstances.use.fetch.delay_share >= SHARED:
        who = "worker was" if workers == 1 else f"{workers} workers were"
        return (
            f"The {who} ready to run but had no core for "
            f"{circumstances.use.fetch.delay_share:.0%} of the time: more will not help."
        )
    if not waits and circumstances.use.full:
        return (
            f"The program keeps {circumstances.use.own_share:.0%} of its cores busy: more workers "
            "will not help without more cores."
        )
    return ""
