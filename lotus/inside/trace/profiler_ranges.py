"""Marks what is timed as ranges for other profilers: NVTX for Nsight Systems, ITT for VTune.

Only with `--nvtx` or `--itt`; else no hook is affected. A range surrounds the call itself, within
what lotus times, and is closed however the call ends.
"""

from __future__ import annotations

import importlib
import os
import sys

from ..common.guard import first_line, hook, of_the_program
from .called_function import note_place
from .op_hooks import Timers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from . import op_hooks
    from .config import Config

    class Telling(Protocol):
        """The parts of a recorder that ranges need; no range is opened while its `gate` is shut."""

        gate: Any
        config: Config
        worker: int

        def tell(self, text: str) -> None: ...

    class Ranged(Protocol):
        """A recorder with ranges, or None if none were requested."""

        ranges: ProfilerRanges | None

    Library = tuple[str, Callable[[str], object], Callable[[], object]]  # name, push, pop

FETCH, COLLATE, WAIT = "fetch", "collate", "wait"
# Modules with functions that open and close a range; the first that works is used.
LIBRARIES = {
    "nvtx": (("torch.cuda.nvtx", "range_push", "range_pop"), ("nvtx", "push_range", "pop_range")),
    "itt": (("torch.profiler.itt", "range_push", "range_pop"),),
}
_REMEDIES = {
    "nvtx": "for ranges type: pip install nvtx",
    "itt": "for ranges use a build of torch with ITT, as those for x86-64 are",
}
_PROBE = "lotus"  # an empty range: a build of torch without the library fails only when called


class ProfilerRanges:
    """Opens and closes ranges in the requested libraries; stops using a library that fails."""

    def __init__(self, recorder: Telling) -> None:
        self._recorder = recorder
        self._libraries: list[Library] | None = None  # until `load`

    def load(self) -> None:
        """Load the libraries, once; report missing ones. Torch must be imported."""
        if self._libraries is not None:
            return
        self._libraries = libraries = []
        for name in self._recorder.config.ranges:
            reasons: list[str] = []
            for module, push, pop in LIBRARIES[name]:
                try:
                    functions: Any = importlib.import_module(module)
                    library = (name, getattr(functions, push), getattr(functions, pop))
                    library[1](_PROBE)
                    library[2]()
                except Exception as error:
                    if of_the_program(error):
                        raise
                    reasons.append(f"{module}: {first_line(error)}")
                else:
                    libraries.append(library)
                    break
            else:
                self._missing(name, "; ".join(reasons))

    def _missing(self, name: str, why: str) -> None:
        # The main process of the first rank has reported it for workers and other ranks.
        first = self._recorder.worker < 0 and os.environ.get("LOCAL_RANK") in (None, "0")
        if first and not any("multiprocessing." in word for word in sys.orig_argv):
            text = f"--{name} names no ranges ({why}); all else is recorded; {_REMEDIES[name]}"
            self._recorder.tell(text)

    def push(self, name: str) -> None:
        """Open a range of this thread."""
        if self._libraries is None:
            self.load()
        name = name.encode("utf-8", "replace").decode()
        for library in self._libraries or ():
            self._call(library, library[1], name)

    def pop(self) -> None:
        """Close the last range that this thread opened."""
        for library in self._libraries or ():
            self._call(library, library[2])

    def _call(self, library: Library, function: Callable[..., object], *args: str) -> None:
        try:
            function(*args)
        except Exception as error:
            if of_the_program(error):
                raise
            remaining = [other for other in self._libraries or () if other is not library]
            self._libraries = remaining
            self._missing(library[0], first_line(error))

    def around(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return a function that calls `original` in a range if the call is recorded."""
        gate, push, pop = self._recorder.gate, self.push, self.pop

        def call(*args: Any, **kwargs: Any) -> Any:
            if gate.shut:
                return original(*args, **kwargs)
            push(name)
            try:
                return original(*args, **kwargs)
            finally:
                pop()

        return hook(call)


class RangedTimers(Timers):
    """Timers with a range around each operation and span."""

    def __init__(self, recorder: op_hooks.Recorder, ranges: ProfilerRanges) -> None:
        super().__init__(recorder)
        self._ranges = ranges
        begin, name_of = self.span, recorder.definitions.shown_name

        def span(number: int) -> Callable[[], None]:
            end = begin(number)
            ranges.push(name_of(number))

            def closed() -> None:
                ranges.pop()
                end()

            return closed

        self.span = span

    def operation(self, original: Callable[..., Any], number: int) -> Callable[..., Any]:
        """Return a function (self, *args, **kwargs) that times `original`; note its place."""
        note_place(self._definitions, original, number)
        name = self._definitions.shown_name(number)
        return self._hook(self._ranges.around(original, name), number)


def ranged(recorder: Ranged, original: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return `original` in a range of this name, or unchanged if no ranges were requested."""
    return original if recorder.ranges is None else recorder.ranges.around(original, name)
