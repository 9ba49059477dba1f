"""Threads beyond the cores: those of the workers, and those of the training step."""

from collections.abc import Iterable

from lotus.analysis.batches.core_use import Threads
from lotus.analysis.verdict.causes import cause_row
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence
from lotus.analysis.verdict.causes.circumstances import Circumstances
from lotus.analysis.verdict.causes.ledger import Ledger
from lotus.common.formatting import share

_FACTS = {
    "run_delay_share": "Share of the time that its thread was ready to run without a core, 0 to 1.",
    "helper_share": "Share of the process's CPU time that its other threads used, 0 to 1.",
    "cores_used": "Cores that one such process used on average.",
}


def _lost_share(threads: Threads) -> float:
    """Part of the time that is owed to missing cores; an estimate.

    What the thread itself was kept from its core is measured. Its helpers are kept as long, and it
    is blocked until they are done: as far as it was blocked for as much.
    """
    return threads.delay_share + min(threads.blocked_share, threads.delay_share)


def _evidence(threads: Threads) -> dict[str, float]:
    return {
        "run_delay_share": threads.delay_share,
        "helper_share": threads.helper_share,
        "cores_used": threads.cores,
    }


def _of_workers(ledger: Ledger) -> Iterable[Charge]:
    threads, of_main = ledger.use.fetch, ledger.scope.num_workers == 0
    if threads.crowded and not (of_main and ledger.looks_of_main.tell):
        ns = ledger.take(ledger.making * min(_lost_share(threads), 1.0))
        yield Charge(WORKER_THREADS.kind, WORKER_THREADS.title, ns, _evidence(threads))


def _workers_title(charge: Charge, around: Circumstances) -> str:
    if around.workers == 0:
        return "making batches in several threads, without the cores for them"
    return "several threads in each worker, without the cores for them"


def _reason(evidence: Evidence) -> str:
    return (
        f"It was ready to run without a core for {share(evidence['run_delay_share'])} of its time, "
        f"while {share(evidence['helper_share'])} of the CPU time went to helper threads (OpenMP, "
        "OpenCV), for which it waits each time."
    )


def _against_workers(charge: Charge, around: Circumstances) -> str:
    if around.workers == 0:
        return _with_fewer(around.use.fetch.affordable)
    return (
        "Let each worker compute in one thread: torch.set_num_threads(1), cv2.setNumThreads(0) or "
        "OMP_NUM_THREADS=1 where worker_init_fn or the data set sets more."
    )


def _with_fewer(count: int) -> str:
    return (
        f"Compute in fewer threads: start the program with OMP_NUM_THREADS={count} in its "
        f"environment, or call torch.set_num_threads({count}). To measure the gain, trace it so "
        "and compare the two runs with lotus compare."
    )


WORKER_THREADS = CauseRow(
    kind="worker-threads",
    title="threads beyond the cores, in making batches",
    full_title=_workers_title,
    charges=_of_workers,
    facts=_FACTS,
    reason=_reason,
    advice=_against_workers,
)


def _of_step(ledger: Ledger) -> Iterable[Charge]:
    threads = ledger.use.step
    if threads.crowded and not ledger.looks_of_main.tell:  # the other threads are the program's own
        lost = ledger.step_left_ns * min(_lost_share(threads), 1.0)
        ledger.step_left_ns -= lost
        yield Charge(STEP_THREADS.kind, STEP_THREADS.title, lost, _evidence(threads))


def _step_title(charge: Charge, around: Circumstances) -> str:
    rivals = f"the {around.workers} workers and " if around.workers else ""
    return f"the training step's threads: {rivals}they need more cores than there are"


def _against_step(charge: Charge, around: Circumstances) -> str:
    return _with_fewer(around.use.step.affordable)


STEP_THREADS = CauseRow(
    kind="step-threads",
    title="the training step's threads, beyond the cores",
    full_title=_step_title,
    part=cause_row.STEP,
    charges=_of_step,
    facts=_FACTS,
    reason=_reason,
    advice=_against_step,
)
