"""Causes around the waits of a loop: start-up, shut-down, and the rest."""

import math
from collections.abc import Iterable, Mapping

from lotus.analysis.batches.worker_imports import waited_imports
from lotus.analysis.common.columns import flag, float_column, median, ratio, total
from lotus.analysis.observations.own_code import of_program
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import (
    CODE,
    FEWER_WORKERS,
    NOTHING,
    Remedy,
    keep_workers,
    no_workers,
    without_workers,
)
from lotus.analysis.verdict.causes import cause_row
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence, fixed
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import duration, plural, share

_MUCH_TAKEN = 0.1  # of the start-up
_FAR_LONGER = 3.0  # times: what kept workers save is then a quarter of the start-up at most
_CLEARLY_LESS = 0.5
_PART, _LEAST_DRAWN_NS = 0.25, 1e7  # of iter(): draws of more may have come twice


def _startup(ledger: Ledger) -> Iterable[Charge]:
    evidence = ledger.startup | {"epochs": float(len(ledger.loop))}
    evidence["first_excess_ns"] = ledger.first_excess_ns
    evidence["making_ns"] = _making_all(ledger)
    evidence["importing_ns"] = waited_imports(ledger.scope.workers, ledger.loop)
    for name in _OF_SPAWN:
        evidence[name] = median(float_column(ledger.scope.workers, name))
    ns = sum(ledger.startup.values())
    yield Charge(STARTUP.kind, STARTUP.title, ns, evidence, taken_ns=ledger.start_without_core)


def _making_all(ledger: Ledger) -> float:
    """Return what making all batches took, ns; NaN: not known, or iter() may be the sampler's.

    An `__iter__` of a batch sampler that draws at once is called twice, the first time unseen.
    """
    iter_ns = ledger.startup["iter_ns"]
    if ledger.scope.partial or not ledger.drawn_in_iter_ns < _PART * iter_ns + _LEAST_DRAWN_NS:
        return math.nan
    return total(
        ledger.batch_making.took_ns * ledger.batch_making.own_part * ledger.batch_making.known
    )


# The parts of a start-up, with the words that say what passed meanwhile.
_PARTS = {
    "iter_ns": "in iter() itself",
    "workers_ns": "until the workers were ready",
    "first_batch_ns": "making that batch",
    "first_send_ns": "sending that batch",
}
_MOST = 2 / 3  # of the start-up
_OF_SPAWN = ("import_ns", "unpickle_ns")  # of workers that were spawned


def _startup_reason(evidence: Evidence) -> str:
    parts = (
        ("iter_ns", "in iter()"),
        ("workers_ns", "until the workers were ready"),
        ("first_batch_ns", "for the first batches"),
        ("first_send_ns", "for sending them"),
    )
    spent = [f"{duration(evidence[key])} {words}" for key, words in parts if evidence[key] > 0]
    count = "In at least " + plural(evidence["least_epochs"], "epoch")
    if evidence.has("epochs"):
        count = "In " + plural(evidence["epochs"], "epoch")
    return f"{count}: {', '.join(spent)}."


def _epochs(evidence: Mapping[str, float]) -> float:
    """Return the number of epochs; if the run was sampled, the least number."""
    return evidence.get("epochs", evidence.get("least_epochs", 1.0))


def _startup_title(charge: Charge, circumstances: Circumstances) -> str:
    again = (
        f", of a loader that was created {circumstances.times_created} times"
        if circumstances.times_created > 1
        else ""
    )
    text = f"start-up: from iter() to the first batch{again}"
    taken = ratio(charge.taken_ns, charge.ns)
    part = _main_part(charge.evidence)
    notes = [f"most of it {_PARTS[part]}"] if part and taken < _MOST else []
    if taken >= _MUCH_TAKEN:
        notes.append(f"{share(taken)} of it waiting for a core")
    return f"{text} ({'; '.join(notes)})" if notes else text


def _main_part(evidence: Mapping[str, float]) -> str:
    """Return the part that has most of the start-up, which the title names; "" if none has."""
    whole = sum(evidence.get(part, 0.0) for part in _PARTS)
    part = _largest_part(evidence)
    if not evidence.get(part, 0.0) >= _MOST * whole > 0.0:
        return ""
    return "" if part == "first_batch_ns" and _is_filling(evidence) else part


def _largest_part(evidence: Mapping[str, float]) -> str:
    return max(_PARTS, key=lambda part: evidence.get(part, 0.0))


