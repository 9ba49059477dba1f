"""What training steps lose as workers compute on their cores, charged to what the workers compute.

It is the same cause as the waits for these batches: without that work, both are gone.
"""

import math
from dataclasses import replace

import numpy as np

from lotus.analysis.common.columns import int_column, ratio
from lotus.analysis.machine.core_use import MUCH_KEPT, left_cores
from lotus.analysis.machine.cpu_sums import helpers_ns, idle_helpers_ns, workers_ns
from lotus.analysis.machine.undelayed_steps import undelayed_step
from lotus.analysis.replay.gain_prediction import GainPrediction
from lotus.analysis.verdict.causes import BY_KIND
from lotus.analysis.verdict.causes.cause_row import LOST_STEPS, WAITS, Charge
from lotus.analysis.verdict.causes.cores.few_cores import AFFINITY
from lotus.analysis.verdict.causes.cores.step_delay import STEP_DELAY
from lotus.analysis.verdict.causes.cores.step_threads import STEP_THREADS
from lotus.analysis.verdict.causes.making.shared_limit import asks_who_computes
from lotus.analysis.verdict.causes.step.interpreter import INTERPRETER, STEP_HELD
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.numbers.array_types import Floats

# Of the loop: with fewer waits the steps set the pace, and their loss is a cause of its own.
_LEAST_WAITS = 0.05
# Of the loop that steps lose, and times as fast without the making of batches: less is not moved.
_MUCH_LOST, _WORTH = 0.2, 1.2
_MUCH_OWN = 0.3  # of the cores' time: the program is in its own way although others use the rest
_SOME = 1e-3  # of the loss to threads, where that to other processes is all
# Causes that have to do with the cores or the interpreter in another way.
_OTHER_REASONS = (INTERPRETER.kind, STEP_HELD.kind, AFFINITY.kind)


def with_lost_steps(charges: list[Charge], ledger: Ledger) -> list[Charge]:
    """Return the charges, in which the work of workers has what steps lose to it.

    Only where the program itself keeps the cores busy, or much of those that other programs use as
    well. Most of it makes batches that are waited for: each kind of work gets a part as large as
    that of the waits for it. Or the loop would gain more without that work than with one thread in
    the steps: each kind of work gets a part as large as that of its time.
    """
    if not _competes(charges, ledger):
        return charges
    part = _part_of_workers(charges, ledger)
    asking, by_gain = _asking(charges, ledger), _part_by_gain(charges, ledger)
    weights = [_weight(charge, waits=any(charge is it for it in asking)) for charge in charges]
    if part > 0 and by_gain > 0:
        part = min(part, by_gain)
    if not part > 0 or not sum(weights) > 0:
        part = by_gain
        weights = [_weight(charge, "total_ns") for charge in charges]
    if not part > 0 or not sum(weights) > 0:
        return charges
    moved = [charge.ns * _moved_share(charge, part) for charge in charges]
    lost, by_batch = sum(moved), _by_batch(charges, moved)
    if not lost > 0:
        return charges
    return [
        _with_part(_without(charge, ns), lost, by_batch, weight / sum(weights))
        for charge, ns, weight in zip(charges, moved, weights, strict=True)
        if ns < charge.ns or not ns
    ]


def _competes(charges: list[Charge], ledger: Ledger) -> bool:
    """Return True if workers that make batches and steps keep all cores busy."""
    use = ledger.use
    kept = (use.kept and not _asking(charges, ledger)) or use.beside_cores >= MUCH_KEPT
    others = any(charge.kind in _OTHER_REASONS for charge in charges)
    full = use.full or (use.all_used and use.own_share >= _MUCH_OWN)
    return bool(ledger.scope.num_workers and full and not kept and not others)


def _asking(charges: list[Charge], ledger: Ledger) -> list[Charge]:
    """Return the work that asks a process of the program, which uses cores to answer."""
    return [
        charge for charge in charges if charge.waited_ns and asks_who_computes(charge, ledger.use)
    ]


