"""Making batches: operations, the data set's own code, collate, and the rest of the fetch."""

import math
from collections.abc import Callable, Iterable

import numpy as np

from lotus.analysis.batches.components import off_cpu
from lotus.analysis.common.columns import number, ratio, total
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence, fixed
from lotus.analysis.verdict.causes.circumstances import Circumstances, more_workers
from lotus.analysis.verdict.causes.ledger import Ledger
from lotus.common.formatting import operation_name, share

_WAITING = 0.5  # off the CPU for more than this share: waits, does not compute
_FACTS = {
    "fetch_share": "Share of the fetches' time, 0 to 1.",
    "waiting_share": "Share of its time that it waited, 0 to 1; at least.",
    "total_ns": "Its time in all workers, nanoseconds.",
}


def _components(kind: str) -> Callable[[Ledger], Iterable[Charge]]:
    """Charge what is left of the components of one kind, each by itself."""

    def charges(ledger: Ledger) -> Iterable[Charge]:
        parts, fetch = ledger.components, total(ledger.components.fetch)
        for place, (name, its_kind) in enumerate(zip(parts.names, parts.kinds, strict=True)):
            if its_kind == kind:
                made = total(parts.parts[:, place])
                evidence = {
                    "fetch_share": ratio(made, fetch),
                    "waiting_share": _waiting_share(ledger, place),
                    "total_ns": made,
                }
                yield Charge(kind, name, ledger.take_component(place), evidence)

    return charges


def _waiting_share(ledger: Ledger, place: int) -> float:
    """How much of a component's time it waited; a lower bound without its own CPU time.

    NaN where that is not known: time off the CPU may be waiting for one.
    """
    parts, ops, batches = ledger.components, ledger.scope.ops, ledger.scope.batches
    if ledger.crowded:
        return float("nan")
    mine = (parts.op_rows >= 0) & (parts.op_codes == place)
    cpu = number(ops, "cpu_ns")[mine]
    if parts.kinds[place] == OPERATION.kind and cpu.size and not np.isnan(cpu).any():
        duration = total(number(ops, "duration_ns")[mine])
        return 1.0 - min(ratio(total(cpu), duration), 1.0)
    if np.isnan(number(batches, "cpu_ns")).all():
        return float("nan")
    off = np.maximum(off_cpu(batches, parts.fetch) - ledger.held, 0.0)
    others = parts.fetch - parts.parts[:, place]
    return ratio(total(np.maximum(off - others, 0.0)), total(parts.parts[:, place]))


def _reason(evidence: Evidence) -> str:
    if not evidence.has("fetch_share"):
        return ""
    text = f"It is {share(evidence['fetch_share'])} of the time in which batches are made"
    if evidence.has("waiting_share") and evidence["waiting_share"] > 0.1:
        text += f", off the CPU for at least {share(evidence['waiting_share'])} of it"
    return text + "."


def _waits(charge: Charge, around: Circumstances) -> bool:
    """Whether it is its own waiting, and not that others have the cores."""
    return _off_cpu(charge) and around.shared <= _WAITING


def _off_cpu(charge: Charge) -> bool:
    return charge.evidence.get("waiting_share", math.nan) > _WAITING


def _against_work(charge: Charge, around: Circumstances, look: str = "") -> str:
    if _waits(charge, around):
        return (
            "It waits (network, lock, sleep): more workers overlap it at no cost in cores. "
            + more_workers(around, waits=True)
            + look
        )
    if _off_cpu(charge):
        return (
            "It was off the CPU while others had the cores, which no number of workers mends: "
            f"measure again where they are free.{look}"
        )
    if around.workers >= around.cores:
        return f"Make it cheaper, or do it once, ahead of time. {more_workers(around)}{look}"
    return f"{more_workers(around)} Or make it cheaper, or do it once, ahead of time.{look}"


def _operation_title(charge: Charge, around: Circumstances) -> str:
    waits = " (waits, not computing)" if _waits(charge, around) else ""
    return operation_name(charge.name) + waits


OPERATION = CauseRow(
    kind="operation",
    title="an operation",
    full_title=_operation_title,
    charges=_components("operation"),
    facts=_FACTS,
    reason=_reason,
    advice=_against_work,
)


def _dataset_title(charge: Charge, around: Circumstances) -> str:
    method = "next" if around.iterable else "__getitem__"
    text = f"the data set's own code ({method}, outside its operations)"
    return text + (", which waits, not computing" if _waits(charge, around) else "")


def _against_dataset(charge: Charge, around: Circumstances) -> str:
    if around.level == "sample":
        return _record_operations(around)
    look = " Name its parts with --op package.module:function or lotus.span to split it."
    return _against_work(charge, around, look)


def _record_operations(around: Circumstances) -> str:
    return "Record with --level op to see which operation it is. " + more_workers(around)


DATASET = CauseRow(
    kind="dataset",
    title="the data set's own code",
    full_title=_dataset_title,
    charges=_components("dataset"),
    facts=_FACTS,
    reason=_reason,
    advice=_against_dataset,
)


def _against_collate(charge: Charge, around: Circumstances) -> str:
    return (
        "Make collate_fn cheaper: stack tensors once instead of copying or padding in Python, "
        "and leave conversions to the samples. " + more_workers(around)
    )


COLLATE = CauseRow(
    kind="collate",
    title="collate",
    full_title=fixed("collate: putting samples together into a batch"),
    charges=_components("collate"),
    facts=_FACTS,
    reason=_reason,
    advice=_against_collate,
)


def _fetch_title(charge: Charge, around: Circumstances) -> str:
    if around.level == "batch":
        return "making the samples (not split at --level batch)"
    return "the rest of the fetch, outside samples and collate"


def _against_fetch(charge: Charge, around: Circumstances) -> str:
    if around.level == "batch":
        return _record_operations(around)
    return _against_work(charge, around)


FETCH = CauseRow(
    kind="fetch",
    title="the rest of the fetch",
    full_title=_fetch_title,
    charges=_components("fetch"),
    facts=_FACTS,
    reason=_reason,
    advice=_against_fetch,
)
