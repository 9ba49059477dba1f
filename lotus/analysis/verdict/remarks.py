"""Remarks beside the causes: a busy machine, and flaws that cost no time yet."""

import math
from collections.abc import Iterator, Sequence

from lotus.analysis.common.columns import ratio
from lotus.analysis.machine.core_use import LEAST_DELAY, CoreUse
from lotus.analysis.machine.machine_readings import ROOM, SWAPPED
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.resources import Resources
from lotus.analysis.verdict.causes.cores.crowded_workers import WORKER_THREADS
from lotus.analysis.verdict.causes.cores.few_cores import AFFINITY
from lotus.analysis.verdict.causes.cores.step_threads import STEP_THREADS
from lotus.analysis.verdict.causes.making.storage import KEEP_LESS, SWAPPED_OUT
from lotus.analysis.verdict.causes.repetition import how_often
from lotus.analysis.verdict.causes.transport import SENDING, against_values, against_views
from lotus.common.text.formatting import plural, share, size

# Causes that say themselves how many cores there are.
_TELL_CORES = {AFFINITY.kind, STEP_THREADS.kind, WORKER_THREADS.kind}
_MUCH_KEPT = 0.25  # cores: processes beside the workers take as much from them
_STALLED = 0.05  # of the loop in which some thread waited for memory


def doubt(use: CoreUse) -> str:
    """Return a sentence on other programs that had the cores; "" if they delayed little."""
    busy = use.much_taken or (math.isnan(use.others_share) and use.rivals)
    kept = (("making of batches", use.fetch), ("training step", use.step))
    slowed = [(what, threads) for what, threads in kept if threads.delay_share >= LEAST_DELAY]
    if not busy or not slowed:
        return ""
    others = f"other programs used {use.programs_share:.0%} of its cores, "
    others += f"the hypervisor withheld {use.stolen_share:.0%}, " if use.much_stolen else ""
    others = f"{others}and " if math.isfinite(use.others_share) else ""
    (what, threads), *more = slowed
    waited = f"the {what} waited for a core for {threads.delay_share:.0%} of its time"
    waited += "".join(f", the {what} for {threads.delay_share:.0%}" for what, threads in more)
    again = "Measure again when it is not"
    if use.step.crowded:
        waited += ", and the threads of a step waited for each other"
        again += "; until then, one of them may be faster (OMP_NUM_THREADS=1)"
    return f"The machine was busy: {others}{waited}. {again}."


def flaws(circumstances: Circumstances, loop_ns: float, causes: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each flaw, whatever it costs: of processes, data, limits, memory."""
    yield from _stolen(circumstances.use)
    yield from _kept_cores(circumstances.use)
    if circumstances.shares.whole_passes:
        workers = plural(circumstances.workers, "worker")
        yield f"Each of the {workers} passes over all of the data, by how many samples they made."
    elif circumstances.times_read > 1:
        yield f"Each sample comes {how_often(circumstances.times_read, circumstances.workers)}."
    yield from _stepless(circumstances)
    yield from _views(circumstances, causes)
    yield from _short_memory(circumstances.resources, loop_ns, causes)
    yield from _few_cores(circumstances, causes)


def _stepless(circumstances: Circumstances) -> Iterator[str]:
    found = circumstances.stepless
    if found.count:
        yield (
            f"{found.count} of {plural(found.passes, 'pass')} over the loader, with "
            f"{share(found.share)} of its time, took batches without a training step, as to count "
            "them or to compute a statistic of the data: do that once, or without the loader."
        )


def _views(circumstances: Circumstances, causes: Sequence[str]) -> Iterator[str]:
    if causes[:1] != [SENDING.kind]:
        if circumstances.views[0] > 0:
            yield against_views(circumstances)
        if values := against_values(circumstances):
            yield values


def _stolen(use: CoreUse) -> Iterator[str]:
    if use.much_stolen:
        programs = f" ({use.programs_share:.0%})" if math.isfinite(use.programs_share) else ""
        yield (
            f"The hypervisor withheld {use.stolen_share:.0%} of the cores' time from this virtual "
            "machine (steal: other virtual machines had it, or this one's CPU limit was reached), "
            f"beside what other programs used{programs}. Work and steps take longer for it."
        )


def _kept_cores(use: CoreUse) -> Iterator[str]:
    if use.kept_cores >= _MUCH_KEPT and use.fetch.delay_share >= LEAST_DELAY:
        yield (
            f"Other processes that the program started, besides its workers, used "
            f"{use.kept_cores:.1f} cores, and the making of batches waited for a core for "
            f"{use.fetch.delay_share:.0%} of its time: run fewer of them, or run them elsewhere or "
            "at another time."
        )


def _few_cores(circumstances: Circumstances, causes: Sequence[str]) -> Iterator[str]:
    """Yield that the program waits for cores but may not use all, unless a cause says so."""
    waits = (circumstances.use.fetch.delay_share, circumstances.use.step.delay_share)
    waited = any(share >= LEAST_DELAY for share in waits)  # NaN: not measured
    if waited and circumstances.few_cores > 0 and _TELL_CORES.isdisjoint(causes):
        yield (
            f"The program may use only {circumstances.few_cores:.3g} of the machine's "
            f"{plural(circumstances.machine_cores, 'core')} (os.sched_setaffinity, taskset, or the "
            "CPU limit of a container or job), and waits for these."
        )


def _short_memory(used: Resources, loop_ns: float, causes: Sequence[str]) -> Iterator[str]:
    """Yield that memory was full while the loader was iterated."""
    stalled = ratio(used.memory_stall_ns, loop_ns)
    if used.memory_left >= ROOM:
        return
    if used.swapped_bytes < SWAPPED and not stalled >= _STALLED:
        return
    parts = []
    if used.swapped_bytes >= SWAPPED:
        parts.append(f"{size(used.swapped_bytes)} were swapped in and out")
    if stalled >= _STALLED:
        parts.append(f"threads waited for memory for {min(stalled, 1.0):.0%} of the time")
    text = f"Memory was full: {', '.join(parts)}."
    yield text if causes[:1] == [SWAPPED_OUT.kind] else f"{text} {KEEP_LESS}"
