"""The charge of a prefetch factor that is too small."""

from types import SimpleNamespace
from typing import cast

from lotus.analysis.replay.prefetch_replay import NOTHING
from lotus.analysis.verdict.causes.making.prefetch import _charge
from lotus.analysis.verdict.loop_time.ledger import Ledger


def test_where_no_batch_was_waited_for_while_it_was_made_nothing_is_charged() -> None:
    asked: list[float] = []

    def take(share: float) -> float:
        asked.append(share)
        return 0.0

    ledger = SimpleNamespace(
        better_prefetch=NOTHING,
        all_making_ns=0.0,
        batch_making=SimpleNamespace(slow_every=0),
        take_share_with_core=take,
    )
    assert _charge(cast(Ledger, ledger)).ns == 0.0
    assert asked == [0.0]  # a share that is not a number would make all that is left one
