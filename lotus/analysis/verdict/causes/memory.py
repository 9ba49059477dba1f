"""Workers whose memory grows: nothing waits for it until the memory is full."""

from collections.abc import Iterable

from lotus.analysis.machine.memory_growth import MemoryGrowth, memory_growth
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence
from lotus.analysis.verdict.causes.cores.step_threads import STEP_THREADS
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import duration, size

_GRAVE = 0.02  # of the memory that is left: copies of less do no harm


def _charges(ledger: Ledger) -> Iterable[Charge]:
    yield from charges_of(memory_growth(ledger.scope))


def charges_of(growth: MemoryGrowth) -> Iterable[Charge]:
    """Yield a charge if the workers' memory grows much."""
    if not growth.copies and growth.seconds_left == float("inf"):
        return
    evidence = {
        "copied_bytes": growth.copied_bytes,
        "shared_bytes": growth.shared_bytes,
        "allocated_bytes": growth.allocated_bytes,
        "whole_bytes": growth.whole_bytes,
        "available_bytes": growth.available_bytes,
    }
    if growth.limit_bytes:
        evidence["limit_bytes"] = growth.limit_bytes
    if growth.seconds_left < float("inf"):
        evidence["left_ns"] = growth.seconds_left * 1e9
    yield Charge(MEMORY.kind, MEMORY.title, 0.0, evidence)


def _is_grave(charge: Charge) -> bool:
    evidence = charge.evidence
    much = evidence["whole_bytes"] >= _GRAVE * evidence["available_bytes"]
    return much or _fills_the_memory(charge)


def _fills_the_memory(charge: Charge) -> bool:
    return "left_ns" in charge.evidence


def _title(charge: Charge, circumstances: Circumstances) -> str:
    if charge.evidence["copied_bytes"] >= charge.evidence["allocated_bytes"]:
        return "the workers' memory grows, as they copy the data set's objects (copy-on-write)"
    return "the workers' memory grows"


def _reason(evidence: Evidence) -> str:
    copied, allocated = evidence["copied_bytes"], evidence["allocated_bytes"]
    text = f"One worker's own memory grew by {size(copied + allocated)}"
    if copied >= allocated:
        text += (
            f", of which {size(copied)} are copies of pages that it shared with the main process; "
            f"it may copy {size(evidence['shared_bytes'])} more"
        )
    text += ". This costs the loop little time"
    if evidence.has("left_ns"):
        what = "the machine's memory"
        if evidence.has("limit_bytes"):
            what = (
                f"the {size(evidence['limit_bytes'])} of memory that its container or job may use"
            )
        return f"{text}, but would fill {what} in {duration(evidence['left_ns'])}."
    return f"{text}, but each additional worker needs as much."


def _advice(charge: Charge, circumstances: Circumstances) -> Advice:
    if charge.evidence["copied_bytes"] >= charge.evidence["allocated_bytes"]:
        return Advice(
            "Store the data set's records in numpy arrays, torch tensors or an Arrow table instead "
            "of lists and dicts: to read a Python object changes its reference count, and so "
            "copies its page. Each worker makes copies of its own, so they add up."
        )
    return Advice(
        "Find what the data set keeps from one sample to the next: a cache without a limit, a list "
        "that only grows, files that stay open."
    )


MEMORY = CauseRow(
    kind="memory",
    title="memory of the workers",
    full_title=_title,
    charges=_charges,
    facts={
        "copied_bytes": "Pages that a worker had shared with the main process and copied, bytes.",
        "shared_bytes": "Pages that it may still copy, bytes.",
        "allocated_bytes": "Growth of its memory by other pages, bytes.",
        "whole_bytes": "Pages that all workers copied or may copy, bytes.",
        "available_bytes": "Memory that was left then, bytes.",
        "limit_bytes": "The cgroup's limit that left it; without one, the machine did, bytes.",
        "left_ns": "Until the memory would be full if they grew on, nanoseconds.",
    },
    reason=_reason,
    advice=_advice,
    silent=True,
    is_grave=_is_grave,
    # What costs no time comes after what costs much, unless the memory will be full.
    gives_way_to=frozenset({STEP_THREADS.kind}),
    is_pressing=_fills_the_memory,
)
