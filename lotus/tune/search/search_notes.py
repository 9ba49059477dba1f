"""What a search says besides its figures, in words."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence

from lotus.common.formatting import amount, duration, plural, share, size
from lotus.settings.space import TORCH_PREFETCH, Setting
from lotus.tune.program.program import Watched
from lotus.tune.search.default_space import step_of
from lotus.tune.search.trial_rates import Checked, Speedup
from lotus.tune.search.trial_runner import Read, RuledOut, TrialRow

_SLOWED = 2.0  # times as long as alone, from there on a step is worth a word
_THREADED = 1.3  # cores that a step keeps busy, from there on it has threads that wait
_APART = 0.15  # how far trials and the program itself may lie apart before it is said
_MUCH_GROWN = 32 << 20  # bytes of the program's own process, while it fetched
_MUCH_READ = 1 << 20  # bytes a batch, from there on storage is worth a word
_TIMES_READ = 4.0  # how many times as much the first trial reads as those from the page cache

FEW_LEFT = "the epoch had too few batches left"
NOTHING_KNOWN = (
    "what its batches and workers take is not known, as no trial of a smaller setting worked"
)
OWN_NOT_MEASURED = "the program's own setting could not be measured: what is gained is not known"
INTERRUPTED = "interrupted: this is the best of what was measured until then"


def setting(value: Setting) -> str:
    """As "4 workers x prefetch 2, pinned, persistent"."""
    value = value.normal()
    text = plural(value.num_workers, "worker") if value.num_workers else "no workers"
    if value.num_workers:
        text += f" x prefetch {value.prefetch_factor or TORCH_PREFETCH}"
    for is_so, word in ((value.pin_memory, "pinned"), (value.persistent_workers, "persistent")):
        text += f", {word}" if is_so else ""
    if value.start_method is not None:
        text += f", {value.start_method}"
    if value.in_order is False:
        text += ", not in order"
    if value.threads is not None:
        text += f", {plural(value.threads, 'thread')} each"
    return text


def speedup(shown: Speedup) -> str:
    """As "1.52 times as fast (95 % interval 1.48 to 1.56, 4 pairs of blocks)"."""
    if shown.pairs == 1:
        return f"{shown.mean:.3g} times as fast (one pair of blocks: no interval)"
    by = f"{plural(shown.pairs, 'pair')} of blocks" if shown.pairs else "from trials apart"
    return (
        f"{shown.mean:.3g} times as fast (95 % interval {shown.low:.3g} to {shown.high:.3g}, {by})"
    )


def checked(comparison: Checked, best: Setting) -> str:
    """As "1.3 times as fast in its own steps (95 % interval 1.2 to 1.4, 40 batches against 22)"."""
    shown, fewer = comparison.speedup, ""
    if comparison.setting.prefetch_factor != best.normal().prefetch_factor:
        fewer = f", with prefetch {comparison.setting.prefetch_factor}, as the epoch is short"
    return (
        f"{shown.mean:.3g} times as fast in its own steps (95 % interval {shown.low:.3g} to "
        f"{shown.high:.3g}, {plural(comparison.batches, 'batch')} against "
        f"{comparison.own_batches}{fewer})"
    )


def not_checked(why: str) -> str:
    """Why the result was not held against the program's own steps."""
    return (
        f"not held against the program's own steps ({why}): what is gained is what trials say, "
        "which do not run the step"
    )


def nothing_shown(tried: Setting, why: str) -> str:
    """A setting worked in trials, and neither they nor the program's steps show that it gains."""
    return (
        f"{setting(tried)} worked in trials, and is not recommended: it could be compared with the "
        f"program's own setting neither there nor in its own steps ({why})"
    )


def refuted(tried: Setting, trials: Speedup | None, comparison: Checked) -> str:
    """Trials promised what the program's own steps did not show."""
    if trials is None:
        return f"{setting(tried)} worked in trials, but it was {checked(comparison, tried)}"
    return (
        f"{setting(tried)} was {trials.mean:.3g} times as fast in trials, where something stands "
        f"in for the program's step, but {checked(comparison, tried)}"
    )


def not_shown(tried: Setting, trials: Speedup, comparison: Checked) -> str:
    """The program's own steps neither showed what trials promised nor contradict it."""
    return (
        f"{setting(tried)} was {trials.mean:.3g} times as fast in trials, but that is not shown in "
        f"the program's own steps ({checked(comparison, tried)}), so it is not recommended; a "
        "longer epoch, or more --check, would tell"
    )


