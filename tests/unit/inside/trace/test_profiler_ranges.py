"""Ranges for other profilers: what is opened, that it is closed, and a library that fails."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from lotus.inside.trace.native import native_hooks
from lotus.inside.trace.op_hooks import Timers
from tests.unit.fetches import Fetches, Numbers


class Library:
    """A module with the functions of torch.profiler.itt; from its `last` call on they raise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, last: int = 10**6) -> None:
        self.noted: list[str] = []
        self.last = last
        module: Any = types.ModuleType("torch.profiler.itt")
        module.range_push, module.range_pop = self._push, lambda: self._push("")
        monkeypatch.setitem(sys.modules, "torch.profiler.itt", module)
        for name in ("torch", "torch.profiler"):
            monkeypatch.setitem(sys.modules, name, sys.modules.get(name) or types.ModuleType(name))

    def _push(self, name: str) -> None:
        if len(self.noted) >= self.last:
            raise RuntimeError("gone")
        self.noted.append(name)

    @property
    def lines(self) -> str:
        """What was opened, nested: `fetch(Add)`."""
        text = "".join(f"{name}(" if name else ")" for name in self.noted)
        return text.replace("lotus()", "", 1)


def test_operations_collate_and_spans_are_ranges_inside_the_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(monkeypatch)
    fetches = Fetches(tmp_path / "R", ranges="itt")
    recorder = fetches.recorder

    def own(_: int) -> None:
        recorder.timers.span(recorder.definitions.define("mine", kind="span"))()

    fetches.fetcher(Numbers(own), 0)(0, [7])
    adds = "Add[0]()Add[1]()"
    assert library.lines == f"fetch({adds}mine(){adds}collate())"


def test_batches_that_are_not_recorded_have_no_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(monkeypatch)
    fetch = Fetches(tmp_path / "R", ranges="itt", level="batch", every="2").fetcher(Numbers(), 0)
    for batch in range(3):
        fetch(batch, [batch])
    assert library.lines == 2 * "fetch(collate())"


@pytest.mark.parametrize("raised", [ValueError, StopIteration, KeyboardInterrupt])
def test_what_raises_closes_all_that_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    library, error = Library(monkeypatch), raised()

    class Refuses(Numbers):
        def __init__(self) -> None:
            super().__init__()
            self.transform.transforms[1] = self._refuse

        def _refuse(self, value: int) -> int:
            raise error

    fetch = Fetches(tmp_path / "R", ranges="itt").fetcher(Refuses(), 0)
    with pytest.raises(raised) as caught:
        fetch(0, [7])
    assert caught.value is error
    assert library.lines == "fetch(Add()_refuse())"


@pytest.mark.parametrize("last", [0, 1, 5])
def test_a_library_that_fails_is_left_alone_and_all_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    library = Library(monkeypatch, last)
    fetches = Fetches(tmp_path / "R", ranges="itt")
    fetch = fetches.fetcher(Numbers(), 0)
    assert fetch(0, [7]) == (10,)
    assert len(library.noted) == last
    fetches.recorder.flush_batch(1)
    run = fetches.end()
    assert len(run.ops) == 2
    (note,) = [text for text in run.notes if "--itt" in text]
    assert "RuntimeError: gone" in note
    assert "all else is recorded" in note


def test_where_none_are_asked_for_the_hooks_are_those_without(tmp_path: Path) -> None:
    recorder = Fetches(tmp_path / "R").recorder
    assert recorder.ranges is None
    assert type(recorder.timers) is Timers
    if native_hooks.MODULE is not None:
        native = Fetches(tmp_path / "C", hooks="c").recorder
        assert type(native.timers) is native_hooks.NativeTimers


def test_with_ranges_the_hooks_are_those_in_python(tmp_path: Path) -> None:
    recorder = Fetches(tmp_path / "R", hooks="c", ranges="nvtx,itt").recorder
    assert type(recorder.timers) is not getattr(native_hooks, "NativeTimers", None)
    assert recorder.config.ranges == ("nvtx", "itt")
