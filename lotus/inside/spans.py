"""What `lotus.span` calls inside a traced program; loaded with the hooks."""

import threading

from . import install, state
from . import usage as kernel
from .recorder import clock


def begin(name):
    """Begin a span; return the function that ends it, or None where nothing is recorded."""
    tracer = install.active
    if tracer is None or not tracer.on:
        return None
    recorder = tracer.recorder
    if not recorder.on or recorder.config.level < 2:
        return None
    operation = recorder.define(str(name), kind="span")
    page, word = recorder.page, state.word_of(operation)
    usage = kernel.now() if recorder.config.level == 3 else None
    page[word] = start = clock()

    def end():
        now = clock()
        page[word] = 0
        row = None if usage is None else kernel.since(usage)
        base = recorder.base
        if base and base <= start and recorder.owner == threading.get_ident():
            recorder.ops.extend((start - base, now - start, operation))
            if row is not None:
                recorder.ops_cpu.extend(row)
        elif recorder.on:
            recorder.add_loose(start, now, operation, row)

    return end
