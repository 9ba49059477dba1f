"""How long a loop is that is to be tuned, and what is said of one that is over in a moment."""

import dataclasses
from typing import Any

import pytest

from lotus.settings.space import Setting
from lotus.settings.tuned_file import Target
from lotus.tune.program.program import Watched
from lotus.tune.search.loop_length import NotWorthTuningError, check, loop_s


def watched(
    batches: int | None, waits_s: list[float], steps_s: list[float], **more: Any
) -> Watched:
    made = Watched(
        loader=Target(dataset="Pictures", dataset_length=40),
        setting=Setting(0),
        pid=1,
        torch="2.15.0",
        iterable=False,
        batch_size=4,
        batches=batches,
        waits_s=tuple(waits_s),
        steps_s=tuple(steps_s),
        sizes=(4,) * len(waits_s),
        startup_s=waits_s[0] if waits_s else None,
    )
    return dataclasses.replace(made, **more)


def test_a_loop_of_a_moment_is_not_worth_tuning() -> None:
    short = watched(10, [0.02] * 10, [0.01] * 10)
    with pytest.raises(NotWorthTuningError) as caught:
        check(short)
    message = str(caught.value)
    assert message.startswith(
        "an epoch of the loader of Pictures (40 samples) takes 300 ms, 10 batches"
    )
    assert message.endswith("lotus tune -f -- COMMAND")


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (watched(10, [0.02] * 10, [0.01] * 10), 0.3),
        (watched(100, [0.02] * 12, [0.01] * 12), 3.0),
        # Its first step does what no other does, once.
        (watched(20, [0.02] * 12, [0.5] + [0.01] * 11), 0.52 + 19 * 0.03),
        # So does the start of workers, of which a part may be in `iter`.
        (watched(20, [0.1] + [0.02] * 11, [0.01] * 12, startup_s=0.4), 0.41 + 19 * 0.03),
        (watched(None, [0.02] * 10, [0.01] * 10), None),
        (watched(None, [0.02] * 10, [0.01] * 10, loop_s=0.31), 0.31),
        (watched(10, [], []), None),
        (watched(1, [0.02], [0.01]), 0.03),
        (watched(0, [0.02], [0.01]), 0.03),
    ],
)
def test_how_long_an_epoch_is(seen: Watched, expected: float | None) -> None:
    assert loop_s(seen) == (None if expected is None else pytest.approx(expected))
    if expected is None or expected >= 1:
        check(seen)
