"""Writing to the user's stderr without ever failing for it."""

import contextlib
import os
import select
import sys


def say(text: str) -> None:
    """Write a text to stderr; a stream that is closed, broken or full loses it."""
    stream = sys.stderr
    if stream is None:
        return
    data = (text if text.endswith("\n") else f"{text}\n").encode(
        getattr(stream, "encoding", None) or "utf-8", "backslashreplace"
    )
    with contextlib.suppress(OSError, ValueError):
        stream.flush()
        # Not by the stream: what it could not write it would try again at exit, and Python would
        # then return 120 instead of the program's exit code.
        descriptor = stream.fileno()
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:  # the program left its terminal non-blocking
                select.select([], [descriptor], [], 10)


def open_missing() -> None:
    """Give `sys.stdout` and `sys.stderr` somewhere to write to where they were closed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
