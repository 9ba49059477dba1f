"""The run outside of the loops over its loaders; no part of any loop's account."""

from lotus.analysis.verdict.causes.cause_row import CauseRow, Evidence, fixed
from lotus.common.formatting import duration, plural

OUTSIDE_PART = "outside"  # of all loops
ADVICE = (
    "No loader setting changes this: look at what the program does there (checkpoints, "
    "evaluation, logging, loading of data or models). To see its functions: "
    "py-spy record -o profile.svg -- python train.py"
)


def _reason(evidence: Evidence) -> str:
    waits = duration(evidence["waits_ns"])
    text = f"All loops together waited {waits}"
    if evidence["pauses"] > 0:
        each = duration(evidence["between_ns"] / evidence["pauses"])
        text += f"; {plural(evidence['pauses'], 'pause')} between loops took {each} on average"
    return text + "."


OUTSIDE = CauseRow(
    kind="outside",
    title="the run outside of its loops",
    part=OUTSIDE_PART,
    charges=lambda ledger: (),
    facts={
        "waits_ns": "What all loops waited, start-up and shut-down included, nanoseconds.",
        "between_ns": "Time between two loops, nanoseconds.",
        "pauses": "How many times the program was between two loops.",
    },
    reason=_reason,
    advice=fixed(ADVICE),
)
