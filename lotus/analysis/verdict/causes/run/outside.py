"""The time outside of the loops over loaders, which is part of no loop's account."""

from collections.abc import Sequence

from lotus.analysis.observations.own_code import HotFunction
from lotus.analysis.verdict.causes.cause_row import CauseRow, Evidence, always
from lotus.common.machine.py_spy_program import ABSENT, FIXES
from lotus.common.text.formatting import duration, plural, share

OUTSIDE_PART = "outside"  # of all loops
_ADVICE = "No loader setting changes this: look at what the program does there"


def advice_at(
    lines: Sequence[HotFunction], program: str = "-- python train.py", no_stacks: str = ""
) -> str:
    """Return the advice.

    `lines`: the program's own at which the time was spent, if known; `program`: the end of a
    command of py-spy that shows its functions; `no_stacks`: as `Run.no_stacks`.
    """
    if not lines:
        # As its parent, py-spy may look into a program also where lotus may not.
        first = f"{FIXES[ABSENT]}; then " if no_stacks == ABSENT else ""
        return (
            f"{_ADVICE} (checkpoints, evaluation, logging, loading of data or models). To see its "
            f"functions: {first}py-spy record -o profile.svg {program}"
        )
    seen = ", ".join(f"{share(line.share)} at {line.quoted}" for line in lines)
    return f"{_ADVICE}, less often or in less time. Stack samples of it: {seen}."


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
        "waits_ns": "Waits of all loops, start-up and shut-down included, nanoseconds.",
        "between_ns": "Time between two loops, nanoseconds.",
        "pauses": "Number of times that the program was between two loops.",
    },
    reason=_reason,
    advice=always(advice_at(())),
)
