"""Tells by observations for what blocked work waits, where that is a cause of its own."""

import math
from dataclasses import replace

from lotus.analysis.machine.core_use import CoreUse
from lotus.analysis.observations.looks import LOCAL_SOCKET
from lotus.analysis.samples.mutual_slowing import SHARES_LIMIT, SHARES_NONE
from lotus.analysis.verdict.causes.cause_row import Charge, Evidence
from lotus.analysis.verdict.causes.making.shared_limit import (
    asks_who_computes,
    is_paced,
    takes_turns,
)
from lotus.analysis.verdict.causes.making.waiting import READING, looked

SHARED_LOCK, SHARED_LIMIT, LATENCY = "shared-lock", "shared-limit", "latency"
WAITING = 0.5  # off the CPU for more than this share: waits, does not compute
_IN_CHILDREN = 0.5  # of the CPU time, in processes that it starts: they compute
_ANSWERED = ("socket", "events", LOCAL_SOCKET, *READING)  # by storage, or by another process


def as_blocked(charge: Charge, workers: int, use: CoreUse) -> Charge:
    """Return the charge of work as that of what blocks it, where that was measured.

    Otherwise the same charge. `workers`: of a rank.
    """
    kind = _kind(charge, workers, use)
    return replace(charge, kind=kind, work=charge.kind) if kind else charge


def _kind(charge: Charge, workers: int, use: CoreUse) -> str:
    reason, slowing = looked(charge).reason, Evidence(charge.evidence)["mutual_slowing"]
    if takes_turns(reason, workers):
        return SHARED_LOCK
    if not is_off_cpu(charge) or starts_programs(charge, use):
        return ""
    if is_paced(charge) or (reason in READING and slowing >= SHARES_LIMIT):
        return SHARED_LIMIT
    apart = reason in _ANSWERED and slowing <= SHARES_NONE
    return LATENCY if apart and not asks_who_computes(charge, use) else ""


def is_off_cpu(charge: Charge) -> bool:
    """Return True if it waits for most of its time, and does not compute."""
    return charge.evidence.get("waiting_share", math.nan) > WAITING


def starts_programs(charge: Charge, use: CoreUse) -> bool:
    """Return True if it waits for processes of its own, which compute."""
    for_processes = looked(charge).reason in ("child", "pipe", "events")
    return for_processes and use.children_share >= _IN_CHILDREN
