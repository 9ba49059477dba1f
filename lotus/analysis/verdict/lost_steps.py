"""What training steps lose as workers compute on their cores, charged to what the workers compute.

It is the same cause as the waits for these batches: without that work, both are gone.
"""

import math
from dataclasses import replace

import numpy as np

from lotus.analysis.common.columns import float_column, int_column, total
from lotus.analysis.machine.core_use import MUCH_KEPT
from lotus.analysis.machine.idle_helpers import helpers_ns, idle_helpers_ns
from lotus.analysis.verdict.causes import BY_KIND
from lotus.analysis.verdict.causes.cause_row import LOST_STEPS, WAITS, Charge
from lotus.analysis.verdict.causes.cores.few_cores import AFFINITY
from lotus.analysis.verdict.causes.cores.step_delay import STEP_DELAY
from lotus.analysis.verdict.causes.cores.step_threads import STEP_THREADS
from lotus.analysis.verdict.causes.step.interpreter import INTERPRETER, STEP_HELD
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.numbers.array_types import Floats

# Of the loop: with fewer waits the steps set the pace, and their loss is a cause of its own.
_LEAST_WAITS = 0.05
# Causes that have to do with the cores or the interpreter in another way.
_OTHER_REASONS = (INTERPRETER.kind, STEP_HELD.kind, AFFINITY.kind)


def with_lost_steps(charges: list[Charge], ledger: Ledger) -> list[Charge]:
    """Return the charges, in which the work of workers has what steps lose to it.

    Only where the program itself keeps the cores busy, most of it by making batches, and where
    these are waited for. Each kind of work gets a part as large as that of the waits for it.
    """
    part = _part_of_workers(charges, ledger)
    weights = [_weight(charge) for charge in charges]
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


def _part_of_workers(charges: list[Charge], ledger: Ledger) -> float:
    """Return the workers' part of the CPU time that steps compete with, 0 to 1; 0.0: leave all.

    The rest is that of the steps' own helper threads; where these use more, they are the cause.
    """
    use, scope = ledger.use, ledger.scope
    waited = sum(charge.waited_ns for charge in charges if BY_KIND[charge.kind].part == WAITS)
    if not scope.num_workers or not use.full or waited < _LEAST_WAITS * ledger.loop_ns:
        return 0.0
    if use.kept or use.beside_cores >= MUCH_KEPT:
        return 0.0
    if any(charge.kind in _OTHER_REASONS for charge in charges):
        return 0.0
    batches, waits = scope.batches, scope.waits
    of_workers = total(float_column(batches, "process_cpu_ns")[int_column(batches, "worker") >= 0])
    helpers = helpers_ns(waits, "step") + idle_helpers_ns(scope)
    return of_workers / (of_workers + helpers) if of_workers > helpers else 0.0


def _weight(charge: Charge) -> float:
    """Return the waits for work that computes in the workers, ns; 0.0 for any other cause."""
    if LOST_STEPS not in BY_KIND[charge.kind].facts:
        return 0.0
    waiting = charge.evidence.get("waiting_share", math.nan)
    return float(charge.waited_ns * (1.0 - np.nan_to_num(waiting)))


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
