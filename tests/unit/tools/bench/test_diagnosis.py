"""diagnosis.py: gains of one loader and of all loops, and when a prediction holds."""

import pytest

from tests.unit.benches import bench

diagnosis = bench("diagnosis")
DOCUMENT = {
    "loaders": [{"loader": 1}],
    "time": {
        "wall_ns": 17e9,
        "pauses": 0,
        "parts": [
            {"kind": "imports", "loader": -1, "ns": 7e9},
            {"kind": "step", "loader": 0, "ns": 6e9},
            {"kind": "wait", "loader": 1, "ns": 4e9},
        ],
    },
}


def test_a_gain_of_one_loader_counts_by_its_share_of_all_loops() -> None:
    assert diagnosis.of_all_loops(DOCUMENT, 4.0) == pytest.approx(10 / 7)
    assert diagnosis.of_all_loops(DOCUMENT, None) is None
    assert diagnosis.of_all_loops(DOCUMENT | {"time": None}, 4.0) == 4.0


@pytest.mark.parametrize(
    ("at_best", "gain", "held"),
    [(False, 1.2, True), (False, 1.0, False), (True, 1.0, True), (True, 1.6, False)],
)
def test_at_most_has_no_lower_end(at_best: bool, gain: float, held: bool) -> None:
    expected = {"gain": 1.3, "low": 1.1, "high": 1.5, "at_best": at_best}
    assert diagnosis.holds(expected, gain) is held
