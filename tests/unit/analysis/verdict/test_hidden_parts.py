"""Hidden waits are divided as the making of batches is, and no part is given twice."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lotus.analysis.verdict.causes.hidden_waits import HiddenWaits
from lotus.analysis.verdict.verdict import title_with_hidden


def hidden(wait_ns: float = 100.0) -> HiddenWaits:
    loop: Any = SimpleNamespace(wait_ns=wait_ns + 20.0, sending_ns=20.0)
    # Two components; in half of the second batch others had its core.
    return HiddenWaits(loop, np.array([[30.0, 10.0], [100.0, 20.0]]), np.array([1.0, 0.5]))


def test_they_are_divided_by_what_the_making_takes_with_a_core() -> None:
    waits = hidden()
    assert waits.of_component(0) == pytest.approx(80.0)
    assert waits.of_component(1) == pytest.approx(20.0)


def test_slow_samples_take_their_part_first() -> None:
    waits = hidden()
    assert waits.take(np.array([75.0, 0.0])) == pytest.approx(75.0)
    assert waits.of_component(0) == pytest.approx(5.0)
    assert waits.of_component(1) == pytest.approx(20.0)
    assert waits.take(np.array([5.0, 20.0])) == pytest.approx(25.0)
    assert waits.of_component(0) == waits.of_component(1) == 0.0


def test_a_slow_worker_takes_a_part_of_its_batches() -> None:
    waits = hidden()
    # Half of the first batch: 15 and 5 of the 100.
    assert waits.take_part(np.array([0.5, 0.0])) == pytest.approx(20.0)
    assert waits.of_component(0) == pytest.approx(65.0)
    assert waits.of_component(1) == pytest.approx(15.0)


def test_where_none_are_hidden_there_is_nothing_to_take() -> None:
    waits = hidden(wait_ns=-5.0)
    assert waits.take(np.array([75.0, 0.0])) == waits.of_component(0) == 0.0


@pytest.mark.parametrize(
    ("hidden_ns", "title"),
    [(30.0, "decode, 24% of the loop without other programs"), (1.0, "decode"), (0.0, "decode")],
)
def test_a_title_says_what_is_hidden_where_it_is_more_than_a_little(
    hidden_ns: float, title: str
) -> None:
    loop: Any = SimpleNamespace(wait_ns=50.0, step_ns=75.0)
    assert title_with_hidden("decode", hidden_ns, loop) == title
