"""Tests of gains/advise_demos.py: kept rows are not measured again, gains are paired by round."""

from pathlib import Path

from tests.unit.benches import bench

demos = bench("gains.advise_demos")
measurements = bench("measurements")


def row(number: int, way: str, later_s: float, losses: str) -> object:
    return demos.Row(number, "text", way, 2.5, later_s, losses, 0.5, "abc", "2026-11-26 02:00:00")


def test_rows_that_were_written_are_read_again_and_paired_by_round(tmp_path: Path) -> None:
    kept = measurements.Measurements(tmp_path, "advise_demos", demos.Row)
    rows = [row(0, "own", 2.0, "0.1"), row(0, "exact", 1.0, "0.1"), row(1, "own", 4.0, "0.1")]
    kept.write(rows)
    kept.append(row(1, "exact", 1.0, "0.2"), row(2, "exact", 9.0, "0.1"))
    advice = {"sentence": "At most 3 times", "shares": [], "alternative_speedups": {}}
    plan = {"sentence": "Do not cache"}
    tune = {"benefit": True, "best": {"num_workers": 1, "threads": None}, "checked": None}
    tune["speedup"] = {"mean": 1.5}
    said = {"text": {"advise": {"seconds": 60.0, "load": 0.1, **advice}}}
    said["text"] |= {"plan": plan, "tune": tune}
    text = demos.table(kept.read(), said)
    assert "3.000 (2.000 to 4.000)" in text  # the script's own
    assert "3.000 (2.000 to 4.000) others" in text  # 2 and 4 times; round 2 has no pair
    assert "At most 3 times (60 s, load 0.1)" in text
    assert "plan: Do not cache\n    tune: 1.50 times as fast with num_workers 1\n" in text


def test_epochs_of_both_kinds_of_scripts_are_read() -> None:
    light = "epoch 0 1.2500 s, loss 2.1\nepoch 1 1.0000 s, loss 2.0\n"
    assert demos.epochs_of(light) == ([1.25, 1.0], ["2.1", "2.0"])
    plain = "epoch 0: loss 2.1, 512 images in 1.0 s, 500 images/s\n"
    assert demos.epochs_of(plain)[1] == ["2.1"]
