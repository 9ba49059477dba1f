"""The texts of a search's notes and reasons."""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
from collections.abc import Sequence

from lotus.common.text.formatting import amount, duration, plural, share, size
from lotus.settings.space import Setting
from lotus.tune.program.program import Watched
from lotus.tune.search.default_space import step_of
from lotus.tune.search.trials.trial_rates import Checked, Speedup
from lotus.tune.search.trials.trial_runner import Read, RuledOut, TrialRow

_SLOWED = 2.0  # slowdown of a step beside workers from which it is reported
_THREADED = 1.3  # cores kept busy by a step from which it counts as multi-threaded
_APART = 0.15  # relative difference of trials and the program itself from which it is reported
_MUCH_GROWN = 32 << 20  # growth of the main process in bytes from which it is reported
_MUCH_READ = 1 << 20  # bytes read per batch from which storage is reported
_TIMES_READ = 4.0  # how many times as much the first trial must read as later ones

BEYOND_EPOCH = (
    "the program ended in the check, which repeats batches when an epoch is over. A schedule with "
    "a fixed number of steps, such as OneCycleLR, raises an error then: your code is right. Use "
    "--check 0s to leave out the check"
)
FEW_LEFT = "the epoch had too few batches left"
STREAM = "the setting of a stream's loader cannot change in the midst of an epoch"
NOTHING_KNOWN = (
    "the memory of its batches and workers is not known, as no trial of a smaller setting worked"
)
OWN_NOT_MEASURED = "the program's own setting could not be measured, so the gain is not known"
FOR_FEWER_THREADS = (
    "with fewer threads of torch the step would leave cores to these workers: tried for the "
    "comparison in the program's own steps"
)
INTERRUPTED = "interrupted: this is the best setting measured so far"


def setting(value: Setting) -> str:
    """Describe a setting: "4 workers x prefetch 2, pinned, persistent"."""
    return value.words()


def instead(best: Setting, own: Setting, threads: int) -> str:
    """Describe a change: "2 workers x prefetch 2 and 1 torch thread instead of ...".

    `threads` is the program's own number of torch threads, named where that changes, too.
    """
    if best.torch_threads is None:
        return f"{setting(best)} instead of {setting(own)}"
    now, before = (
        f"{setting(dataclasses.replace(each, torch_threads=None))} and "
        f"{plural(count, 'torch thread')}"
        for each, count in ((best, best.torch_threads), (own, threads))
    )
    return f"{now} instead of {before}"


def trials_had(threads: int) -> str:
    """Say that trials do not show what other numbers of torch threads gain."""
    return (
        f"these rates were measured with {plural(threads, 'torch thread')}, as the program has; "
        "only its own steps show what fewer threads gain"
    )


def only_own(own: Setting, seconds: float) -> str:
    """Say that the time sufficed for one trial only."""
    return (
        f"not known: in {duration(seconds * 1e9)} there was time for the program's own setting "
        f"only, {setting(own)}"
    )


def longer_option(budget_s: float, check_s: float | None = None, times: int = 2) -> str:
    """Return the option that gives more time; `check_s`: of --check, if given."""
    if check_s is None:
        return f"--budget {times * budget_s:g}s"
    return f"--check {times * check_s:g}s"


def more_time(budget_s: float) -> str:
    """Name what to do if the time sufficed for one trial only."""
    option = longer_option(budget_s, times=3)
    return f"more time: lotus tune {option}; or {WHILE_QUIET}, which makes trials shorter"


def speedup(shown: Speedup) -> str:
    """Describe a speed-up: "1.52 times as fast (95 % interval 1.48 to 1.56, 4 pairs of blocks)"."""
    if shown.pairs == 1:
        return f"{shown.mean:.3g} times as fast (one pair of blocks: no interval)"
    by = f"{plural(shown.pairs, 'pair')} of blocks" if shown.pairs else "from separate trials"
    if shown.tells_nothing:
        what = by if shown.pairs else "trials"
        return f"{shown.mean:.3g} times as fast ({what} differ too much to tell)"
    return (
        f"{shown.mean:.3g} times as fast (95 % interval {shown.low:.3g} to {shown.high:.3g}, {by})"
    )


