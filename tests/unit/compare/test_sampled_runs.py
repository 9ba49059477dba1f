"""Two sampled runs held against each other: shares with intervals, and no word on speed."""

import json
import random
from pathlib import Path

import pytest

from lotus.analysis.attached.verdict.sampled_verdict import summarise
from lotus.common.errors import LotusError
from lotus.compare import gate as compare_gate
from lotus.compare import sampled_runs, sides
from lotus.compare.comparison import Comparison, Side
from lotus.compare.sampled_runs import SampledRun
from lotus.reporters.compare import comparison_page, comparison_report
from tests.unit.attach import test_attached_run
from tests.unit.sampled_program import IDLE, STEP, WAIT, Program, operation
from tests.unit.sides import shown


def looked_at(seed: int, waiting: float, decoding: float = 0.5, name: str = "Crop") -> SampledRun:
    """A program whose loop waits for a share of its time, and makes batches of two operations."""
    drawn = random.Random(seed)
    # Each wait and step lasts for some looks: how long one look's state lasted is not known.
    main = [at for _ in range(100) for at in [WAIT if drawn.random() < waiting else STEP] * 8]
    makes = [operation("Decode" if drawn.random() < decoding else name) for _ in main]
    worker = [made if at == WAIT else IDLE for made, at in zip(makes, main, strict=True)]
    program = Program(main.__getitem__, [worker.__getitem__], ticks=800)
    return SampledRun(Path(f"run-{seed}"), {"command": ["x"]}, summarise(program.evidence()))


def held(a: list[SampledRun], b: list[SampledRun], same: bool = False) -> Comparison:
    return sampled_runs.compare(Side("a", a, "A"), Side("b", b, "B"), same)


def test_shares_are_those_of_the_report_and_a_change_lies_in_its_interval() -> None:
    a, b = looked_at(1, 0.3, 0.8), looked_at(2, 0.6, 0.4)
    comparison = held([a], [b])
    line = comparison.line("wait_share")
    assert line is not None
    assert (line.a, line.b) == tuple(
        run.summary.loops[0].verdict.input_share for run in (a, b)
    )  # fmt: skip
    assert line.different
    assert line.difference.low < 0.3 < line.difference.high
    decode = comparison.line("operation:Decode")
    assert decode is not None
    assert decode.difference.low < -0.4 < decode.difference.high < 0
    assert decode.a == a.summary.loops[0].operations.set_index("name")["share"]["Decode"]
    assert comparison.line("throughput") is None


def test_no_sampled_run_is_called_faster() -> None:
    comparison = held([looked_at(1, 0.3)], [looked_at(2, 0.6)])
    assert comparison.verdict.kind == "unknown"
    assert "B waits for data" in comparison.verdict.text
    assert "points more" in comparison.verdict.text
    assert "do not show which side is faster" in comparison.verdict.text
    with pytest.raises(LotusError, match="wait_share, step_share, operation:"):
        compare_gate.judge([comparison], "throughput", 0.05)
    assert compare_gate.judge([comparison], "wait_share", 0.05).failed
    assert not compare_gate.judge([comparison], "wait_share", 0.5).failed


def test_equal_programs_and_the_same_recording() -> None:
    a = [looked_at(seed, 0.4) for seed in (1, 2, 3)]
    comparison = held(a, [looked_at(seed, 0.4) for seed in (4, 5, 6)])
    line = comparison.line("wait_share")
    assert line is not None
    assert not line.different
    same = held(a, a, same=True)
    assert same.verdict.kind == "same run"
    assert {line.difference.difference for line in same.loaders[0].lines} == {0.0}


def test_an_operation_of_one_side_has_no_number(tmp_path: Path) -> None:
    comparison = held([looked_at(1, 0.4)], [looked_at(2, 0.4, name="Resize")])
    text = shown(comparison)
    assert "Only in A: Crop." in text
    assert "Only in B: Resize." in text
    document = json.loads(json.dumps(comparison_report.document([comparison])))
    assert document["comparisons"][0]["loaders"][0]["added"][0]["ns"] is None
    comparison_page.save(tmp_path / "page.html", [comparison])
    assert "Resize" in (tmp_path / "page.html").read_text()


def test_what_was_not_recorded_alike_is_refused(tmp_path: Path) -> None:
    sampled, other = tmp_path / "sampled", tmp_path / "other"
    for directory in (sampled, other):
        directory.mkdir()
        (directory / "run.json").write_text('{"schema": 1}')
    test_attached_run.write(sampled)
    with pytest.raises(LotusError, match="recorded alike"):
        sides.resolve(f"{sampled},{other}")
    assert len(sides.resolve(str(sampled)).sampled) == 1
