"""Training steps that are kept from the cores by the program's own workers."""

from collections.abc import Iterable

from lotus.analysis.batches.core_use import LEAST_DELAY
from lotus.analysis.verdict.causes import cause_row
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence
from lotus.analysis.verdict.causes.circumstances import Circumstances
from lotus.analysis.verdict.causes.ledger import Ledger
from lotus.common.formatting import share

_MUCH = 0.5  # cores that workers use beside the making of batches


def _charges(ledger: Ledger) -> Iterable[Charge]:
    use = ledger.use
    if use.full and ledger.scope.num_workers and use.step.delay_share >= LEAST_DELAY:
        lost = ledger.step_left_ns * use.step.delay_share
        ledger.step_left_ns -= lost
        evidence = {"run_delay_share": use.step.delay_share, "beside_cores": use.beside_cores}
        yield Charge(STEP_DELAY.kind, STEP_DELAY.title, lost, evidence)


def _beside(charge: Charge) -> bool:
    return charge.evidence["beside_cores"] >= _MUCH


def _title(charge: Charge, around: Circumstances) -> str:
    what = "threads that the workers keep running" if _beside(charge) else "the workers"
    return f"the training step waits for cores, which {what} use"


def _reason(evidence: Evidence) -> str:
    text = (
        f"The step was ready to run but had no core for {share(evidence['run_delay_share'])} of "
        "its time, while the program itself kept the cores busy"
    )
    if evidence["beside_cores"] >= _MUCH:
        text += (
            f"; its workers used {evidence['beside_cores']:.1f} cores for something other "
            "than making batches"
        )
    return text + "."


def _advice(charge: Charge, around: Circumstances) -> str:
    if _beside(charge):
        return (
            "Look for threads that worker_init_fn, the data set or a library starts in the workers "
            "and that run while batches are made: `lotus attach PID` shows what they do."
        )
    return (
        "The workers and the step need more cores than there are: make samples cheaper, or make "
        "them once, ahead of time, or use fewer workers if they are idle."
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
        "beside_cores": "Cores that workers used for something else than making batches.",
    },
    reason=_reason,
    advice=_advice,
)
