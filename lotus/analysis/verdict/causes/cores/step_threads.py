"""Threads of the training step, beyond the cores."""

import math
from collections.abc import Iterable

from lotus.analysis.common.columns import int_column
from lotus.analysis.machine.core_use import LEAST_OTHERS, allowed_cores
from lotus.analysis.machine.undelayed_steps import undelayed_step
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.causes import cause_row
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge
from lotus.analysis.verdict.causes.cores.crowding import (
    CROWD_FACTS,
    LIMIT_FACTS,
    OTHERS_SHARE,
    crowd_evidence,
    crowd_reason,
    fewer_cores,
    kept_by_others,
    limit_evidence,
    with_fewer_threads,
)
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import plural


def _of_step(ledger: Ledger) -> Iterable[Charge]:
    threads = ledger.use.step
    if kept_by_others(ledger):
        return
    # Threads that hold the interpreter lock are the program's own, not those of a library.
    are_own = (
        ledger.batch_making.looks_of_main.are_enough or ledger.batch_making.step_lock is not None
    )
    if threads.crowded and not are_own:
        lost = max(ledger.step_left_ns * threads.lost_share, _beyond_undelayed(ledger))
        ledger.step_left_ns -= lost
        if allowed_cores(ledger.scope) < 1:  # one thread would lack a core as well
            ledger.step_short_ns += lost
            return
        evidence = crowd_evidence(threads) | limit_evidence(ledger.scope)
        of_torch = max(int_column(ledger.scope.epochs, "torch_threads"), default=-1)
        evidence["main_torch_threads"] = float(of_torch) if of_torch > 0 else math.nan
        others = ledger.use.others_share
        evidence["others_share"] = others if others >= LEAST_OTHERS else math.nan
        taken = lost * ledger.use.others_part
        yield Charge(STEP_THREADS.kind, STEP_THREADS.title, lost, evidence, taken_ns=taken)


def _beyond_undelayed(ledger: Ledger) -> float:
    """Return what steps take beyond those that lack no core, ns; 0.0: there are too few of these.

    Threads that wait for each other on their cores do not lack one.
    """
    alone = undelayed_step(ledger.scope.waits)
    return max(ledger.step_left_ns - alone.all_took_ns, 0.0) if alone else 0.0


def _step_title(charge: Charge, circumstances: Circumstances) -> str:
    workers = plural(circumstances.workers, "worker")
    rivals = f"they and the {workers} need" if circumstances.workers else "they need"
    allowed = fewer_cores(charge)
    cores = f"the {allowed} that the program may use" if allowed else "there are"
    return f"the training step's threads: {rivals} more cores than {cores}"


def _more_than_cores(charge: Charge) -> bool:
    """Return True if torch was told to compute in more threads than the machine has cores."""
    threads, cores = (
        charge.evidence.get(name, math.nan) for name in ("main_torch_threads", "machine_cores")
    )
    return threads > cores


def _against_step(charge: Charge, circumstances: Circumstances) -> Advice:
    allowed = fewer_cores(charge)
    more = (
        f" Or allow the program more cores than {allowed}: the CPU limit of its container or job, "
        "or taskset, holds it to them."
    )
    fewer = with_fewer_threads(circumstances.use.step.affordable, circumstances)
    return fewer.before(more) if allowed else fewer


STEP_THREADS = CauseRow(
    kind="step-threads",
    title="the training step's threads, beyond the cores",
    full_title=_step_title,
    part=cause_row.STEP,
    charges=_of_step,
    facts=CROWD_FACTS
    | LIMIT_FACTS
    | {
        "main_torch_threads": "Threads in which torch computes in the main process, at most.",
        "others_share": OTHERS_SHARE,
    },
    reason=crowd_reason,
    advice=_against_step,
    is_grave=_more_than_cores,
)
