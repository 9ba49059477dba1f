"""Waiting for local storage."""

import math
from collections.abc import Iterable

import numpy as np

from lotus.analysis.common.columns import number, ratio, total
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence
from lotus.analysis.verdict.causes.circumstances import Circumstances
from lotus.analysis.verdict.causes.ledger import Ledger
from lotus.analysis.verdict.causes.remedy import set_workers
from lotus.common.formatting import amount, operation_name, share, size


def _cold_files(ledger: Ledger) -> Iterable[Charge]:
    """All of the components that wait for storage, as one charge named after the largest."""
    batches, names = ledger.scope.batches, ledger.components.names
    cold = np.flatnonzero(ledger.cold).tolist()
    parts = [(ledger.take_component(place), names[place]) for place in cold]
    if parts:
        read = total(number(batches, "read_bytes"))
        # Of a partly recorded loop, what the other batches read is not known.
        known = not ledger.scope.partial
        evidence = {
            "read_bytes": read,
            "read_bytes_per_s": ratio(read * 1e9, ledger.loop_ns) if known else math.nan,
            "major_faults": total(number(batches, "major_faults")),
            "fetch_ns": total(ledger.components.fetch),
            "cpu_ns": total(number(batches, "cpu_ns")),
        }
        yield Charge(COLD_FILES.kind, max(parts)[1], sum(ns for ns, _ in parts), evidence)


def _title(charge: Charge, around: Circumstances) -> str:
    return f"reading cold files from storage (in {operation_name(charge.name)})"


def _reason(evidence: Evidence) -> str:
    on_cpu = evidence["cpu_ns"] / evidence["fetch_ns"] if evidence["fetch_ns"] else math.nan
    rate = f", {size(evidence['read_bytes_per_s'])} a second"
    return (
        f"{size(evidence['read_bytes'])} came from storage"
        f"{rate if evidence.has('read_bytes_per_s') else ''}, with "
        f"{amount(evidence['major_faults'])} major faults; the fetches spent "
        f"{share(on_cpu)} of their time on a CPU."
    )


def _advice(charge: Charge, around: Circumstances) -> str:
    rate = charge.evidence.get("read_bytes_per_s", math.nan)
    unless = "" if not rate > 0 else f" unless {size(rate)} a second is all that it gives"
    return (
        "The files came from storage, not from the page cache: keep them on a faster or local "
        "disk, in memory, or in fewer and larger files. More workers read more files at once, "
        f"which is faster{unless}."
    )


COLD_FILES = CauseRow(
    kind="cold-files",
    title="cold files",
    full_title=_title,
    charges=_cold_files,
    facts={
        "read_bytes": "Bytes read from storage.",
        "read_bytes_per_s": "Bytes read from storage in a second of the loop.",
        "major_faults": "Pages read from storage.",
        "fetch_ns": "Time of the fetches, nanoseconds.",
        "cpu_ns": "CPU time of the fetches, nanoseconds.",
    },
    reason=_reason,
    advice=_advice,
    remedy=lambda charge, around: set_workers(around, waits=True, steady=False),
)
