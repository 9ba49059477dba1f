"""Which processes stood at one point for long, from looks at them."""

import pytest

from lotus.recording.looks import standing_processes
from lotus.recording.looks.look_counts import IN_NEXT, IN_OWN_CODE
from lotus.recording.looks.standing_processes import LEAST_NS, Standing

BEGIN = 1_000


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The clock: its last value is the time."""
    times = [BEGIN]
    monkeypatch.setattr(standing_processes.time, "monotonic_ns", lambda: times[-1])
    return times


def test_a_process_that_stays_at_one_point_is_kept_with_its_most_frequent_state(
    now: list[int],
) -> None:
    stands = Standing()
    for place, reason in enumerate(("computing", "lock", "lock")):
        now.append(BEGIN + place * LEAST_NS)
        stands.look((7, 0), (3, BEGIN), reason, "/lock" if place else "")
    assert stands.longest({7}) == (7, 0)
    assert stands.longest({8}) is None
    assert stands.rows() == [
        {
            "pid": 7, "worker": 0, "operation": 3, "reason": "lock", "alike": 2, "looks": 3,
            "place": "/lock", "since_ns": BEGIN, "seen_ns": BEGIN + 2 * LEAST_NS,
        }
    ]  # fmt: skip


def test_one_that_awaits_a_batch_is_not_what_others_wait_for(now: list[int]) -> None:
    stands = Standing()
    stands.look((6, -1), (IN_NEXT, BEGIN), "events", "")
    now.append(BEGIN + LEAST_NS // 2)
    stands.look((7, 0), (IN_OWN_CODE, BEGIN + LEAST_NS // 2), "lock", "")
    now.append(BEGIN + 2 * LEAST_NS)
    stands.look((6, -1), (IN_NEXT, BEGIN), "events", "")
    assert stands.longest({6, 7}) is None
    stands.look((7, 0), (IN_OWN_CODE, BEGIN + LEAST_NS // 2), "lock", "")
    assert stands.longest({6, 7}) == (7, 0)
    assert [row["pid"] for row in stands.rows()] == [6, 7]


def test_one_that_goes_on_is_not(now: list[int]) -> None:
    stands = Standing()
    stands.look((7, 0), (3, BEGIN), "lock", "")
    now.append(BEGIN + 2 * LEAST_NS)
    stands.look((7, 0), (3, BEGIN), "lock", "")
    stands.look((7, 0), (3, BEGIN + LEAST_NS + 1), "computing", "")
    assert stands.longest({7}) is None
    assert stands.rows() == []


def test_one_that_ends_after_a_long_stand_is_kept_and_any_other_is_forgotten(
    now: list[int],
) -> None:
    stands = Standing()
    stands.look((7, 0), (3, BEGIN), "lock", "")
    stands.look((8, 1), (3, BEGIN), "lock", "")
    now.append(BEGIN + LEAST_NS)
    stands.look((7, 0), (3, BEGIN), "lock", "")
    stands.forget_if_short(7)
    stands.forget_if_short(8)
    now.append(BEGIN + 3 * LEAST_NS)
    stands.look((8, 1), (3, BEGIN), "lock", "")  # of a new process with that number
    assert [row["pid"] for row in stands.rows()] == [7, 8]
