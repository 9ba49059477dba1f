"""Limits that all workers share: what serves them one at a time, as a lock, a line, a process."""

from lotus.analysis.machine.core_use import CoreUse
from lotus.analysis.observations.looks import LOCAL_SOCKET, SHARED_LOCK
from lotus.analysis.samples.mutual_slowing import SHARES_LIMIT
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import CODE_NOT_WORKERS
from lotus.analysis.verdict.causes.cause_row import Charge, Evidence
from lotus.analysis.verdict.causes.making.waiting import looked
from lotus.common.text.formatting import duration

PACED = ("sleep", "socket", "events", LOCAL_SOCKET)  # how a thread awaits its turn at a limit
# A process that answers at once: those who ask it pack and unpack for this share of their time, or
# it computes on so many cores.
_PACKS, _ANSWERS_CORES = 0.25, 0.3


def against_shared_limit(charge: Charge, circumstances: Circumstances) -> Advice | None:
    """Return advice if all workers ask for what serves them one at a time; else None."""
    if takes_turns(looked(charge).reason, circumstances.workers):
        return Advice(
            "Processes wait for each other at a lock, so more workers will not help. Hold it for "
            "less time, give each worker its own file or connection, or avoid the lock.",
            CODE_NOT_WORKERS,
        )
    if asks_who_computes(charge, circumstances.use):
        computes = (
            "which computes the answers for all workers: more workers will not help"
            if circumstances.use.kept_cores >= _ANSWERS_CORES
            else "and if it computes the answers for all workers, more workers will not help"
        )
        of_workers = f", {computes}" if circumstances.workers else ""
        return Advice(
            f"Each access is a message to that process{of_workers}. If it is a "
            "multiprocessing.Manager(), whose dict() and list() do this, keep the data in an array "
            "or tensor that the workers share by fork or in shared memory; or open it once in each "
            "worker.",
            CODE_NOT_WORKERS,
        )
    if is_paced(charge):
        return Advice(f"{_how_paced(charge)}, {_paced_by(charge)}", CODE_NOT_WORKERS)
    return None


def takes_turns(reason: str, workers: int) -> bool:
    """Return True if it waits for what only one process at a time can have."""
    return reason == SHARED_LOCK and workers > 1


def asks_who_computes(charge: Charge, use: CoreUse) -> bool:
    """Return True if it asks a process that computes its answers rather than waits itself."""
    looks = looked(charge)
    packs = 1.0 - looks.blocked_share >= _PACKS
    return looks.reason == LOCAL_SOCKET and (packs or use.kept_cores >= _ANSWERS_CORES)


def is_paced(charge: Charge) -> bool:
    """Return True if samples come as if the workers shared a limit."""
    evidence = Evidence(charge.evidence)
    if looked(charge).reason not in PACED:
        return False
    return evidence.has("shared_pace_ns") or evidence["mutual_slowing"] >= SHARES_LIMIT


def _how_paced(charge: Charge) -> str:
    if Evidence(charge.evidence).has("shared_pace_ns"):
        every = duration(charge.evidence["shared_pace_ns"])
        return f"A sample arrived every {every}, whichever worker asked"
    return "A sample takes less time while fewer are made at a time"


def _paced_by(charge: Charge) -> str:
    """Return what seems to pace the samples, and what to do about it."""
    if looked(charge).reason == LOCAL_SOCKET:
        return (
            "as if the process that is asked answered the workers one after the other: with a "
            "higher num_workers, each would wait longer. Let it answer several at a time (a thread "
            "for each connection), ask it for many samples at once, or do its work in the workers."
        )
    return (
        "as if all workers shared a rate limit or one connection: with a higher num_workers, each "
        "would wait longer. Request several samples at a time or fewer bytes, keep a copy nearby, "
        "or raise the limit."
    )
