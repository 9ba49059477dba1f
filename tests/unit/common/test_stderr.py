"""A bar for work that lasts, on a terminal alone."""

import io

import pytest

from lotus.common import stderr


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def written(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, noticed_s: float) -> str:
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(stderr, "_NOTICED_S", noticed_s)
    with stderr.progress("reading") as advance:
        advance(1, 4)
    before = stream.getvalue()
    advance(2, 4)  # too late
    assert stream.getvalue() == before
    return before


def test_work_that_lasts_has_a_bar_where_a_person_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "reading" in written(monkeypatch, Terminal(), 0.0)
    assert written(monkeypatch, Terminal(), 1e9) == ""
    assert written(monkeypatch, io.StringIO(), 0.0) == ""
