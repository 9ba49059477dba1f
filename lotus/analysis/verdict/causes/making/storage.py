"""Waiting for local storage: for files, or for memory that was swapped out."""

import math
from collections.abc import Iterable

import numpy as np

from lotus.analysis.common.columns import float_column, ratio, total
from lotus.analysis.machine.machine_readings import ROOM, SWAPPED, least_memory_share, within_loops
from lotus.analysis.samples.mutual_slowing import (
    SHARES_LIMIT,
    SHARES_NONE,
    SLOWING_FACTS,
    mutual_slowing,
)
from lotus.analysis.verdict.advice.advice import Advice, more_workers
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import DATA, FEWER_WORKERS
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence, always
from lotus.analysis.verdict.causes.making.component_looks import looks_of, place_of
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import amount, operation_name, share, size

# Memory that was full, and what helps.
KEEP_LESS = "Use fewer workers or a smaller prefetch_factor, or keep less data in memory."
_MOSTLY = 0.5  # of what was read from storage, swapped at the same time


def _cold_files(ledger: Ledger) -> Iterable[Charge]:
    yield from _storage(ledger, COLD_FILES.kind)


def _swapped_out(ledger: Ledger) -> Iterable[Charge]:
    scope = ledger.scope
    swapped = within_loops(scope, "swapped_bytes")
    full = not least_memory_share(scope.machine, scope.memory_bytes) >= ROOM
    read = total(float_column(scope.batches, "read_bytes"))
    if full and swapped >= max(SWAPPED, _MOSTLY * read):
        yield from _storage(ledger, SWAPPED_OUT.kind, swapped_bytes=swapped)


def _storage(ledger: Ledger, kind: str, **more: float) -> Iterable[Charge]:
    """Charge all components that wait for storage, as one charge named after the largest."""
    batches, names = ledger.scope.batches, ledger.batch_making.components.names
    cold = np.flatnonzero(ledger.cold).tolist()
    parts = [(ledger.take_component(column), names[column], column) for column in cold]
    if parts:
        _, name, largest = max(parts)
        read = total(float_column(batches, "read_bytes"))
        # Of a partly recorded loop, what the other batches read is not known.
        known = not ledger.scope.partial
        evidence = {
            "read_bytes": read,
            "read_bytes_per_s": ratio(read * 1e9, ledger.loop_ns) if known else math.nan,
            "major_faults": total(float_column(batches, "major_faults")),
            "fetch_ns": total(ledger.batch_making.components.fetch),
            "cpu_ns": total(float_column(batches, "cpu_ns")),
            "mutual_slowing": mutual_slowing(ledger.scope),
            **more,
        }
        at = place_of(ledger, largest, looks_of(ledger, largest), "storage", "file")
        yield Charge(kind, name, sum(ns for ns, *_ in parts), evidence, place=at)


def _title(charge: Charge, circumstances: Circumstances) -> str:
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


def _advice(charge: Charge, circumstances: Circumstances) -> Advice:
    evidence = Evidence(charge.evidence)
    came = "The data came from storage, not from the page cache"
    return against_reading(
        came, evidence["mutual_slowing"], circumstances, evidence["read_bytes_per_s"]
    )


def against_reading(
    why: str, slowing: float, circumstances: Circumstances, bytes_per_s: float = math.nan
) -> Advice:
    """Return the advice on samples that wait for storage.

    `why`: the words before it. `slowing`: as `mutual_slowing` returns it. More workers are advised
    only where samples did not slow each other, or where there was one worker at most.
    """
    text = (
        f"{why}: keep the files on a faster or local disk, in memory, or in fewer and larger files."
    )
    if slowing >= SHARES_LIMIT:
        alone = "A sample takes less time while fewer are read at a time: more workers do not help."
        return Advice(f"{text} {alone}", DATA.with_changes({"num_workers": "not more"}))
    if circumstances.workers > 1 and not slowing <= SHARES_NONE:
        # With more workers, two programs of two read at 0.7 and at 0.9 of their speed.
        measured = "Whether more workers read faster or slower, `lotus tune` measures."
        return Advice(f"{text} {measured}", DATA)
    unless = f" unless {size(bytes_per_s)} a second is all that it gives" if bytes_per_s > 0 else ""
    # First workers read while the steps compute: as for any other work, a replay must show that.
    more = more_workers(circumstances, waits=circumstances.workers > 0, steady=False)
    return Advice(
        f"{text} More workers read more files at once, which is faster{unless}. {more.text}",
        more.remedy.with_changes({"data": "other"}),
    )


_FACTS = {
    "read_bytes": "Bytes read from storage.",
    "read_bytes_per_s": "Bytes read from storage in a second of the loop.",
    "major_faults": "Pages read from storage.",
    "fetch_ns": "Time of the fetches, nanoseconds.",
    "cpu_ns": "CPU time of the fetches, nanoseconds.",
} | SLOWING_FACTS
COLD_FILES = CauseRow(
    kind="cold-files",
    title="cold files",
    full_title=_title,
    charges=_cold_files,
    facts=_FACTS,
    reason=_reason,
    advice=_advice,
)


def _swap_title(charge: Charge, circumstances: Circumstances) -> str:
    return f"pages come back from swap, as memory is full (in {operation_name(charge.name)})"


def _swap_reason(evidence: Evidence) -> str:
    on_cpu = ratio(evidence["cpu_ns"], evidence["fetch_ns"])
    return (
        f"{size(evidence['swapped_bytes'])} were swapped in and out, with "
        f"{amount(evidence['major_faults'])} major faults in fetches, which spent {share(on_cpu)} "
        "of their time on a CPU."
    )


SWAPPED_OUT = CauseRow(
    kind="swap",
    title="memory that was swapped out",
    full_title=_swap_title,
    charges=_swapped_out,
    facts=_FACTS | {"swapped_bytes": "Swapped in and out by the machine in the loop, bytes."},
    reason=_swap_reason,
    advice=always(
        f"{KEEP_LESS} Smaller types (uint8 instead of float32), compressed samples, or an array in "
        "a file (numpy.memmap) need less: the pages of a file are dropped and need no swap.",
        FEWER_WORKERS.with_changes({"prefetch_factor": "fewer", "data": "other"}),
    ),
)