def checked(comparison: Checked, best: Setting) -> str:
    """Describe a comparison in the program's own steps, with its interval, rounds and batches."""
    shown, fewer = comparison.speedup, ""
    if comparison.setting.prefetch_factor != best.normal().prefetch_factor:
        fewer = f", with prefetch {comparison.setting.prefetch_factor}, as the epoch is short"
    text = f"{shown.mean:.3g} times as fast in its own steps"
    of = f"{plural(comparison.batches, 'batch')} against {comparison.own_batches}{fewer}"
    if shown.pairs < 2:
        return f"{text} (one round, which is too few to be sure: {of})"
    if shown.tells_nothing:
        return f"{text} ({shown.pairs} rounds differ too much to tell; {of})"
    return (
        f"{text} (95 % interval {shown.low:.3g} to {shown.high:.3g}; in {shown.pairs} rounds, {of})"
    )


def undecided(comparison: Checked, own: Setting, threads: int) -> str:
    """Say that the check ended before it showed which of two settings is faster."""
    tried = comparison.setting
    several = comparison.speedup.pairs != 1
    return (
        f"not decided: {instead(tried, own, threads)} looked {checked(comparison, tried)}"
        + (", which does not show a gain" if several else "")
        + f". Keep {setting(own)}"
    )


def left_open(tried: Setting, own: Setting) -> str:
    """Say that trials did not show whether a setting is faster, and no check was made."""
    return (
        f"not decided: {setting(tried)} looked faster than {setting(own)} in trials, but was not "
        f"shown to be. Keep {setting(own)}"
    )


def longer_check(budget_s: float, check_s: float | None) -> str:
    """Name what to do if nothing was decided; `check_s` are the seconds of --check, if given."""
    return f"more time: lotus tune {longer_option(budget_s, check_s)}; or {WHILE_QUIET}"


WHILE_QUIET = "tune while the machine does nothing else"
QUIETER = f"{WHILE_QUIET}: what was measured differs so much that more time would hardly help"


def not_checked(why: str) -> str:
    """Say why the result was not checked with the program's own steps."""
    return (
        f"not checked with the program's own steps ({why}): the gain is that of trials, which do "
        "not run the step"
    )


def nothing_shown(tried: Setting, why: str) -> str:
    """Say that a setting worked in trials, but no comparison shows a gain."""
    return (
        f"{setting(tried)} worked in trials, but is not recommended: it could not be compared with "
        f"the program's own setting, neither in trials nor in the program's own steps ({why})"
    )


def only_apart(tried: Setting, shown: Speedup) -> str:
    """Return a note that trials promised a gain, but hardly had both settings in turn."""
    return (
        f"{setting(tried)} was {speedup(shown)}, which shows no gain: the machine may have been "
        "busier in the one trial than in the other"
    )


def refuted(tried: Setting, trials: Speedup | None, comparison: Checked) -> str:
    """Return a note that trials promised what the program's own steps did not show."""
    if trials is None:
        return f"{setting(tried)} worked in trials, but was only {checked(comparison, tried)}"
    return (
        f"{setting(tried)} was {trials.mean:.3g} times as fast in trials, which emulate the "
        f"program's step, but only {checked(comparison, tried)}"
    )


def not_shown(tried: Setting, trials: Speedup, comparison: Checked, in_verdict: bool) -> str:
    """Return a note that the program's steps neither confirm nor refute what trials promised.

    `in_verdict`: the verdict has their figures and what would decide.
    """
    promised = (
        f"{setting(tried)} was {trials.mean:.3g} times as fast in trials, but the program's own "
        "steps do not confirm that"
    )
    if in_verdict:
        return f"{promised}, so it is not recommended"
    would_decide = (
        "tuning while the machine does nothing else would decide"
        if comparison.speedup.tells_nothing
        else "a longer epoch or a longer --check would decide"
    )
    return f"{promised} ({checked(comparison, tried)}), so it is not recommended; {would_decide}"


def cut_short(reason: str) -> str:
    """Return a note that the search ended before it was done."""
    return f"the budget ended before the search did; next would have been: {reason}"


def not_same_samples(own: int, tried: int, why: str) -> str:
    """Return why the number of workers of an iterable data set stays unchanged."""
    return (
        f"num_workers stays {own}: the data set is iterable, and an epoch was not shown to have "
        f"the same samples with {tried} workers: {why}"
    )


