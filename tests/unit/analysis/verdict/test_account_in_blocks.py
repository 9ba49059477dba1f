"""Of many batches the loop's time is divided block by block; the division is the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from lotus.analysis.batches import wait_spread
from lotus.analysis.common import columns
from lotus.analysis.replay import recorded_epochs
from lotus.analysis.summary import summarise
from lotus.reading.run import load
from lotus.reporters.run import run_document
from tests.logs import MS
from tests.simulation import simulate


def slow_samples(epoch: int, batch: int, index: int, operation: str) -> int:
    return 300 * MS if index % 37 == 5 and operation == "Loader" else 0


def slow_worker(epoch: int, batch: int, index: int, operation: str) -> int:
    return 5 * MS if batch % 2 else 0


def one_slow_batch(epoch: int, batch: int, index: int, operation: str) -> int:
    return 40 * MS if batch == 13 else 0


CASES: dict[str, dict[str, Any]] = {
    "slow samples": {"extra_ns": slow_samples},
    "slow samples without workers": {"extra_ns": slow_samples, "workers": 0},
    "a slow worker": {"extra_ns": slow_worker},
    "a slow batch": {"extra_ns": one_slow_batch},
    "slow sending": {"pickle_ns": 60 * MS},
}


def report(path: Path) -> Any:
    """The report, its numbers to nine digits: sums are rounded once a block."""
    text = json.dumps(run_document.document(summarise(load(path))))
    return json.loads(text, parse_float=lambda number: f"{float(number):.9g}")


@pytest.mark.parametrize("case", CASES)
def test_a_report_is_the_same_however_many_batches_are_divided_at_a_time(
    case, tmp_path, monkeypatch
):
    path = simulate(tmp_path / "run", batches=24, batch_size=4, **CASES[case])
    whole = report(path)
    assert whole["verdict"]["causes"]
    for module in (columns, wait_spread, recorded_epochs):
        monkeypatch.setattr(module, "_BLOCK", 7)
    assert report(path) == whole