def cut_short(reason: str) -> str:
    """The search ended before it was done."""
    return f"the budget ended before the search did; next would have been: {reason}"


def not_same_samples(own: int, tried: int, why: str) -> str:
    """Why workers of an iterable data set stay as they are."""
    return (
        f"num_workers stays {own}: the data set is iterable, and it was not shown that an epoch "
        f"has the same samples with {tried} workers: {why}"
    )


def failure(rows: Sequence[TrialRow], over: bool) -> str:
    """Why not even the program's own setting could be measured."""
    whys = [row.measurement.failed for row in rows if row.measurement.failed]
    more = "; the budget is over: --budget gives more" if over else ""
    return "no trial of the loader worked, not even of its own setting" + (
        f": {whys[0]}{more}" if whys else more
    )


_STEPS = (
    ("/dev/shm", "a larger /dev/shm, as of `docker run --shm-size 8g` (`df -h /dev/shm` shows it)"),
    ("ulimit -n", "`ulimit -n 4096` or more in the shell, before the command"),
    ("descriptor", "`ulimit -n 4096` or more in the shell, before the command"),
    ("of memory", "more memory for the job or its container, or a smaller batch_size"),
    ("it was not found out", "a larger --budget"),
    ("took longer than", "a larger --budget"),
    ("the budget", "a larger --budget"),
)


def next_step(why: str) -> str:
    """What may help where a setting cannot be tried; "" where nothing is known to."""
    return next((step for words, step in _STEPS if words in why), "")


_FIGURES = re.compile(r"\d[\d.,]*(?: ?[kKMGT]?i?B\b)?")
_PLURALS = re.compile(r"\b(worker|batch|tensor|descriptor)(?:e?s)?\b")


def kind_of(why: str) -> str:
    """The same for reasons that differ in their figures only."""
    return _PLURALS.sub(r"\1", _FIGURES.sub("", why)).replace(
        ", of which a tenth is left alone", ""
    )


def grouped(ruled_out: Sequence[RuledOut]) -> list[tuple[list[Setting], str]]:
    """Settings that were never tried and why, the reason of most of them first.

    The reason is given with the figures of its smallest setting.
    """
    by_kind: dict[str, list[RuledOut]] = {}
    for item in ruled_out:
        by_kind.setdefault(kind_of(item.why), []).append(item)
    groups = []
    for those in sorted(by_kind.values(), key=lambda group: -len(group)):
        smallest = min(those, key=lambda item: item.setting)
        groups.append(([item.setting for item in those], smallest.why))
    return groups


def never(those: Sequence[Setting], why: str) -> str:
    """As "8 workers x prefetch 2 and 43 more: ..."."""
    more = f" and {len(those) - 1} more" if len(those) > 1 else ""
    return f"{setting(min(those))}{more}: {why}"


def nothing_worked(rows: Sequence[TrialRow], over: bool) -> str:
    """No trial worked, with the last reason."""
    whys = [row.measurement.failed for row in rows if row.measurement.failed]
    text = "no trial worked" + (f": {whys[-1]}" if whys else "")
    return text + ("; the budget is over, a larger one may do" if over else "")


def not_confirmed(candidate: Setting, why: str) -> str:
    """A setting could not be compared with the own one."""
    return f"{setting(candidate)} could not be compared further with the own setting: {why}"


def few_pairs(pairs: int) -> str:
    """The comparison ended early."""
    what = f"after {plural(pairs, 'pair')} of blocks" if pairs else "before it was confirmed"
    return f"the comparison with the own setting ended {what}: a larger budget shows more"


def no_benefit(candidate: Setting, shown: Speedup) -> str:
    """A setting was not shown to be faster."""
    return f"no benefit was shown for {setting(candidate)}: {speedup(shown)}"


def augmentations(best: Setting, own: Setting, iterable: bool) -> str:
    """That other workers draw other random numbers; "" where they are as many."""
    if best.num_workers == own.num_workers:
        return ""
    return (
        f"random augmentations draw other numbers with {_workers(best)} than with {_workers(own)}"
        + ("" if iterable else "; `lotus run --settings` keeps the order of the samples")
    )


def _workers(value: Setting) -> str:
    return _count_of(value.num_workers)


def page_cache(reads: Sequence[Read]) -> str:
    """Whether the first trial read from storage what later ones found in the page cache."""
    if not reads:
        return ""
    first = reads[0]
    later = [read.batch_bytes for read in reads if read.setting != first.setting]
    if not later:
        return ""
    usual = statistics.median(later)
    if first.batch_bytes < _MUCH_READ or first.batch_bytes < _TIMES_READ * usual:
        return ""
    return (
        f"the first trial read {size(first.batch_bytes)} a batch from storage, later ones "
        f"{size(usual)}: they found the same files in the page cache, so these rates are those of "
        "cached files, and a program whose files do not fit in memory may want more workers"
    )


