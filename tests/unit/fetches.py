"""Fetches of small data sets through the hooks, in the test's own process and without torch; and
what comes in between at every instruction.
"""

import dis
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import lotus
from lotus.inside.common.guard import ours
from lotus.inside.trace.config import Config
from lotus.inside.trace.fetches import fetch_hooks as fetch
from lotus.inside.trace.native import native_hooks
from lotus.inside.trace.native.native_hooks import PYTHON
from lotus.inside.trace.recorder import Recorder
from lotus.reading.run import Run


class Add:
    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, value: int) -> int:
        return value + self.number


class Compose:
    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, value: int) -> int:
        for transform in self.transforms:
            value = transform(value)
        return value


class Numbers:
    """Two operations a sample; `between`, if given, is called with the index between two rounds."""

    def __init__(self, between: Callable[[int], object] | None = None) -> None:
        self.transform = Compose([Add(1), Add(2)])
        self.between = between

    def __getitem__(self, index: int) -> int:
        value = self.transform(index)
        if self.between is not None:
            self.between(index)
            value = self.transform(value)
        return value


class Fetcher:
    """What lotus uses of torch's _MapDatasetFetcher."""

    auto_collation = True

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.collate_fn = tuple

    def fetch(self, indices: Sequence[int]) -> Any:
        return self.collate_fn([self.dataset[index] for index in indices])


class Fetches:
    """One recorder, whose run directory is `path`; its hooks are in Python unless asked."""

    def __init__(self, path: Path, hooks: str = PYTHON, **options: str) -> None:
        if hooks != PYTHON and native_hooks.MODULE is None:
            pytest.skip("the hooks in C are not built for this Python")
        options["hooks"] = hooks
        path.mkdir()
        self.path = path
        environ = {f"LOTUS_{name.upper()}": value for name, value in options.items()}
        self.recorder = Recorder(Config({"LOTUS_RUN": str(path), **environ}), None)
        self.recorder.iteration_started()

    def fetcher(
        self, dataset: Any, loader: int, fetcher: Any = Fetcher
    ) -> Callable[[int, Sequence[int]], Any]:
        """What fetches a batch, by its number and its indices, for a loader of this process."""
        timed = fetch.instrument(fetcher(dataset), dataset, self.recorder, {})

        def fetched(batch: int, indices: Sequence[int]) -> Any:
            hand = self.recorder.here.hand
            before = hand.where
            hand.where = (loader, 0, batch)
            try:
                return timed.fetch(indices)
            finally:
                hand.where = before

        return fetched

    def end(self) -> Run:
        self.recorder.iteration_ended()
        self.recorder.finish()
        (self.path / "run.json").write_text('{"schema": 1, "state": "ended"}')
        return lotus.load(self.path)


_NAMES: dict[CodeType, dict[int, str]] = {}


def broken_into(moment: int, action: Callable[[], object], function: Callable[[], object]) -> bool:
    """Call the function, and the action at the `moment`-th place in our code where Python runs
    signal handlers and other threads; whether there is such a place.

    These are where a function begins, after calls, and where loops go back.
    """
    left, last = moment, {}

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        if not ours(frame):
            return None
        frame.f_trace_opcodes = True
        if event == "exception":
            last[frame] = ""
        elif event == "return":
            last.pop(frame, None)
        elif event == "opcode":
            before = last.get(frame, "RESUME")
            code = frame.f_code
            if code not in _NAMES:
                _NAMES[code] = {
                    instruction.offset: instruction.opname
                    for instruction in dis.get_instructions(code)
                }
            last[frame] = _NAMES[code][frame.f_lasti]
            if before.startswith(("RESUME", "CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE")):
                left -= 1
                if left == -1:
                    action()
        return trace

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(outer)
    return left < 0
