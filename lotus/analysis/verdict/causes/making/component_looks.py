"""Observations of threads in a component of the batches' making, and where they were blocked."""

import pandas as pd

from lotus.analysis.common.columns import ratio, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.observations.looks import (
    COLLATE,
    OWN_CODE,
    STEP,
    Looks,
    looks_at,
    of_makers,
    places_of_makers,
)
from lotus.analysis.observations.places import MOST, BlockedPlace, most_frequent
from lotus.analysis.verdict.loop_time.ledger import Ledger


def looks_within(ledger: Ledger, name: str) -> Looks:
    """Return the observations of threads in the component of this name."""
    names = ledger.batch_making.components.names
    return looks_of(ledger, names.index(name)) if name in names else Looks()


def looks_of(ledger: Ledger, component: int) -> Looks:
    """Return the observations of its threads; none if there are none of such a component."""
    parts, operation = ledger.batch_making.components, _operation(ledger, component)
    if operation is None:
        return Looks()
    time_share = ratio(total(parts.parts[:, component]), total(parts.fetch))
    return looks_at(of_makers(ledger.scope), operation, time_share)


def place_of(ledger: Ledger, component: int, looks: Looks, *reasons: str) -> BlockedPlace | None:
    """Return where most of its threads were blocked, for the most frequent of `reasons`.

    None if that is not known, or if no place has most of these observations.
    """
    operation = _operation(ledger, component)
    if operation is None:
        return None
    return _mostly_at(places_of_makers(ledger.scope), operation, looks, reasons)


def place_of_step(scope: Scope, looks: Looks) -> BlockedPlace | None:
    """Return the same of the training loop between two batches."""
    return _mostly_at(scope.places, STEP, looks, (looks.reason,))


def _operation(ledger: Ledger, component: int) -> str | None:
    """Return what a component is called in the table of observations; None: it is not there."""
    parts = ledger.batch_making.components
    names = {"operation": parts.names[component], "dataset": OWN_CODE, "collate": COLLATE}
    return names.get(parts.kinds[component])


def _mostly_at(
    places: pd.DataFrame, operation: str, looks: Looks, reasons: tuple[str, ...]
) -> BlockedPlace | None:
    found = [reason for reason in reasons if reason in looks.shares]
    if not looks.are_enough or not found:
        return None
    reason = max(found, key=lambda each: looks.shares[each])
    place = most_frequent(places, operation, reason, looks.shares[reason] * looks.count)
    return place if place and place.share >= MOST else None
