"""The time between two batches: the training step, and the overhead of lotus within it."""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd

from lotus.analysis.batches import collection_cost
from lotus.analysis.common.columns import float_column, ratio, total
from lotus.analysis.observations.looks import looks_at_step
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import FEWER_WORKERS, NOTHING
from lotus.analysis.verdict.advice.worker_advice import HEADROOM
from lotus.analysis.verdict.causes import cause_row
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence, always
from lotus.analysis.verdict.causes.garbage import (
    GARBAGE_FACTS,
    STEPS,
    against_collections,
    are_most,
    collections_reason,
    of_collections,
)
from lotus.analysis.verdict.causes.making.component_looks import place_of_step
from lotus.analysis.verdict.causes.making.kernel_work import (
    KERNEL_FACTS,
    against_new_memory,
    kernel_reason,
    of_steps,
)
from lotus.analysis.verdict.causes.making.waiting import (
    WAITING_FACTS,
    look_evidence,
    mostly_blocked,
)
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import share

_MOST_OF_STEP = 0.5  # a line with more is in the title; a step that waits longer "mostly" waits
_MOSTLY_IDLE = 0.5  # of the workers' time: more work fits into it
_HARDLY_IDLE = 0.1
_STEP_WAITS = 0.15  # of the step: one that computes on the CPU is off it for less


def _step(ledger: Ledger) -> Iterable[Charge]:
    threads, looks = ledger.use.step, looks_at_step(ledger.scope)
    waiting = max(1.0 - threads.delay_share - threads.cores, 0.0)
    if ledger.usual_steps is not None:
        of_usual = _waiting_share(ledger.scope.waits[ledger.usual_steps])
        waiting = waiting if math.isnan(of_usual) else of_usual
    if looks.are_enough:  # what a hypervisor takes from a running thread is counted nowhere
        waiting = min(waiting, looks.blocked_share)
    evidence = {"waiting_share": waiting} | look_evidence(looks) | of_steps(ledger.scope)
    cost = collection_cost.of_steps(ledger.scope, ledger.usual_steps)
    evidence |= of_collections(cost)
    ns = ledger.take_step()
    # Without workers, others take of the step as they do of the making of batches. With workers, a
    # step that others slow down hides more of the making.
    # Causes before this one may have taken a part of its time without a core.
    before_ns = ledger.step_ns - ledger.long_steps_ns - ns
    delay_ns = float(np.nan_to_num(ledger.step_ns * threads.delay_share)) - before_ns
    alone = ledger.use.rivals and not ledger.scope.num_workers
    taken = min(max(delay_ns, 0.0), ns) if alone else 0.0
    place = place_of_step(ledger.scope, looks)
    yield Charge(TRAINING_STEP.kind, TRAINING_STEP.title, ns, evidence, taken_ns=taken, place=place)


def _waiting_share(waits: pd.DataFrame) -> float:
    """Return the share of the steps in which no thread of their process ran or was ready to.

    NaN: not measured.
    """
    took, used, delay = (
        float_column(waits, f"step_{name}ns") for name in ("", "process_cpu_", "run_delay_")
    )
    known = ~np.isnan(took + used + delay)
    if not known.any():
        return math.nan
    return max(1.0 - ratio(total((used + delay)[known]), total(took[known])), 0.0)


def _step_waits(charge: Charge) -> bool:
    return charge.evidence.get("waiting_share", math.nan) >= _STEP_WAITS


def _step_title(charge: Charge, circumstances: Circumstances) -> str:
    text, lines = TRAINING_STEP.title, circumstances.hot_in_step
    if lines and lines[0].share >= _MOST_OF_STEP:
        text += f", most of it at {lines[0]}"
    elif circumstances.called_in_step:
        text += f", most of it in {circumstances.called_in_step}"
    if are_most(Evidence(charge.evidence)):
        text += ", most of it Python's garbage collector"
    if not _step_waits(charge):
        return text
    part = "mostly" if charge.evidence["waiting_share"] > _MOST_OF_STEP else "partly"
    return f"{text}, which {part} {mostly_blocked(charge) or 'waits'}"


