"""Threads beyond the cores, in the making of batches."""

import math
from collections.abc import Iterable

import numpy as np

from lotus.analysis.common.columns import float_column, int_column, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.core_use import Threads, allowed_cores
from lotus.analysis.observations.looks import LOCK, looks_of_makers
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import set_threads
from lotus.analysis.verdict.causes.cause_row import OF_LOST_STEPS, CauseRow, Charge, Evidence
from lotus.analysis.verdict.causes.cores.crowding import (
    CROWD_FACTS,
    FEWER_IN_CODE,
    LIMIT_FACTS,
    OTHERS_SHARE,
    crowd_evidence,
    crowd_reason,
    fewer_cores,
    go_on,
    kept_by_others,
    limit_evidence,
    with_fewer_threads,
)
from lotus.analysis.verdict.loop_time.ledger import Ledger

# Of numpy and SciPy as pip installs them. It leaves the threads of torch, and so of the step.
_OF_NUMPY = "OPENBLAS_NUM_THREADS"
# Threads that also run between batches: those of the data set, or a BLAS that waits busily.
_GO_ON = (
    "Stop threads that worker_init_fn, the data set or a library keeps running in the workers: "
    "`lotus attach PID` shows what they do. If there are none, let each worker compute in one "
    "thread. "
)

# The most that a thread of several loses with each wait for the others: to sleep, to wake up, and
# to get a core again.
_WAIT_NS = 0.25e6


def _of_workers(ledger: Ledger) -> Iterable[Charge]:
    threads, of_main = ledger.use.fetch, ledger.scope.num_workers == 0
    if allowed_cores(ledger.scope) < 1:
        return  # one thread would lack a core as well
    if threads.crowded and not (of_main and ledger.batch_making.looks_of_main.are_enough):
        evidence = crowd_evidence(threads) | limit_evidence(ledger.scope)
        workers = ledger.scope.workers
        for name in () if of_main else ("threads", "torch_threads"):
            count = max(int_column(workers, name), default=-1)
            evidence[name] = float(count) if count > 0 else math.nan
        lost = threads.lost_share
        # A main process may be blocked in something else than waiting for its threads.
        if of_main and looks_of_makers(ledger.scope).are_enough:
            lost = min(lost, _lost_at_locks(threads, ledger.scope))
        if evidence.get("torch_threads", 0.0) > 1:
            lost = max(lost, _lost_at_locks(threads, ledger.scope))
        if evidence.get("torch_threads", 0.0) > ledger.scope.machine_cores:
            lost = min(lost, _most_lost(ledger.scope))
        ns = ledger.take_share(lost) + ledger.crowded_first_ns + ledger.sent_late
        ledger.lost_to_threads = lost
        # Of torch's own threads, these are known to wait busily for more work.
        alone = evidence.get("torch_threads") == 1
        evidence["beside_cores"] = ledger.use.beside_cores if alone else math.nan
        # Fewer threads help beside other programs, which is no reason to call the loop input-bound.
        taken = ns if of_main and kept_by_others(ledger) else 0.0
        evidence["others_share"] = ledger.use.others_share if taken else math.nan
        yield Charge(WORKER_THREADS.kind, WORKER_THREADS.title, ns, evidence, taken_ns=taken)


def _lost_at_locks(threads: Threads, scope: Scope) -> float:
    """Return the part of the time, 0 to 1, without a core or at locks of the process.

    The thread that makes batches waits at these for torch's other threads, which may lack a core
    for longer than it does.
    """
    looks = looks_of_makers(scope)
    at_locks = ratio(looks.shares.get(LOCK, 0.0), looks.blocked_share) if looks.are_enough else 0.0
    return min(threads.delay_share + threads.blocked_share * at_locks, 1.0)


