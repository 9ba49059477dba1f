"""processes.jsonl of a run that may be anybody's: what is read of it is bounded, the rest told."""

import json

import pytest

from lotus.format import process_reports
from lotus.reading.run import load
from tests.logs import RunBuilder


@pytest.fixture
def path(tmp_path):
    builder = RunBuilder(tmp_path / "run")
    builder.process(100).iterator(0, 0, 1, 2, [])
    builder.report("python", 100, ppid=1, argv=["x"], executable="x", python="3")
    return builder.end()


def lost(path):
    return [tuple(row) for row in load(path).lost.itertuples(index=False)]


def append(path, text):
    with (path / "processes.jsonl").open("ab") as file:
        file.write(text)


def test_lines_that_are_none_are_one_loss(path):
    append(path, b"x\n" * 1000 + b"[]\n3\n\n" + b'{"pid": "1"}\n')
    assert lost(path) == [("unreadable line of processes.jsonl", -1, 1003, 1000 + 2 + 1 + 12)]
    assert load(path).processes["pid"].tolist() == [100]


@pytest.mark.parametrize("line", [b"x\n", b'{"event": "python", "pid": 7}\n', b"\n"])
def test_behind_as_many_lines_as_are_read_the_rest_is_one_loss(path, monkeypatch, line):
    monkeypatch.setattr(process_reports, "_MOST_LINES", 50)
    size = (path / "processes.jsonl").stat().st_size
    append(path, line * 1000)
    reports = process_reports.read(path)
    if line != b"\n":
        assert len(reports.lines) + reports.torn == 50
        assert reports.left_bytes == 951 * len(line)
        assert lost(path)[-1][1:] == (-1, 1, 951 * len(line))
    assert reports.torn_bytes + reports.left_bytes <= size + 1000 * len(line)


def test_what_is_more_than_is_read_is_one_loss(path, monkeypatch):
    size = (path / "processes.jsonl").stat().st_size
    append(path, b'{"event": "python", "pid": 7}\n' * 100)
    monkeypatch.setattr(process_reports, "_MOST", size + 40)
    reports = process_reports.read(path)
    assert [line["pid"] for line in reports.lines] == [100, 7]
    assert reports.left_bytes == 99 * 30
    assert lost(path) == [
        ("rest of processes.jsonl, which has more than lotus reads of it", -1, 1, 99 * 30)
    ]


def test_of_a_line_only_what_lotus_writes_is_kept(path):
    deep = "[" * 500 + "]" * 500
    line = {"event": "python", "pid": 7, "argv": ["a", [], {}, "b\ud800"], "x": [1], "text": [1]}
    append(path, json.dumps(line).encode() + b"\n" + b"[" * 100_000 + b"\n")
    append(path, f'{{"event": "python", "pid": 8, "executable": {deep}}}\n'.encode())
    reports = process_reports.read(path)
    assert reports.lines[1] == {
        "event": "python",
        "pid": 7,
        "argv": ["a", "b\\ud800"],
        "text": None,
    }
    assert reports.lines[2]["executable"] is None
    assert load(path).processes["pid"].tolist() == [100, 7, 8]


def test_faults_without_number_are_told_as_one(path):
    for number in range(300):
        append(path, b'{"event": "fault", "pid": 7, "error": "%d"}\n' % number)
    whats = [what for what, *_ in lost(path)]
    assert len(whats) == 300
    assert len(set(whats)) == 101