def _step_reason(evidence: Evidence) -> str:
    computes = " ".join(
        filter(
            None,
            (
                kernel_reason(evidence, "the main process", "step"),
                collections_reason(evidence, STEPS),
            ),
        )
    )
    if not evidence["waiting_share"] >= _STEP_WAITS:
        return computes
    waits = (
        f"For {_least(evidence['waiting_share'])} of that time, no thread of the main "
        "process was computing or ready to run."
    )
    return f"{waits} {computes}".strip()


def _least(lower: float) -> str:
    """Return a share that is a lower bound; more than all is not possible."""
    text = share(lower)
    return text if text == "100%" else f"at least {text}"


def _against_step(charge: Charge, circumstances: Circumstances) -> Advice:
    enough = _enough_workers(circumstances)
    text = _loading_keeps_up(circumstances, enough)
    evidence = Evidence(charge.evidence)
    text += f" {against_collections(evidence, STEPS, circumstances)}".rstrip()
    if circumstances.hot_in_step:
        lines = (f"{share(line.share)} at {line.quoted}" for line in circumstances.hot_in_step)
        text += f" Stack samples: {', '.join(lines)}."
    elif circumstances.stacks_fix:
        text += f" To see which lines take the time: {circumstances.stacks_fix}; then trace again."
    else:
        text += " While it runs, `lotus attach PID` shows which lines take the time."
    if _step_waits(charge):
        least = _least(charge.evidence["waiting_share"])
        text += (
            f" For {least} of the time between batches the main process "
            f"{mostly_blocked(charge) or 'waits'}: look at what is saved, logged or sent there, or "
            "at the device."
        )
    kept = against_new_memory(charge, "step")
    remedy = FEWER_WORKERS if enough else NOTHING
    remedy = replace(remedy, environment=kept.remedy.environment)
    place = circumstances.hot_in_step[0] if circumstances.hot_in_step else ""
    return Advice(f"{text} {kept.text}".strip(), remedy.or_code(place))


def _enough_workers(circumstances: Circumstances) -> int:
    """Return how many workers are enough, if these are fewer than there are; else 0."""
    if not circumstances.workers:
        return 0
    enough = math.ceil(circumstances.needed * HEADROOM) if circumstances.needed > 0 else 0
    # If work lacks cores, fewer workers would not do as much of it in the same time.
    used = circumstances.workers * (1.0 - circumstances.idle_share)
    return enough if enough < circumstances.workers and used <= enough else 0


def _loading_keeps_up(circumstances: Circumstances, enough: int) -> str:
    text = "Loading keeps up"
    if circumstances.workers and circumstances.idle_share < _HARDLY_IDLE:
        text += ", but only just: the workers are busy nearly all the time"
    elif circumstances.workers:
        text += f": the workers are idle {circumstances.idle_share:.0%} of the time"
        if enough:
            text += f", and {enough} would be enough"
    text += ". To go faster, speed up the training step itself."
    if circumstances.workers and circumstances.idle_share >= _MOSTLY_IDLE:
        text += " Work on data in it, such as transforms, can move to the workers."
    return text


TRAINING_STEP = CauseRow(
    kind="consumer",
    title="the training step",
    full_title=_step_title,
    part=cause_row.STEP,
    charges=_step,
    facts=WAITING_FACTS | KERNEL_FACTS | GARBAGE_FACTS,
    reason=_step_reason,
    advice=_against_step,
    is_grave=lambda charge: are_most(Evidence(charge.evidence)),
)


def _tracing(ledger: Ledger) -> Iterable[Charge]:
    ns = min(ledger.own_ns, ledger.step_left_ns)
    ledger.step_left_ns -= ns
    yield Charge(TRACING.kind, TRACING.title, ns)


TRACING = CauseRow(
    kind="tracing",
    title="the overhead of lotus for each batch, which an untraced run does not have",
    part=cause_row.STEP,
    charges=_tracing,
    advice=always("Larger batches reduce this overhead. A run without lotus does not have it."),
)
