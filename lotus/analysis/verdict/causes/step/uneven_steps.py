"""Training steps that take many times as long as a usual one, in which much of the loop passes."""

import math
from collections.abc import Iterable

from lotus.analysis.batches import collection_cost
from lotus.analysis.batches.long_steps import LongSteps, long_steps
from lotus.analysis.common.columns import ratio
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import NOTHING
from lotus.analysis.verdict.causes import cause_row
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence
from lotus.analysis.verdict.causes.garbage import (
    GARBAGE_FACTS,
    STEPS,
    against_collections,
    are_usual,
    of_collections,
)
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import duration, plural, share

_LEAST = 0.1  # of the loop
_MOST_OF_IT = 0.5  # of the stacks: a line with more is in the title
_NEARLY_ALL = 0.8  # of the long steps had a full collection of garbage, and of the others none


def _charges(ledger: Ledger) -> Iterable[Charge]:
    found = long_steps(ledger.scope)
    if found is None or found.excess_ns < _LEAST * ledger.loop_ns:
        return
    ns = ledger.take_long_steps(found)
    evidence = {
        "long_step_count": float(len(found.begin_ns)),
        "all_steps": float(found.of),
        "long_step_ns": found.mean_ns,
        "usual_step_ns": found.usual_ns,
        "inner_loop_ns": found.inner[1] / len(found.begin_ns),
    }
    evidence |= _collected(ledger, found)
    yield Charge(LONG_STEPS.kind, LONG_STEPS.title, ns, evidence)


def _collected(ledger: Ledger, found: LongSteps) -> dict[str, float]:
    """Return evidence on full collections in long steps; none if other steps have them as well."""
    if found.is_inner_loop:
        return {}
    counts, known = collection_cost.step_collections(ledger.scope)
    of_long, of_others = (
        ratio(float((counts[rows & known] > 0).sum()), float((rows & known).sum()))
        for rows in (found.rows, ~found.rows)
    )
    evidence = of_collections(collection_cost.of_steps(ledger.scope))
    in_long = of_long >= _NEARLY_ALL and of_others <= 1 - _NEARLY_ALL
    if not (in_long and are_usual(Evidence(evidence))):
        return {}
    return evidence | {"collected_long_share": of_long}


def _one_of(evidence: Evidence) -> str:
    """Return as "1 of 50" how many steps are long."""
    return f"1 of {round(evidence['all_steps'] / evidence['long_step_count']):,}"


def _title(charge: Charge, circumstances: Circumstances) -> str:
    evidence, lines = Evidence(charge.evidence), circumstances.hot_in_long_steps
    took = duration(evidence["long_step_ns"])
    text = f"{LONG_STEPS.title} ({_one_of(evidence)}, {took} each)"
    if evidence.has("collected_long_share"):
        return f"{text}, in which Python's garbage collector looks at all objects"
    if circumstances.inner_loop:
        return f"{text}, most of it in the loop over {circumstances.inner_loop}"
    if lines and lines[0].share >= _MOST_OF_IT:
        return f"{text}, most of it at {lines[0]}"
    return text


def _reason(evidence: Evidence) -> str:
    if math.isnan(evidence["long_step_count"]):
        return ""
    text = (
        f"{plural(int(evidence['long_step_count']), 'step')} of {evidence['all_steps']:,.0f} took "
        f"{duration(evidence['long_step_ns'])} on average, a usual one "
        f"{duration(evidence['usual_step_ns'])}."
    )
    if evidence.has("collected_long_share"):
        text += (
            f" {share(evidence['collected_long_share'])} of them had a full collection of garbage, "
            "and hardly any other step."
        )
    if evidence["inner_loop_ns"] > 0:
        text += f" A loop over another loader is {duration(evidence['inner_loop_ns'])} of each."
    return text


def _against_long_steps(charge: Charge, circumstances: Circumstances) -> Advice:
    lines, inner = circumstances.hot_in_long_steps, circumstances.inner_loop
    text = "No setting of this loader changes it: look at what the program does in these steps"
    if inner:
        text = (
            "No setting of this loader changes it: run that loop less often or in less time. It "
            "has a verdict of its own."
        )
    elif lines:
        text += ", less often or in less time."
    else:
        text += " (checkpoints, evaluation, logging)."
    if collected := against_collections(Evidence(charge.evidence), STEPS, circumstances):
        text = collected.strip()
    if lines:
        seen = ", ".join(f"{share(line.share)} at {line.quoted}" for line in lines)
        text += f" Stack samples of it: {seen}."
    elif circumstances.stacks_fix and not inner:
        text += f" To see which lines take the time: {circumstances.stacks_fix}; then trace again."
    return Advice(text, NOTHING.or_code(lines[0] if lines else ""))


LONG_STEPS = CauseRow(
    kind="long-steps",
    title="long training steps",
    full_title=_title,
    part=cause_row.STEP,
    charges=_charges,
    facts={
        "long_step_count": "Number of training steps that took many times as long as a usual one.",
        "all_steps": "Number of all training steps.",
        "long_step_ns": "Mean of the long training steps, nanoseconds.",
        "usual_step_ns": "Median training step, nanoseconds.",
        "inner_loop_ns": "How much of a long step was a loop over another loader, nanoseconds.",
        "collected_long_share": "Share of the long steps that had a full collection, 0 to 1.",
        **GARBAGE_FACTS,
    },
    reason=_reason,
    advice=_against_long_steps,
    is_grave=lambda charge: "collected_long_share" in charge.evidence,
)
