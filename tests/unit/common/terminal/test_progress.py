"""A bar for work that lasts, on a terminal alone."""

import io
import threading
import time

import pytest

from lotus.common.terminal import progress


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self.writes, self._before = 0, set(threading.enumerate())

    def isatty(self) -> bool:
        """It is one."""
        return True

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)

    def shows(self, text: str) -> bool:
        """Whether the text is drawn before fifty more writes, or the end of what draws."""
        last = self.writes + 50
        while text not in self.getvalue() and self.writes < last:
            if set(threading.enumerate()) <= self._before:
                break
            time.sleep(0.01)
        return text in self.getvalue()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a terminal that can draw a bar, wherever these tests run."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("TTY_COMPATIBLE", "TTY_INTERACTIVE", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return a standard error on which bars are drawn at once, and often."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "_NOTICED_S", 0.0)
    monkeypatch.setattr(progress, "_REFRESHED_S", 0.01)
    return terminal


def test_work_that_lasts_has_a_bar_though_nothing_of_it_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = drawn_at_once(monkeypatch)
    with progress.progress("reading"):
        assert terminal.shows("reading")
    assert "\x1b[2K" in terminal.getvalue()  # it is wiped away


def test_the_bar_names_the_part_that_is_done_now(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = drawn_at_once(monkeypatch)
    with progress.progress("reading") as bar:
        bar(1, 4)
        bar.doing("joining")
        assert terminal.shows("joining")


def test_the_bar_shows_how_much_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = drawn_at_once(monkeypatch)
    with progress.progress("reading") as bar:
        bar(3, 4)
        assert terminal.shows(" 75%")


def test_short_work_and_a_file_have_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, noticed_s in ((Terminal(), 1e6), (io.StringIO(), 0.0)):
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setattr(progress, "_NOTICED_S", noticed_s)
        with progress.progress("reading") as bar:
            bar(1, 4)
        assert stream.getvalue() == ""


def test_what_is_printed_meanwhile_goes_where_it_would_without_a_bar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = drawn_at_once(monkeypatch)
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    with progress.progress("reading"):
        assert terminal.shows("reading")
        print("the result")
    assert out.getvalue() == "the result\n"
