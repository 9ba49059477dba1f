"""ranks/modes_*.py: speed that costs accuracy is reported as such, within a round."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.benches import FACTS, bench

measurements = bench("measurements")
plot = bench("ranks.modes_plot")
table = bench("ranks.modes_table")

MODES = {"as written": "torchrun", "local": "lotus run --mode local", "async": "--mode async"}


def run(number: int, mode: str, seconds: float, *losses: float) -> list:
    common = {"samples": "64/64", "commit": "abc1234", "at": "2026-01-02 03:04"}
    return [
        table.Row(number, mode, epoch, seconds=seconds, loss=loss, right=1 - loss / 4, **common)
        for epoch, loss in enumerate(losses, 1)
    ]


ROWS = [
    *run(0, "as written", 4.0, 2.0, 1.0),
    *run(0, "local", 2.0, 2.1, 1.2),
    *run(0, "async", 1.0, 1.5, 0.9),
    # Another seed is another task: its losses are compared with those of the same seed only.
    *run(1, "as written", 4.4, 1.4, 0.5),
    *run(1, "local", 2.0, 1.4, 0.6),
    *run(1, "async", 1.1, 1.4, 0.7),
]
KNOWN = {
    "facts": {**FACTS, "pictures": 128, "epochs": 2},
    "cell": {"words": "0.7 cores | 0.4 cores", "model": "cnn", "batch": 64},
    "modes": MODES,
    "told": {
        "recommended": "as written",
        "option": "local",
        "epoch_s": {"as written": [4.2, 4.0, 4.4], "local": [3.0, None, None]},
    },
}


def test_a_mode_is_called_worse_only_where_every_round_says_so() -> None:
    by = {line.mode: line for line in table.lines(ROWS, list(MODES))}
    assert by["as written"].learns == ""
    assert by["local"].more_loss.low == pytest.approx(0.1)
    assert by["local"].more_loss.high == pytest.approx(0.2)
    assert by["local"].learns == "WORSE in every round"
    # Better by 0.1 in one round and worse by 0.2 in the other.
    assert by["async"].learns == "worse in 1 of 2"
    better = [replace(row, loss=row.loss - 0.5) if row.mode == "async" else row for row in ROWS]
    assert table.lines(better, ["async"])[0].learns == "better in every round"
    # One round alone is no rule.
    assert table.lines(ROWS[:6], list(MODES))[1].learns == "worse in 1 of 1"


def test_speed_is_that_of_an_epoch_against_the_same_round() -> None:
    by = {line.mode: line for line in table.lines(ROWS, list(MODES))}
    assert by["local"].epoch_s.median == 2.0
    assert by["local"].of_written.low == pytest.approx(2.0 / 4.4)
    assert by["local"].of_written.high == pytest.approx(0.5)
    assert [spread.median for spread in by["as written"].loss] == pytest.approx([1.7, 0.75])


def test_the_time_to_the_loss_as_written_is_between_epochs() -> None:
    rows = run(0, "local", 10.0, 2.0, 1.0, 0.5)
    assert table.until(rows, 1.5) == pytest.approx(15.0)
    assert table.until(rows, 1.0) == pytest.approx(20.0)
    assert table.until(rows, 2.5) == pytest.approx(10.0)  # what was before the first is not known
    assert table.until(rows, 0.4) is None
    by = {line.mode: line for line in table.lines(ROWS, list(MODES))}
    assert by["as written"].until_s.median == pytest.approx(8.4)
    assert (by["local"].until_s, by["local"].reached) == (None, 0)
    assert (by["async"].reached, by["async"].runs) == (1, 2)


def test_a_run_that_failed_is_told_and_counts_for_nothing() -> None:
    rows = [*ROWS[:10], table.Row(1, "async", 0, "lotus did not put the mode on")]
    line = table.lines(rows, ["async"])[0]
    assert line.runs == 1
    assert line.epoch_s.high == 1.0
    assert "failed: async, round 2: lotus did not put the mode on" in table.text(KNOWN, rows)


def test_the_tables_hold_what_was_foretold_against_what_was_measured() -> None:
    text = table.text(KNOWN, ROWS)
    for part in (
        "commit abc1234; 2026-01-02",
        "2 interleaved rounds, each with another seed; ranks with 0.7 cores, 0.4 cores; cnn",
        "recommends as written, as an option that learns otherwise local",
        "4.20 (4.00 to 4.40); measured 4.20, +0%",
        "3.00; measured 2.00, +50%",
        "WORSE in every round",
        "0.900 (0.600 to 1.200)",
    ):
        assert part in text
    made = table.markdown(KNOWN, ROWS)
    assert "| local | 2.00 (2.00 to 2.00) | 0.48 (0.45 to 0.50) | 0.900 (0.600 to 1.200) |" in made


def test_measurements_are_read_back_as_they_were(tmp_path: Path) -> None:
    kept = measurements.Measurements(tmp_path, "modes_measured", table.Row)
    kept.write(ROWS)
    assert kept.read() == ROWS
    kept.csv.write_bytes(kept.csv.read_bytes()[:-4])
    assert kept.read() == ROWS[:-1]


def test_the_picture_has_every_mode(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert plot.draw(KNOWN, ROWS, tmp_path)
    drawn = (tmp_path / "modes_measured.svg").read_text()
    for part in (*MODES, "abc1234", "seconds of training"):
        assert part in drawn