def first_epoch(later: float, first: float) -> str:
    """Where the start of workers takes much of what they gain."""
    if abs(first / later - 1) < _APART:
        return ""
    return (
        "that is of epochs whose workers are there already, as they stay: the first epoch, which "
        f"starts them, is {first:.3g} times as fast"
    )


def counted(epochs: Sequence[tuple[int, int, int]], chosen: Setting, batch_size: int | None) -> str:
    """How long the epoch is that was counted, and with how many batches by the workers."""
    if not epochs:
        return ""
    samples = epochs[0][1]
    known = {workers: batches for workers, _, batches in epochs}
    own, workers = epochs[0][0], chosen.num_workers
    text = f"an epoch was counted: {plural(samples, 'sample')}, which rates are of"
    other = known.get(workers) or _batches_of(samples, max(workers, 1), batch_size)
    if other == known[own]:  # then of the one that it was compared with
        workers, other = epochs[-1][0], epochs[-1][2]
    if other == known[own]:
        return text
    return (
        f"{text}. It has {plural(known[own], 'batch')} with {_count_of(own)} and "
        f"{amount(other)} with {_count_of(workers)}, which share the samples out and each end with "
        "a batch that may be smaller: what goes by the number of batches, as a schedule of the "
        "learning rate may, changes with the workers"
    )


def _batches_of(samples: int, workers: int, batch_size: int | None) -> int:
    """Where each worker has as many samples as the others, or one more."""
    if batch_size is None:
        return samples
    least, more = divmod(samples, workers)
    return (workers - more) * math.ceil(least / batch_size) + more * math.ceil(
        (least + 1) / batch_size
    )


def _count_of(workers: int) -> str:
    return plural(workers, "worker") if workers else "no workers"


def grown(watched: Watched) -> str:
    """What each worker may take that those of trials did not show."""
    if watched.grown_bytes < _MUCH_GROWN:
        return ""
    return (
        f"the program's own process grew by {size(watched.grown_bytes)} while it fetched: that is "
        "counted as memory of each worker, as each of a new run would fill it for itself; in the "
        "trials they shared it"
    )


def watched_rate(watched: Watched) -> float | None:
    """Samples a second of the program itself; None where too little of it was watched.

    Without what lay ready or came at once at its start, and in whole bursts of its workers.
    """
    count = min(len(watched.waits_s), len(watched.steps_s), len(watched.sizes))
    workers = max(watched.setting.num_workers, 1)
    ahead = workers * (watched.setting.normal().prefetch_factor or 0)
    for skipped in (ahead + 1, workers):
        kept = count - skipped
        kept -= kept % workers
        if kept >= max(workers, 4):
            start = count - kept
            seconds = sum(watched.waits_s[start:count]) + sum(watched.steps_s[start:count])
            return sum(watched.sizes[start:count]) / seconds if seconds > 0 else None
    return None


def slowed_step(watched: Watched, value: Setting, beside_s: float | None, cores: float) -> str:
    """Where a step on several threads takes much longer beside the workers than alone."""
    alone_s, busy = step_of(watched)
    fewer = max(int(cores) - value.num_workers, 1)
    if watched.threads <= fewer or busy < _THREADED or beside_s is None:
        return ""  # there is a core for each
    if beside_s < _SLOWED * alone_s:
        return ""
    return (
        f"a step takes {duration(beside_s * 1e9)} beside {plural(value.num_workers, 'worker')}, "
        f"{duration(alone_s * 1e9)} alone: its {watched.threads} threads wait for each other "
        "wherever a worker has the core of one. Try "
        f"torch.set_num_threads({fewer}) in the program, and tune again"
    )


def against_watched(watched: Watched, in_trials: float | None) -> str:
    """The own setting's rate in trials against what the program itself did, where they differ."""
    itself = watched_rate(watched)
    if itself is None or in_trials is None or abs(in_trials / itself - 1) <= _APART:
        return ""
    more = in_trials / itself - 1
    word = "more" if more > 0 else "less"
    return (
        f"with its own setting the program ran at {amount(itself)} samples/s while it was watched, "
        f"trials of it at {amount(in_trials)}, {share(abs(more))} {word}: "
        "other work on the machine, what trials leave out of the program, or its first batches"
    )
