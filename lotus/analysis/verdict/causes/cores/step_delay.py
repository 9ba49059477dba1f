"""Training steps, and batches that are made, kept from the cores by the program's own processes."""

import math
from collections.abc import Iterable

import numpy as np

from lotus.analysis.machine.core_use import LEAST_DELAY, MUCH_KEPT, cores_are_few
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import FEWER_WORKERS
from lotus.analysis.verdict.causes import cause_row
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence, always
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import share

# Of the time that other programs leave the step: lost to processes that could run at another time.
_GRAVE = 0.25
_KEPT_CORES = "Cores that processes of the program used that make no batches."
_AGAINST_KEPT = (
    "Run fewer of these processes, run them at another time, or give them cores of their own "
    "(taskset)."
)


def _charges(ledger: Ledger) -> Iterable[Charge]:
    use = ledger.use
    part = _own_part(ledger)
    if part > 0 and use.step.delay_share >= LEAST_DELAY:
        lost = ledger.step_left_ns * use.step.delay_share * part
        ledger.step_left_ns -= lost
        values = {
            "run_delay_share": use.step.delay_share,
            "own_part": part,
            "beside_cores": use.beside_cores,
            "kept_cores": use.kept_cores,
        }
        evidence = Evidence(values)
        of_workers = not (_kept(evidence) or _beside(evidence))
        few = use.full and cores_are_few(ledger.scope)
        if of_workers and few and (not use.step.crowded or ledger.step_short_ns > 0):
            # The making of batches lacks the same cores: charged together.
            ledger.step_short_ns += lost
            return
        yield Charge(STEP_DELAY.kind, STEP_DELAY.title, lost, values)


def _own_part(ledger: Ledger) -> float:
    """Return the part of the step's waiting for a core that is due to the program's processes.

    All of it if the program keeps the cores busy. If other programs use them as well, it is the
    share of what its processes use, beside making batches, in what they and other programs use.
    """
    use = ledger.use
    mine = use.kept_cores + use.beside_cores
    if use.full and (ledger.scope.num_workers or mine >= MUCH_KEPT):
        return 1.0
    if not mine >= MUCH_KEPT:
        return 0.0
    others = use.others_share * ledger.scope.cores
    return mine / (mine + others) if math.isfinite(others) else 0.0


def _is_grave(charge: Charge) -> bool:
    evidence = Evidence(charge.evidence)
    lost = evidence["run_delay_share"] * evidence["own_part"]
    to_others = evidence["run_delay_share"] - lost
    no_batches = _kept(evidence) or _beside(evidence)
    return no_batches and lost >= _GRAVE * (1.0 - to_others)


def _kept(evidence: Evidence) -> bool:
    """Return True if processes that make no batches use much of the cores, no less than threads."""
    kept, beside = evidence["kept_cores"], evidence["beside_cores"]
    return kept >= MUCH_KEPT and not beside > kept


def _beside(evidence: Evidence) -> bool:
    return evidence["beside_cores"] >= MUCH_KEPT and not _kept(evidence)


def who_has_the_cores(evidence: Evidence) -> str:
    """Return in words what uses the cores that the step waits for."""
    if _kept(evidence):
        return "other processes that the program started"
    return "threads that the workers keep running" if _beside(evidence) else "the workers"


def _title(charge: Charge, circumstances: Circumstances) -> str:
    return (
        "the training step waits for cores, which "
        f"{who_has_the_cores(Evidence(charge.evidence))} use"
    )


def _reason(evidence: Evidence) -> str:
    text = (
        f"The step was ready to run but had no core for {share(evidence['run_delay_share'])} of "
        "its time"
    )
    if evidence["own_part"] < 1:
        text += f", {share(evidence['own_part'])} of it owed to the program itself"
    else:
        text += ", while the program itself kept the cores busy"
    if _kept(evidence):
        text += (
            f"; processes that it started, besides its workers, used {evidence['kept_cores']:.1f} "
            "cores"
        )
    elif _beside(evidence):
        text += (
            f"; its workers used {evidence['beside_cores']:.1f} cores for something other "
            "than making batches"
        )
    return text + "."


def _advice(charge: Charge, circumstances: Circumstances) -> Advice:
    evidence = Evidence(charge.evidence)
    if _kept(evidence):
        return Advice(_AGAINST_KEPT)
    if _beside(evidence):
        return Advice(
            "Look for threads that worker_init_fn, the data set or a library starts in the workers "
            "and that run while batches are made: `lotus attach PID` shows what they do."
        )
    return Advice(
        "The workers and the step need more cores than there are: make samples cheaper, or make "
        "them once, ahead of time, or use fewer workers if they are idle.",
        FEWER_WORKERS.or_code(),
    )


STEP_DELAY = CauseRow(
    kind="step-delay",
    title="the training step waits for cores, which the workers use",
    full_title=_title,
    part=cause_row.STEP,
    charges=_charges,
    facts={
        "run_delay_share": "Share of the time that its thread was ready to run without a core, "
        "0 to 1.",
        "own_part": "Part of that which is owed to processes of the program, 0 to 1.",
        "beside_cores": "Cores that workers used for something else than making batches.",
        "kept_cores": _KEPT_CORES,
    },
    reason=_reason,
    advice=_advice,
    is_grave=_is_grave,
)


def _of_made(ledger: Ledger) -> Iterable[Charge]:
    """Charge waits for batches that were made while processes of the program had the cores."""
    use = ledger.use
    others = float(np.nan_to_num(use.others_share)) * ledger.scope.cores
    if use.kept and use.kept_cores > others:
        ns, ledger.waits_without_core = ledger.waits_without_core, 0.0
        evidence = {"kept_cores": use.kept_cores}
        yield Charge(KEPT_PROCESSES.kind, KEPT_PROCESSES.title, ns, evidence)


def _reason_of_made(evidence: Evidence) -> str:
    return (
        "Processes that the program started, besides its workers, used "
        f"{evidence['kept_cores']:.1f} cores, and batches that were ready arrived later than their "
        "bytes and the CPU time of receiving them account for."
    )


KEPT_PROCESSES = CauseRow(
    kind="kept-processes",
    title="other processes that the program started use the cores",
    charges=_of_made,
    facts={"kept_cores": _KEPT_CORES},
    reason=_reason_of_made,
    advice=always(_AGAINST_KEPT),
)
