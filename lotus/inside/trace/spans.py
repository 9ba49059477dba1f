"""The implementation of `lotus.span` inside a traced program; loaded with the hooks."""

from __future__ import annotations

from . import active

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def begin(name: object) -> Callable[[], None] | None:
    """Begin a span; return the function that ends it, or None where nothing is recorded."""
    tracer = active.tracer
    if tracer is None or not tracer.on:
        return None
    recorder = tracer.recorder
    if not recorder.on or recorder.config.level < 2:
        return None
    end: Callable[[], None] = recorder.timers.span(
        recorder.definitions.define(str(name), kind="span")
    )
    return end
