"""The closing words on a run: never an exception, and the reason why nothing was recorded."""

import io
import json
import re
import sys
from pathlib import Path

import pytest

from lotus.common.errors import LotusError
from lotus.reading import missing_data
from lotus.recording.launcher import ProgramOutcome
from lotus.reporters.run import end_of_trace
from tests.logs import RunBuilder
from tests.simulation import simulate

ENDED = ProgramOutcome(0, None, 1)


def _run(path: Path, *events: str) -> Path:
    (path / "events").mkdir()
    (path / "events" / "1.ltr").write_bytes(b"x" * 100)
    lines = [json.dumps({"event": event, "error": "disk full"}) for event in events]
    (path / "processes.jsonl").write_text("\n".join([*lines, '{"event": "tor']))  # torn by a kill
    return path


@pytest.mark.parametrize("error", [LotusError("the log is from a newer lotus"), ValueError("oops")])
def test_a_run_that_cannot_be_read_is_a_line(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise error

    monkeypatch.setattr("lotus.reading.run.load", fail)
    first, last = end_of_trace.text(_run(tmp_path), ENDED, "lotus report R").splitlines()
    assert str(error) in first
    assert last == "next: lotus report R"


def test_a_run_larger_than_the_memory_is_left_to_who_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lotus.common.machine.host.available_memory", lambda: 1000)
    first, _ = end_of_trace.text(_run(tmp_path), ENDED, "lotus report R").splitlines()
    assert "too much" in first


@pytest.mark.parametrize(
    ("events", "word"),
    [
        ([], "no Python process reported"),
        (["python"], "never imported torch.utils.data"),
        (["python", "torch"], "no DataLoader was iterated"),
        (["python", "torch", "fault"], "disk full"),
    ],
)
def test_the_reason_is_judged_by_what_reported_in(
    events: list[str], word: str, tmp_path: Path
) -> None:
    (line,) = missing_data.missing(missing_data.processes(_run(tmp_path, *events)))
    assert word in line


@pytest.mark.parametrize("outcome", [ProgramOutcome(2, None, 1), ENDED])
def test_a_program_that_iterates_no_loader_is_offered_no_report(
    outcome: ProgramOutcome, tmp_path: Path
) -> None:
    run = RunBuilder(tmp_path / "run")
    run.report("python", executable=sys.executable)
    lines = end_of_trace.text(run.end(), outcome, "lotus report R").splitlines()
    if outcome.exit_code:
        assert lines == [
            "lotus: the program ended with code 2",
            "lotus: no DataLoader was iterated before that, so there is nothing to report",
        ]
    else:
        (only,) = lines
        assert "lotus records loops over torch's DataLoader" in only


def test_another_python_than_that_of_lotus_is_told_with_what_to_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.executable", "/env/bin/python")
    of_lotus = {"event": "python", "executable": "/env/bin/python3"}
    other = {"event": "python", "executable": "/usr/bin/python3"}
    _, line = missing_data.missing([other])
    assert "/usr/bin/python3" in line
    assert "lotus trace -- /env/bin/python " in line
    assert len(missing_data.missing([of_lotus, other])) == 1


@pytest.mark.parametrize("events", [["python"], ["python", "torch"]])
def test_what_was_not_seen_is_the_reason(events: list[str]) -> None:
    unseen = [{"event": "unseen", "what": "ffcv.Loader", "why": "it has its own worker loop"}]
    (line,) = missing_data.missing([{"event": event} for event in events], unseen)
    assert "ffcv.Loader" in line


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("batches", [0, 4])
def test_a_loader_that_was_not_seen_is_named_once(batches: int, full: bool, tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.report("python")
    run.report("torch")
    if batches:
        simulate(tmp_path, builder=run, batches=batches)
    else:
        run.process(100)
    run.logs[0].event("unseen", what="ffcv.Loader", why="it has its own worker loop")
    text = end_of_trace.text(run.end(), ENDED, "lotus report R", full)
    assert text.count("ffcv.Loader") == 1
    assert ("samples/s" in text) == bool(batches)


def test_functions_that_were_never_found_are_named_with_the_reason() -> None:
    requested = ["data:decode", "nosuch.mod:f", "train:nosuch", "__main__:g"]
    lines = missing_data.unfound(
        requested, {"decode"}, ["--op train:nosuch: it has no 'nosuch'", "x"]
    )
    assert lines == [
        "--op nosuch.mod:f was never found: no recorded process imported nosuch.mod"
        " (the script itself is __main__)",
        "--op __main__:g was never found: no recorded process imported __main__",
    ]


def test_a_function_that_was_never_found_is_told_at_the_end(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.report("python")
    run.report("torch")
    simulate(tmp_path, builder=run, batches=4)
    path = run.end()
    manifest = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**manifest, "ops": ["nosuch.mod:f"]}))
    text = end_of_trace.text(path, ENDED, "lotus report R")
    assert text.count("lotus: --op nosuch.mod:f was never found") == 1


def test_an_unknown_signal_is_named_by_its_number() -> None:
    assert "signal 63" in missing_data.ending(None, 63)[0]
    assert "SIGKILL" in missing_data.ending(None, 9)[0]
    assert missing_data.ending(0, None) == []


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


WORDS = "HIGHLY INPUT-BOUND: The loop waits.\nWhere the 5 s went\n  step  █▏\nnext step: wait"


def test_on_a_terminal_the_verdict_is_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stderr", _Terminal())
    shown = end_of_trace.styled(WORDS)
    assert shown.startswith("\x1b[1;31mHIGHLY INPUT-BOUND\x1b[0m: The loop")
    assert "\x1b[1mnext step:\x1b[0m wait" in shown
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == WORDS
    short = end_of_trace.styled("NOT INPUT-BOUND, BUT SHORT OF CORES: 40% is lost")
    assert short == "\x1b[1;31mNOT INPUT-BOUND, BUT SHORT OF CORES\x1b[0m: 40% is lost"
    monkeypatch.setenv("NO_COLOR", "1")
    assert end_of_trace.styled(WORDS) == WORDS


def test_elsewhere_it_is_plain_and_bars_are_what_the_stream_can_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    assert end_of_trace.styled(WORDS) == WORDS
    monkeypatch.setattr("sys.stderr", io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert "step  # " in end_of_trace.styled(WORDS)


def test_that_the_kernel_killed_for_memory_is_told_with_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lotus.common.machine.memory_headroom.limit", lambda: 420 << 20)
    ended, out = missing_data.ending(None, 9, 2)
    assert "SIGKILL" in ended
    assert "killed 2 processes of this cgroup (memory limit 420 MiB)" in out
    assert len(missing_data.ending(1, None, 0)) == len(missing_data.ending(1, None)) == 1
    assert len(missing_data.ending(0, None, 1)) == 1  # of a worker that the program did without