def _part_of_workers(charges: list[Charge], ledger: Ledger) -> float:
    """Return the workers' part of the CPU time that steps compete with, 0 to 1; 0.0: leave all.

    The rest is that of the steps' own helper threads; where these use more, they are the cause.
    """
    scope = ledger.scope
    waited = sum(charge.waited_ns for charge in charges if BY_KIND[charge.kind].part == WAITS)
    if waited < _LEAST_WAITS * ledger.loop_ns:
        return 0.0
    of_workers = workers_ns(scope)
    if _asking(charges, ledger):
        of_workers += ledger.use.kept_cores * ledger.loop_ns
    helpers = helpers_ns(scope.waits, "step") + idle_helpers_ns(scope)
    alone = undelayed_step(scope.waits)
    if alone:  # what more they use is the loss itself
        helpers = max(alone.process_cpu_ns - alone.took_ns, 0.0) * len(scope.waits)
    return of_workers / (of_workers + helpers) if of_workers > helpers else 0.0


def _part_by_gain(charges: list[Charge], ledger: Ledger) -> float:
    """Return the part of the loss to threads, 0 to 1, that is due to the making of batches.

    All that steps lose is divided as the gains without that making and with one thread are. 0.0
    where one thread would gain more, or that is not known, or where torch computes in more threads
    than there are cores: that is the cause then.
    """
    scope, use = ledger.scope, ledger.use
    lost = {
        kind: sum(charge.ns for charge in charges if charge.kind == kind)
        for kind in (STEP_THREADS.kind, STEP_DELAY.kind)
    }
    threads = max(int_column(scope.epochs, "torch_threads"), default=-1)
    if sum(lost.values()) < _MUCH_LOST * ledger.loop_ns or not 0 < threads <= scope.machine_cores:
        return 0.0
    prediction = GainPrediction(scope, left_cores(scope, use))
    gains = prediction.without_making().gain, prediction.with_one_thread().gain
    if not gains[0] >= max(_WORTH, gains[1]) or not math.isfinite(gains[1]):
        return 0.0
    saved, by_threads = (max(1.0 - 1.0 / gain, 0.0) for gain in gains)
    of_making = sum(lost.values()) * saved / (saved + by_threads)
    moved = ratio(of_making - lost[STEP_DELAY.kind], lost[STEP_THREADS.kind])
    return min(max(moved, _SOME), 1.0)


def _weight(charge: Charge, measure: str = "", waits: bool = False) -> float:
    """Return the waits for work that computes in the workers, ns; 0.0 for any other cause.

    `measure`: this evidence instead of the waits. `waits`: while it waits, what it asks computes.
    """
    if LOST_STEPS not in BY_KIND[charge.kind].facts:
        return 0.0
    waiting = 0.0 if waits else charge.evidence.get("waiting_share", math.nan)
    ns = charge.evidence.get(measure, 0.0) if measure else charge.waited_ns
    return float(ns * (1.0 - np.nan_to_num(waiting)))


def _moved_share(charge: Charge, part: float) -> float:
    if charge.kind == STEP_DELAY.kind:
        return 1.0
    return part if charge.kind == STEP_THREADS.kind else 0.0


def _by_batch(charges: list[Charge], moved: list[float]) -> Floats | None:
    """Return how much is moved at each batch (n,); None: not known."""
    parts = []
    for charge, ns in zip(charges, moved, strict=True):
        if ns > 0:
            if charge.by_batch is None:
                return None
            parts.append(charge.by_batch * (ns / charge.ns))
    return np.asarray(np.sum(parts, axis=0), np.float64)


def _without(charge: Charge, ns: float) -> Charge:
    if not ns > 0:
        return charge
    left = 1.0 - ns / charge.ns
    by_batch = None if charge.by_batch is None else charge.by_batch * left
    taken_ns = charge.taken_ns * left
    return replace(charge, ns=charge.ns * left, taken_ns=taken_ns, by_batch=by_batch)


def _with_part(charge: Charge, lost: float, by_batch: Floats | None, part: float) -> Charge:
    if not part > 0:
        return charge
    both = None
    if charge.by_batch is not None and by_batch is not None:
        both = charge.by_batch + by_batch * part
    return replace(
        charge,
        ns=float(charge.ns + lost * part),
        step_ns=float(charge.step_ns + lost * part),
        evidence={**charge.evidence, LOST_STEPS: lost * part},
        by_batch=both,
    )
