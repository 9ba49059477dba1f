"""Recorded runs with top-down level 2, of made PMUs of two CPUs: on a terminal and side by side."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lotus
from lotus.analysis.counters.function_profile import MapSummary, summarise_map
from lotus.compare.comparison import Side, compare
from lotus.reporters.base.console import plain_console
from lotus.reporters.compare import comparison_report
from lotus.reporters.map import map_report
from native_map.events.metrics import LEVEL_2
from tests.counted_runs import MS, counted_run, sapphire, zen5

TIMES = {"Loader": 3 * MS, "RandomResizedCrop": MS, "Normalize": MS // 3}
SLOWER = {**TIMES, "RandomResizedCrop": 2 * MS}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, "lotus.Run"]:
    folder: Path = tmp_path_factory.mktemp("runs")
    model = "Intel(R) Xeon(R) Platinum 8480+"
    intel = counted_run(folder / "i", "intel_sapphire", model, sapphire(), times_ns=SLOWER, seed=1)
    model = "AMD EPYC 9575F"
    zen = counted_run(folder / "z", "amd_zen5", model, zen5(), times_ns=TIMES, seed=2)
    return {"intel": lotus.load(intel), "zen": lotus.load(zen)}


def mapped(run: "lotus.Run") -> tuple[MapSummary, str]:
    summary, file = summarise_map(run, None), io.StringIO()
    map_report.write(plain_console(file), summary)
    return summary, " ".join(file.getvalue().split())


def test_one_group_of_intels_register_gives_both_levels(runs) -> None:
    summary, text = mapped(runs["intel"])
    table = summary.operations.set_index("operation")
    assert table.loc["Normalize", "backend_memory"] == pytest.approx(0.41, abs=1e-4)
    for parent in ("frontend_bound", "backend_bound", "bad_speculation"):
        below = table[list(LEVEL_2[parent])].sum(axis=1)
        assert below.to_numpy() == pytest.approx(table[parent].to_numpy(), abs=1e-9)
    assert table[list(LEVEL_2)].sum(axis=1).to_numpy() == pytest.approx(1)
    assert "Normalize back end: memory 41% * front end: latency 22%" in text
    assert "retiring: heavy operations 11%" in text
    assert "RandomResizedCrop no node crosses its threshold" in text
    assert "lotus has not been tried on this CPU" in text
    assert "took turns" not in text


def test_groups_that_take_turns_by_batch_give_the_same_shares(runs) -> None:
    summary, text = mapped(runs["zen"])
    loader = summary.operations.set_index("operation").loc["Loader"]
    # Each group is counted in a third of the batches, and scaled by cycles.
    assert loader[["frontend_bound", "frontend_latency"]].tolist() == pytest.approx([0.24, 0.17])
    assert loader["backend_memory"] == pytest.approx(0.37 * 0.37 / 0.40, abs=1e-4)
    assert "Groups of events took turns by batch" in text
    assert "ops_retired in 33%" in text
    assert "decode (default_loader) back end: memory 34% * front end: latency 17%" in text


def side_by_side(first: "lotus.Run", second: "lotus.Run") -> tuple[pd.DataFrame, str]:
    comparison = compare(Side("a", [first], "A"), Side("b", [second], "B"))
    file = io.StringIO()
    comparison_report.write(plain_console(file), [comparison])
    cpus = comparison.loaders[0].cpus
    assert cpus is not None
    return cpus.rows.set_index("operation"), " ".join(file.getvalue().split())


def test_who_buys_machines_sees_which_operation_gains(runs) -> None:
    rows, text = side_by_side(runs["intel"], runs["zen"])
    assert "RandomResizedCrop, 2.0" in text
    assert "gains most" in text
    assert rows.loc["Normalize", "a_backend_bound"] == pytest.approx(0.50, abs=1e-3)
    assert rows.loc["Normalize", "b_backend_bound"] == pytest.approx(0.46, abs=1e-3)
    assert "only A gives: heavy operations" in text
    assert "and 14 more" in text


def test_turns_do_not_widen_the_interval_of_a_share(runs) -> None:
    """GIVEN events of which each cycle counts the same WHEN batches are drawn of all turns THEN the
    shares of each drawing are those of all batches."""
    comparison = compare(Side("a", [runs["intel"]], "A"), Side("b", [runs["zen"]], "B"))
    lines = {line.id: line for line in comparison.loaders[0].lines}
    for name, gap in (("frontend_bound", 0.04), ("frontend_latency", 0.09)):
        line = lines[f"counter:Loader:{name}"]
        assert line.b - line.a == pytest.approx(gap, abs=1e-3)
        assert line.difference.high - line.difference.low < 0.01


def test_an_operation_that_no_turn_met_takes_the_others_nothing(runs) -> None:
    """GIVEN an operation that occurs in no batch of one group's turn WHEN CPUs are compared THEN it
    has no shares, and all others have theirs."""
    counters = runs["zen"].counters
    met = (counters["operation"].astype(str) == "Normalize") & counters["slots_frontend"].notna()
    changed = _Changed(runs["zen"], counters[~met])
    table, _ = side_by_side(runs["intel"], changed)
    assert np.isnan(table.loc["Normalize", "b_frontend_bound"])
    assert table.loc["Loader", "b_frontend_bound"] == pytest.approx(0.24, abs=0.02)


class _Changed:
    """A run with other counters."""

    def __init__(self, run: "lotus.Run", counters: pd.DataFrame) -> None:
        self._run, self.counters = run, counters

    def __getattr__(self, name: str) -> object:
        return getattr(self._run, name)
