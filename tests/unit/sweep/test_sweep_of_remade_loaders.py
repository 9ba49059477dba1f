"""A sweep of a program that makes its loader anew for each epoch."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lotus.settings.space import Setting
from lotus.sweep import sweep_record, sweep_runner, sweep_summary
from tests.unit.analysis.common.test_remade_loaders import remade
from tests.unit.sweep.test_sweep_record import sweep_content


@pytest.mark.parametrize("target", [None, {"number": 2, "dataset": None}])
def test_all_epochs_count(
    target: dict[str, Any] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = remade()
    run.counters = pd.DataFrame(columns=["loader"])
    run.processes = pd.DataFrame({"torch": ["2.14.1"]})
    monkeypatch.setattr("lotus.reading.run.load", lambda path: run)
    runs = [{"setting": 0, "repeat": 0, "directory": "runs/0", "state": "done", "exit_code": 0}]
    content = sweep_content([Setting(2).as_json()], ["num_workers"], runs)
    content["plan"] = {**content["plan"], "loader": target}
    sweep_record.write(tmp_path, content)
    sweep = sweep_record.load(tmp_path)
    summary = sweep_summary.summarise(sweep)
    assert summary.runs["samples"].tolist() == [3 * 8 * 4]
    assert not any("loaders" in note for note in summary.notes)
    rate, why, _ = sweep_runner._looked_at(tmp_path, sweep.manifest, Setting(2), [])
    assert why == ""
    assert rate == pytest.approx(summary.runs["samples_per_s"][0])