def failure(rows: Sequence[TrialRow], over: bool) -> str:
    """Return why not even the program's own setting could be measured."""
    whys = [row.measurement.failed for row in rows if row.measurement.failed]
    more = "; the budget is spent: --budget allows more" if over else ""
    return "no trial of the loader worked, not even of its own setting" + (
        f": {whys[0]}{more}" if whys else more
    )


_STEPS = (
    ("/dev/shm", "a larger /dev/shm, as of `docker run --shm-size 8g` (`df -h /dev/shm` shows it)"),
    ("ulimit -n", "`ulimit -n 4096` or more in the shell, before the command"),
    ("descriptor", "`ulimit -n 4096` or more in the shell, before the command"),
    ("of memory", "more memory for the job or its container, or a smaller batch_size"),
    ("could not be compared within the budget", "a larger --budget"),
    ("took longer than", "a larger --budget"),
    ("the budget", "a larger --budget"),
)


def next_step(why: str) -> str:
    """Return what may help if a setting cannot be tried; "" if that is not known."""
    return next((step for words, step in _STEPS if words in why), "")


_FIGURES = re.compile(r"\d[\d.,]*(?: ?[kKMGT]?i?B\b)?")
_PLURALS = re.compile(r"\b(worker|batch|tensor|descriptor)(?:e?s)?\b")


def kind_of(why: str) -> str:
    """Return a key that is equal for reasons that differ only in their figures."""
    return _PLURALS.sub(r"\1", _FIGURES.sub("", why)).replace(
        ", of which a tenth is kept in reserve", ""
    )