def _most_lost(scope: Scope) -> float:
    """Return the most of the time, 0 to 1, that threads beyond the cores cost; 1.0: not known.

    OpenMP hardly lets so many wait busily, so each wait for each other is a switch. Where these are
    few, each thread computes for long, and one alone would do the same work in the same CPU time.
    """
    took, waits = (float_column(scope.batches, name) for name in ("fetch_ns", "voluntary_switches"))
    known = np.isfinite(took) & np.isfinite(waits)
    if not known.any():
        return 1.0
    return min(ratio(_WAIT_NS * total(waits[known]), total(took[known])), 1.0)


def _not_torch(charge: Charge, circumstances: Circumstances) -> bool:
    """Return True if the workers' threads are of another library: torch computes in one there."""
    return circumstances.workers > 0 and charge.evidence.get("torch_threads", math.nan) == 1


def _workers_title(charge: Charge, circumstances: Circumstances) -> str:
    allowed = fewer_cores(charge)
    cores = "with too few cores for them" + (f" (the program may use {allowed})" if allowed else "")
    if circumstances.workers == 0:
        return f"making batches in several threads, {cores}"
    if go_on(Evidence(charge.evidence)):
        return f"threads that the workers also run between batches, {cores}"
    if _not_torch(charge, circumstances):
        return (
            "several threads in each worker, of numpy's BLAS or another library than torch, "
            f"{cores}"
        )
    return f"several threads in each worker, {cores}"


def _against_workers(charge: Charge, circumstances: Circumstances) -> Advice:
    if circumstances.workers == 0:
        fewer = with_fewer_threads(circumstances.use.fetch.affordable, circumstances)
        return Advice(
            f"{fewer.text} Or set num_workers to 1 or more: a worker computes in one thread, if "
            "there is a core left for it."
            + (
                " Where the cores are free, measure again: all threads may be faster there."
                if charge.taken_ns
                else ""
            ),
            fewer.remedy.with_changes({"num_workers": "more"}),
        )
    if _not_torch(charge, circumstances) and circumstances.library_threads_set:
        place = circumstances.library_threads_set
        return Advice(
            f"Let each worker compute in one thread: the program itself gives a library more "
            f"({place}), which overrides a variable of its environment: set 1 there. Torch uses "
            "one thread in a worker.",
            FEWER_IN_CODE.or_code(place),
        )
    if _not_torch(charge, circumstances):
        first = "Let each worker compute in one thread. "
        return Advice(
            (_GO_ON if go_on(Evidence(charge.evidence)) else first)
            + "Torch uses one there, so the others belong to another library, most often numpy's "
            f"BLAS, which uses all cores: start the program with {_OF_NUMPY}=1 in its environment "
            "(MKL_NUM_THREADS=1 if numpy is built with MKL; the training step may then have one "
            "thread too). Other libraries: cv2.setNumThreads(0), NUMEXPR_NUM_THREADS=1.",
            set_threads(1, _OF_NUMPY),
        )
    return Advice(
        "Let each worker compute in one thread: torch.set_num_threads(1), cv2.setNumThreads(0) or "
        f"OMP_NUM_THREADS=1 if worker_init_fn or the data set sets more"
        f"{f' (see {circumstances.threads_set_at})' if circumstances.threads_set_at else ''}, and "
        f"{_OF_NUMPY}=1 for numpy's BLAS, which uses all cores by default.",
        FEWER_IN_CODE.or_code(circumstances.threads_set_at),
    )


WORKER_THREADS = CauseRow(
    kind="worker-threads",
    title="threads beyond the cores, in making batches",
    full_title=_workers_title,
    charges=_of_workers,
    facts=CROWD_FACTS
    | LIMIT_FACTS
    | OF_LOST_STEPS
    | {
        "threads": "Threads of a worker's process after its first batch, at most.",
        "torch_threads": "Threads in which torch computes in a worker, at most.",
        "beside_cores": "Cores that workers used for something else than making batches.",
        "others_share": OTHERS_SHARE,
    },
    reason=crowd_reason,
    advice=_against_workers,
)
