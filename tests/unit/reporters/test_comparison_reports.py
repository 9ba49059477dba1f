"""A comparison on a terminal, as a document, as a page, at the gate and from the command line."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lotus import cli
from lotus.common.errors import LotusError
from lotus.compare import gate as compare_gate
from lotus.compare import sides
from lotus.reporters.compare import comparison_page
from lotus.reporters.compare import comparison_report as reporter
from lotus.settings.space import Setting
from lotus.sweep import sweep_record
from tests.unit.sides import held, hostile, recorded, shown
from tests.unit.sweep.test_sweep_record import sweep_content

# ── what is shown ────────────────────────────────────────────────────────────────────────────


def test_names_of_a_trace_cannot_steer_the_terminal() -> None:
    for text in (shown(hostile()), json.dumps(reporter.document([hostile()]))):
        assert not set(text) & set("\x1b\x07\r\u202e")
        text.encode()


def test_eighty_columns_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    comparison = held([recorded(1), recorded(2)], [recorded(3, 1.3), recorded(4, 1.3)])
    lines = shown(comparison).splitlines()
    assert max(map(len, lines)) <= 80


def test_the_document_has_what_is_shown() -> None:
    comparison = held(recorded(1), recorded(2, 1.3))
    document = json.loads(json.dumps(reporter.document([comparison])), parse_constant=pytest.fail)
    assert document["schema"] == 1
    first = document["comparisons"][0]
    assert first["verdict"]["text"] in shown(comparison)
    lines = {line["id"]: line for line in first["loaders"][0]["lines"]}
    line = comparison.line("operation:Loader")
    assert line is not None
    assert lines["operation:Loader"]["low"] == line.difference.low
    assert lines["operation:Loader"]["different"] is True
    assert len(lines) == len(comparison.loaders[0].lines)


def test_the_page_has_intervals_and_throughput(tmp_path: Path) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")
    comparison = held(recorded(1), recorded(2, 1.3))
    comparison_page.save(tmp_path / "c.html", [comparison, hostile()])
    text = (tmp_path / "c.html").read_text()
    match = re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    figures = json.loads(match[1])
    assert set(figures) >= {"differences-0-0", "throughput-0-0", "differences-1-0"}
    for figure in figures.values():
        graph_objects.Figure(figure)
    points = {
        label: (x, low, high)
        for trace in figures["differences-0-0"]["data"]
        for label, x, low, high in zip(
            trace["y"], trace["x"], trace["error_x"]["arrayminus"], trace["error_x"]["array"],
            strict=True,
        )
    }  # fmt: skip
    line = comparison.line("operation:Loader")
    assert line is not None
    label = next(label for label in points if "decode" in label and "(operations)" in label)
    x, low, high = points[label]
    assert x == pytest.approx(100 * line.difference.difference, rel=1e-5)
    assert x - low == pytest.approx(100 * line.difference.low, rel=1e-4)
    assert x + high == pytest.approx(100 * line.difference.high, rel=1e-4)
    paces = {trace["name"]: trace for trace in figures["throughput-0-0"]["data"]}
    assert set(paces) == {"A", "B"}
    assert len(paces["A"]["x"]) == 30
    assert "<script>title" not in text.replace("\\u003c", "")
    assert comparison.verdict.text in text


# ── the gate and the command line ────────────────────────────────────────────────────────────


def test_the_gate_fails_only_where_all_of_the_interval_is_above() -> None:
    slower = held(recorded(1), recorded(2, 1.3))
    line = slower.line("throughput")
    assert line is not None
    worse, low, high = line.slowdown
    assert low < worse < high
    assert worse == pytest.approx(1 - line.b / line.a)
    for above, failed in ((low - 0.01, True), (low + 0.001, False), (high + 0.1, False)):
        gate = compare_gate.judge([slower], "throughput", above)
        assert gate.failed == failed
        assert ("Failed" in gate.texts[0]) == failed
    faster = held(recorded(2, 1.3), recorded(1))
    assert not compare_gate.judge([faster], "throughput", 0.0).failed
    assert compare_gate.judge([faster, slower], "throughput", 0.05).failed
    assert compare_gate.judge([slower], "operation:Loader", 0.2).failed
    assert not compare_gate.judge([slower], "operation:Normalize", 0.05).failed
    with pytest.raises(LotusError, match="operation:Loader"):
        compare_gate.judge([slower], "operation:Lodaer", 0.2)


def test_two_sides_are_needed(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "A"]) == 2
    assert cli.main(["compare", "A", "B", "--metric", "wait"]) == 2
    assert "add: --fail-above" in capfd.readouterr().err
    for wrong in ("5", "-1%", "x", "nan%"):
        with pytest.raises(SystemExit) as ended:
            cli.main(["compare", "A", "B", "--fail-above", wrong])
        assert ended.value.code == 2


def test_what_a_side_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a-1", "a-2", "folder/x", "folder/y", "odd,name"):
        Path(name).mkdir(parents=True)
        manifest = {"schema": 1, "state": "ended", "command": []}
        Path(name, "run.json").write_text(json.dumps(manifest))

    def paths(text: str) -> list[str]:
        return [str(run.path) for run in sides.resolve(text).runs]

    assert paths("a-1") == ["a-1"]
    assert paths("a-2,a-1,a-2") == ["a-2", "a-1"]
    assert paths("a-*") == ["a-1", "a-2"]
    assert paths("folder") == ["folder/x", "folder/y"]
    assert paths("odd,name") == ["odd,name"]
    for wrong in ("b-*", "nothing", "a-1,nothing"):
        with pytest.raises(LotusError):
            paths(wrong)


def test_sweeps_are_compared_setting_by_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swept(name: str, workers: tuple[int, ...]) -> str:
        runs = [
            {"setting": place, "repeat": repeat, "directory": f"{count}-{repeat}",
             "state": "done", "exit_code": 0, "elapsed_ns": 1}
            for place, count in enumerate(workers) for repeat in range(2)
        ]  # fmt: skip
        settings = [Setting(count, 2 if count else None).as_json() for count in workers]
        (tmp_path / name).mkdir()
        manifest = sweep_content(settings, ["num_workers"], runs)
        sweep_record.write(tmp_path / name, manifest)
        return str(tmp_path / name)

    def loaded(self: sweep_record.Sweep, setting: Setting) -> list[Any]:
        scale = 1.4 if self.path.name == "after" else 1.0
        seed = 10 * len(self.path.name) + setting.num_workers
        return [recorded(seed + k, scale, workers=setting.num_workers) for k in (100, 200)]

    monkeypatch.setattr(sweep_record.Sweep, "loaded", loaded)
    a, b = swept("before", (0, 1, 2)), swept("after", (1, 2, 4))
    comparisons = list(sides.comparisons([a, b]))
    assert [comparison.setting for comparison in comparisons] == ["workers1", "workers2"]
    for comparison in comparisons:
        line = comparison.line("operation:Loader")
        assert line is not None
        assert line.difference.difference == pytest.approx(0.4, abs=0.05)
        assert len(comparison.a.runs) == 2
    assert "Setting: workers2" in shown(*comparisons)
    assert len(compare_gate.judge(comparisons, "operation:Loader", 5.0).texts) == 2
    with pytest.raises(LotusError, match="no setting in common"):
        list(sides.comparisons([a, swept("other", (8,))]))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text('{"schema": 1, "state": "ended"}')
    with pytest.raises(LotusError, match="is a sweep and another side is not"):
        list(sides.comparisons([a, str(tmp_path / "run")]))
