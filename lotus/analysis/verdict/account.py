"""The account of a loop: what its time is owed to, in charges that add up to it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pandas as pd

from lotus.analysis.common.columns import float_column, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.common.warm_up import WARM_UP
from lotus.analysis.data.data_shares import DataShares
from lotus.analysis.machine.core_use import CoreUse
from lotus.analysis.replay.undisturbed_epochs import undisturbed_loop
from lotus.analysis.verdict.cause_spread import UNKNOWN, CauseSpread, cause_spread
from lotus.analysis.verdict.causes import BY_KIND, CAUSES
from lotus.analysis.verdict.causes.cause_row import SHUTDOWN, STEP, WAITS, CauseRow, Charge
from lotus.analysis.verdict.causes.cores.other_programs import OTHERS
from lotus.analysis.verdict.loop_time.batch_making import BatchMaking
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.analysis.verdict.lost_steps import with_lost_steps
from lotus.common.storage import long_arrays

_LEAST_NS = 1.0
_WHOLE = 0.99  # of a charge: counts as all of it
_LEAST_SHARE = 0.01  # of the loop: smaller charges get no interval


@dataclass(frozen=True)
class Account:
    """The loop of one loader, all epochs and ranks added up.

    `charges` add up to `loop_ns`. `epochs` is `waits.loop_times`, `phases` has the sums of
    `waits.wait_phases`, `workers` is `components.slow_workers`, `use` is `core_use`, and
    `shares` is `divided_data`.
    """

    loop_ns: float
    iter_ns: float
    wait_ns: float
    step_ns: float
    own_ns: float  # part of step_ns: lotus's own work
    tail_ns: float
    epochs: pd.DataFrame
    phases: dict[str, float]
    workers: pd.DataFrame
    charges: list[Charge]
    use: CoreUse
    shares: DataShares
    delay_share: float = 0.0  # of the making of batches, which other programs kept from the cores
    spread: CauseSpread = UNKNOWN  # how `charges` vary between batches
    # The loop without other programs, by a replay; None: not known, or it hardly waits.
    without_others: "Account | None" = None
    warm_up_ns: float = 0.0  # of first steps, beyond a usual one; no part of loop_ns


def account(scope: Scope) -> Account:
    """Charge the time of the loader's loop, and that of its replay without other programs."""
    batch_making = BatchMaking(scope)
    loop = undisturbed_loop(scope, batch_making.use)
    loop_account = _account(Ledger(batch_making))
    if loop is None or not loop.waits_for_data:
        return _with_spread(loop_account, scope.batches)
    without_others = _account(Ledger(batch_making, loop))
    del batch_making  # its matrices take as much memory as what follows
    return replace(
        _with_spread(loop_account, scope.batches),
        without_others=_with_spread(without_others, loop.batches),
    )


def _account(ledger: Ledger) -> Account:
    charges: list[Charge] = []
    for row in CAUSES:
        # What other programs took of the steps is listed with what they took of the waits.
        of_step = row is OTHERS and any(charge.taken_ns >= _LEAST_NS for charge in charges)
        listed = row.silent or of_step
        taken = [charge for charge in _taken(row, ledger) if charge.ns >= _LEAST_NS or listed]
        if row.part not in (STEP, SHUTDOWN):
            ledger.charged_ns += sum(charge.waited_ns for charge in taken)
        charges += taken
    if ledger.scope.partial:
        charges = _extrapolated(charges, ledger.uncharged_ns)
    charges = with_lost_steps(charges, ledger)
    return Account(
        loop_ns=ledger.loop_ns,
        iter_ns=ledger.iter_ns,
        wait_ns=ledger.wait_ns,
        step_ns=ledger.step_ns,
        own_ns=ledger.own_ns,
        warm_up_ns=total(float_column(ledger.loop, WARM_UP)),
        tail_ns=ledger.tail_ns,
        epochs=ledger.loop,
        phases=ledger.phases,
        workers=ledger.batch_making.workers,
        charges=sorted(charges, key=lambda charge: -charge.ns),
        use=ledger.use,
        shares=ledger.batch_making.shares,
        delay_share=ledger.delay_share,
    )


def _with_spread(loop_account: Account, batches: pd.DataFrame) -> Account:
    large = [
        charge for charge in loop_account.charges if charge.ns > _LEAST_SHARE * loop_account.loop_ns
    ]
    return replace(loop_account, spread=cause_spread(batches, large))


def _taken(row: CauseRow, ledger: Ledger) -> Iterator[Charge]:
    """Yield the charges of a cause, each with how much of it was at each batch."""
    left = ledger.left
    for charge in row.charges(ledger):
        before, left = left, ledger.left
        taken = before - left
        # The part in the steps may have been taken earlier, from all steps together.
        known = not charge.step_ns or total(taken) > _WHOLE * charge.ns
        yield replace(charge, by_batch=long_arrays.kept(taken) if known else None)


def _scaled(charge: Charge, scale: float) -> Charge:
    by_batch = None if charge.by_batch is None else charge.by_batch * scale
    return replace(charge, ns=charge.step_ns + charge.waited_ns * scale, by_batch=by_batch)


def _extrapolated(charges: list[Charge], uncharged_ns: float) -> list[Charge]:
    """Divide the waits for batches that were not to be recorded like those for the others."""
    recorded = sum(charge.waited_ns for charge in charges if BY_KIND[charge.kind].part == WAITS)
    if recorded <= 0 or uncharged_ns <= 0:
        return charges
    scale = 1.0 + uncharged_ns / recorded
    return [
        _scaled(charge, scale) if BY_KIND[charge.kind].part == WAITS else charge
        for charge in charges
    ]