def _against_startup(charge: Charge, circumstances: Circumstances) -> Advice:
    evidence = charge.evidence
    again = _epochs(evidence) > 1 and circumstances.workers > 0
    starts_once = (
        circumstances.persistent and circumstances.times_created <= 1 and not circumstances.left
    )
    once = (charge.ns - charge.taken_ns) / (1.0 if starts_once else _epochs(evidence))
    alone = again and evidence.get("making_ns", math.nan) < _CLEARLY_LESS * once
    if alone and not circumstances.workers_needed_at:
        return Advice(
            f"Making all batches takes {duration(evidence['making_ns'])} altogether, far less than "
            f"starting the workers once ({duration(once)}): set {without_workers(circumstances)}, "
            f"and the main process makes them itself.{_kept_instead(circumstances)}",
            no_workers(circumstances, start_up=True).or_code(circumstances.call_site),
        )
    if again and circumstances.times_created > 1:
        where = f" at {circumstances.call_site}" if circumstances.call_site else ""
        return Advice(
            f"The program creates this loader {circumstances.times_created} times{where}: create "
            "it once, before the loop over epochs, with persistent_workers=True. If its data "
            "differ each time, use fewer workers, or none"
            f"{', or start them with fork' if circumstances.spawned else ''}.",
            _MADE_ONCE.or_code(circumstances.call_site),
        )
    most = _against_most_of_startup(evidence, circumstances)
    if again and circumstances.left:
        makes = circumstances.iterable and _main_part(evidence) == "first_batch_ns"
        return Advice(f"{_AGAINST_LEAVING} {most.text}" if makes else _AGAINST_LEAVING)
    if not again or circumstances.persistent or _begins_each_epoch(evidence, circumstances):
        return most
    kept = keep_workers(circumstances).with_changes(most.remedy.changes)
    return Advice(f"{_KEEP} {most.text}", kept)


def _kept_instead(circumstances: Circumstances) -> str:
    """Return what keeps workers of which each epoch starts others; "" if they are kept."""
    if circumstances.times_created > 1:
        kept = "create the loader once instead, with persistent_workers=True"
    elif circumstances.left:
        kept = "take all batches from one iterator instead"
    elif circumstances.persistent:
        return ""
    else:
        kept = "keep the workers instead: persistent_workers=True"
    return f" For longer epochs, {kept}."


def _against_most_of_startup(evidence: Mapping[str, float], circumstances: Circumstances) -> Advice:
    """Return advice against the largest part of the start-up."""
    largest = _largest_part(evidence)
    if largest == "first_batch_ns" and _is_filling(evidence):
        return Advice(
            "Most of it is the wait for the first batch of each epoch, as no batch was prefetched: "
            "epochs of more batches wait less often, and smaller batches are ready sooner."
        )
    if largest == "first_batch_ns" and circumstances.iterable:
        hot = of_program(circumstances.hot) if circumstances.hot else ""
        seen = (
            f" {circumstances.hot[-1].share:.0%} of its code's stack samples were in {hot}."
            if hot
            else ""
        )
        return Advice(
            "Most of it is making the first batch: do less in the data set's __iter__ before it "
            f"yields its first sample, such as filling a smaller shuffle buffer.{seen} What it "
            "does there is done in each epoch, also by workers that are kept.",
            CODE.or_code(hot),
        )
    if largest == "first_batch_ns":
        before = "before the workers start" if circumstances.workers else "before the loop"
        return Advice(
            f"Most of it is making the first batch: open files and build indices once, {before}, "
            f"not in the first __getitem__{' of each worker' if circumstances.workers else ''}."
        )
    if largest == "first_send_ns":
        return Advice(
            "Most of it is the first send of each worker, which imports what pickling needs: "
            "use fewer workers or a newer torch.",
            FEWER_WORKERS,
        )
    if circumstances.spawned:
        blocks = (
            "Most of it is iter(), which blocks if the pickled data set is larger than a pipe's "
            "buffer. "
        )
        return Advice((blocks if largest == "iter_ns" else "") + _against_spawn(evidence))
    if largest == "workers_ns":
        return Advice(
            "Most of it is starting the workers: check worker_init_fn, what the data set does in "
            "a new worker, and the number of workers."
        )
    if not circumstances.workers:
        return Advice(
            "Most of it is iter() itself, which without workers is the __iter__ of the sampler or "
            "of the data set: do what it does there once, before the loop."
        )
    return Advice(
        "Most of it is iter() itself: starting a worker copies the main process's memory map. Use "
        "fewer workers, or start them before large data is loaded.",
        FEWER_WORKERS.or_code(),
    )


_KEEP = "Keep the workers between epochs: set persistent_workers=True."
_MADE_ONCE = Remedy(changes={"persistent_workers": "on"})
# Kept workers first finish what they had begun, so keeping them gains nothing.
_AGAINST_LEAVING = (
    "The program leaves each loop before its end, and the batches that its workers have "
    "prefetched are thrown away: take all batches from one iterator, with `batches = iter(loader)` "
    "before the loops and `next(batches)` in them."
)


def _begins_each_epoch(evidence: Mapping[str, float], circumstances: Circumstances) -> bool:
    """Return True if most of the start-up is the beginning of an iterable data set.

    Kept workers begin it again in each epoch, and save only what is needed to start them.
    """
    first = evidence.get("first_excess_ns", math.nan)
    saved = sum(evidence.get(part, 0.0) for part in ("iter_ns", "workers_ns", "first_send_ns"))
    return circumstances.iterable and first > _FAR_LONGER * saved