def grouped(ruled_out: Sequence[RuledOut]) -> list[tuple[list[Setting], str]]:
    """Group settings that were never tried by reason, the most frequent reason first.

    Each reason has the figures of its smallest setting.
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
    """Describe a group of settings: "8 workers x prefetch 2 and 43 more: ..."."""
    more = f" and {len(those) - 1} more" if len(those) > 1 else ""
    return f"{setting(min(those))}{more}: {why}"


def nothing_worked(rows: Sequence[TrialRow], over: bool) -> str:
    """Return a note that no trial worked, with the last reason."""
    whys = [row.measurement.failed for row in rows if row.measurement.failed]
    text = "no trial worked" + (f": {whys[-1]}" if whys else "")
    return text + ("; the budget is spent: a larger one may help" if over else "")


def not_confirmed(candidate: Setting, why: str) -> str:
    """Return a note that a setting could not be compared with the own one."""
    return f"{setting(candidate)} could not be compared further with the own setting: {why}"


def few_pairs(pairs: int) -> str:
    """Return a note that the comparison ended early."""
    what = f"after {plural(pairs, 'pair')} of blocks" if pairs else "before it was confirmed"
    return f"the comparison with the own setting ended {what}: a larger budget may help"


def no_benefit(candidate: Setting, shown: Speedup) -> str:
    """Return a note that a setting was not shown to be faster, or not by enough."""
    if shown.is_significant:
        return f"{setting(candidate)} gains too little to be recommended: {speedup(shown)}"
    return f"no benefit was shown for {setting(candidate)}: {speedup(shown)}"


def as_fast(cheaper: Setting, own: Setting, shown: Speedup) -> str:
    """Return a note that a setting with fewer workers was as fast in trials."""
    return (
        f"{setting(cheaper)} would do as well as {setting(own)} in trials, and take less memory: "
        f"{speedup(shown)}"
    )


def augmentations(best: Setting, own: Setting, iterable: bool) -> str:
    """Return a note that random numbers change with the number of workers; "": they do not."""
    if best.num_workers == own.num_workers:
        return ""
    return (
        f"random augmentations get other random numbers with {_workers(best)} than with "
        f"{_workers(own)}"
        + ("" if iterable else "; `lotus run --settings` keeps the order of the samples")
    )


def _workers(value: Setting) -> str:
    return _count_of(value.num_workers)


def page_cache(reads: Sequence[Read]) -> str:
    """Return a note if the first trial read from storage what was in the page cache later."""
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
        f"the first trial read {size(first.batch_bytes)} per batch from storage, later ones "
        f"{size(usual)}: they found the files in the page cache. So these rates are those of "
        "cached files; a program whose files do not fit in memory may need more workers"
    )


def first_epoch(later: float, first: float) -> str:
    """Return a note if starting workers costs much of their gain; "" if not."""
    if abs(first / later - 1) < _APART:
        return ""
    return (
        "this applies once the persistent workers run: the first epoch, with their start, is "
        f"{first:.3g} times as fast"
    )


def counted(epochs: Sequence[tuple[int, int, int]], chosen: Setting, batch_size: int | None) -> str:
    """Return a note on the counted length of an epoch, and its batches by number of workers."""
    if not epochs:
        return ""
    samples = epochs[0][1]
    known = {workers: batches for workers, _, batches in epochs}
    own, workers = epochs[0][0], chosen.num_workers
    text = f"an epoch was counted: {plural(samples, 'sample')}, which rates refer to"
    other = known.get(workers) or _batches_of(samples, max(workers, 1), batch_size)
    if other == known[own]:  # use the number of workers of the comparison
        workers, other = epochs[-1][0], epochs[-1][2]
    if other == known[own]:
        return text
    return (
        f"{text}. It has {plural(known[own], 'batch')} with {_count_of(own)} and "
        f"{amount(other)} with {_count_of(workers)}: workers divide the samples, and the last "
        "batch of each may be smaller. Whatever depends on the number of batches, such as a "
        "learning rate schedule, changes with the number of workers"
    )


def _batches_of(samples: int, workers: int, batch_size: int | None) -> int:
    """Return the number of batches if the samples are divided evenly among the workers."""
    if batch_size is None:
        return samples
    least, more = divmod(samples, workers)
    return (workers - more) * math.ceil(least / batch_size) + more * math.ceil(
        (least + 1) / batch_size
    )


def _count_of(workers: int) -> str:
    return plural(workers, "worker") if workers else "no workers"


def grown(watched: Watched) -> str:
    """Return a note on memory that workers may need beyond what trials showed; "" if little."""
    if watched.grown_bytes < _MUCH_GROWN:
        return ""
    return (
        f"the program's own process grew by {size(watched.grown_bytes)} while it fetched: this is "
        "counted as memory of each worker, because each worker of a new run would allocate it; in "
        "trials they shared it"
    )


def watched_rate(watched: Watched) -> float | None:
    """Return samples per second of the program itself; None if too few batches were watched.

    It leaves out the batches prefetched at the start and uses whole bursts of the workers.
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
    """Return a note if a multi-threaded step takes much longer beside the workers than alone."""
    alone_s, busy = step_of(watched)
    fewer = max(int(cores) - value.num_workers, 1)
    if watched.threads <= fewer or busy < _THREADED or beside_s is None:
        return ""  # each thread has a core
    if beside_s < _SLOWED * alone_s:
        return ""
    return (
        f"a step takes {duration(beside_s * 1e9)} beside {plural(value.num_workers, 'worker')}, "
        f"{duration(alone_s * 1e9)} alone: its {watched.threads} threads wait for each other "
        "when a worker occupies the core of one. Try "
        f"torch.set_num_threads({fewer}) in the program, and tune again"
    )


def torch_threads(best: Setting, threads: int) -> str:
    """Other threads of torch change what a program computes, in the last bits; "" if they stay."""
    if best.torch_threads is None:
        return ""
    return (
        f"torch gets {plural(best.torch_threads, 'thread')} in the training process instead of "
        f"{threads}, which leaves cores to the loader. Sums of floats may differ in their last "
        "bits with another number of threads"
    )


def against_watched(watched: Watched, in_trials: float | None) -> str:
    """Return a note if the own setting's rate in trials differs from the program's own rate."""
    itself = watched_rate(watched)
    if itself is None or in_trials is None or abs(in_trials / itself - 1) <= _APART:
        return ""
    more = in_trials / itself - 1
    word = "more" if more > 0 else "less"
    return (
        f"with its own setting the program ran at {amount(itself)} samples/s while it was watched, "
        f"but at {amount(in_trials)} in trials, {share(abs(more))} {word}. The cause may be other "
        "work on the machine, parts of the program that trials leave out, or its first batches"
    )
