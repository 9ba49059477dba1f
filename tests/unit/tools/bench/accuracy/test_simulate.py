"""tools/bench/accuracy/simulate.py: a run that was ended continues after the rows that it kept."""

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.benches import bench

simulate = bench("accuracy.simulate")
KINDS = ["tiny", "busy_step"]


def test_a_run_that_was_ended_measures_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def repeat_of(kind: str, settings: list[Any], *_: object) -> dict[str, Any]:
        if len(asked) == 3:
            raise KeyboardInterrupt
        asked.append(kind)
        errors = dict.fromkeys(("rate", "error", "first", "wait", "cpu", "others"), 0.5)
        run = {"samples_per_s": 10.0 * len(asked), "recorded": errors, "seen": errors}
        return {"kind": kind, "load": float(len(asked)), "fit": "fitted", "runs": [[0, run]]}

    class Served(contextlib.nullcontext[Any]):
        stdin = SimpleNamespace(close=lambda: None)

        def __enter__(self) -> Any:
            return self

    monkeypatch.setattr(simulate, "repeat_of", repeat_of)
    monkeypatch.setattr(simulate, "server", lambda options: Served())
    monkeypatch.setattr(simulate, "QUICK", {kind: simulate.QUICK[kind][:1] for kind in KINDS})
    rows = tmp_path / "rows"
    words = ["simulate.py", "--kinds", *KINDS, "--repeat", "2", "--rows", str(rows)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(KeyboardInterrupt):
        simulate.main()
    assert len(rows.read_text().splitlines()) == 3
    before = list(asked)
    asked.clear()
    simulate.main()
    assert len(asked) == 1
    assert sorted([*before, *asked]) == sorted(KINDS * 2)
    printed = capsys.readouterr().out
    assert "2 settings, median error 50.0%" in printed
    assert "load before each kind: 1.0 to 3.0" in printed