def _is_filling(evidence: Mapping[str, float]) -> bool:
    """Return True if first batches took little longer: they are waited for as none is ahead."""
    return evidence.get("first_excess_ns", math.inf) < 0.5 * evidence.get("first_batch_ns", 0.0)


def _against_spawn(evidence: Mapping[str, float]) -> str:
    imports = 'move imports that only training needs below `if __name__ == "__main__":`'
    data = "keep only paths in the data set, or its data in memory maps or shared tensors"
    text = "Each worker that spawn or forkserver starts imports the program again"
    importing, reading = (evidence.get(name, math.nan) for name in _OF_SPAWN)
    if math.isnan(importing + reading):
        return f"{text} and reads the pickled data set: {imports}; {data}; or use fork."
    text += f" ({duration(importing)}) and then reads the pickled data set ({duration(reading)}): "
    return text + (imports if importing > reading else data) + "; or use fork."


STARTUP = CauseRow(
    kind="start-up",
    title="start-up",
    full_title=_startup_title,
    part=cause_row.STARTUP,
    charges=_startup,
    facts={
        "iter_ns": "Blocked in iter(), nanoseconds.",
        "workers_ns": "Waited for workers to start, nanoseconds.",
        "first_batch_ns": "Waited for first batches, nanoseconds.",
        "first_excess_ns": "Of it, what first batches took beyond later ones, nanoseconds.",
        "first_send_ns": "Waited for the first sending of a process, nanoseconds.",
        "making_ns": "Making all batches, except for lacking a core, nanoseconds.",
        "epochs": "Number of epochs.",
        "least_epochs": "Least number of epochs, of a program that was sampled.",
        "importing_ns": "Waited while spawned workers imported the program, in a single epoch, "
        "nanoseconds.",
        "import_ns": "Importing the program in a worker that was spawned, median, nanoseconds.",
        "unpickle_ns": "Reading what was pickled for it, median, nanoseconds.",
    },
    reason=_startup_reason,
    advice=_against_startup,
)


def _shutdown(ledger: Ledger) -> Iterable[Charge]:
    taken = ledger.end_without_core
    yield Charge(SHUTDOWN.kind, SHUTDOWN.title, ledger.tail_ns, taken_ns=taken)


def _against_shutdown(charge: Charge, circumstances: Circumstances) -> Advice:
    if circumstances.times_created > 1:
        return Advice(
            "Create the loader once, before the loop over epochs, with persistent_workers=True.",
            _MADE_ONCE.or_code(circumstances.call_site),
        )
    if circumstances.left and circumstances.workers:
        return Advice(_AGAINST_LEAVING)
    if circumstances.persistent:
        text = "The workers already persist until the end; in a longer run this share is smaller."
        return Advice(text, NOTHING)
    if circumstances.epochs == 1:
        text = "The workers are shut down once; in a longer run this share is smaller."
        return Advice(text, NOTHING)
    return Advice(_KEEP, keep_workers(circumstances) if circumstances.workers else NOTHING)


SHUTDOWN = CauseRow(
    kind="shut-down",
    title="shut-down",
    full_title=fixed("shut-down of the workers at the end of an epoch"),
    part=cause_row.SHUTDOWN,
    charges=_shutdown,
    advice=_against_shutdown,
)


def _rest(ledger: Ledger) -> Iterable[Charge]:
    scope = ledger.scope
    if not scope.partial:
        broken = total(float_column(scope.waits, "wait_ns")[flag(scope.waits, "failed")])
        ns = ledger.take_rest()
        yield Charge(REST.kind, REST.title, ns, {"broken_off_ns": min(broken, ns)})
    elif ledger.charged_ns <= sum(ledger.startup.values()):
        # No wait is known like which those for the other batches could be divided.
        yield Charge(REST.kind, "waits for batches that were not recorded", ledger.take_rest())


def _rest_reason(evidence: Evidence) -> str:
    if not evidence["broken_off_ns"] > 0:
        return ""
    waited = duration(evidence["broken_off_ns"])
    return f"{waited} of waiting was cut short by an error or a signal, before the batch arrived."


def _against_rest(charge: Charge, circumstances: Circumstances) -> Advice:
    if circumstances.partial:
        text = (
            "Record every batch (no --batches, --every or --max-log) to see what they waited for."
        )
    else:
        text = (
            "The run or a worker ended while these batches were being made, or their log was lost: "
            "`lotus top RUN` shows what each process was doing."
        )
    return Advice(text, NOTHING)


REST = CauseRow(
    kind="unseen",
    title="waits for batches that have no record",
    charges=_rest,
    facts={"broken_off_ns": "Waits that ended before their batch was there, nanoseconds."},
    reason=_rest_reason,
    advice=_against_rest,
)
