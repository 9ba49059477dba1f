"""What a program printed, but for what Python adds to it by chance."""

import json
import re
from pathlib import Path

_TRACKED = re.compile(r".*resource_tracker.*\n(  warnings\.warn\(\n)?")


def without_tracker(err: str) -> str:
    """A program's stderr without the lines of Python's resource tracker.

    It warns, in 13 of 720 runs without lotus, of semaphores that a process which just ends has
    removed.
    """
    return _TRACKED.sub("", err)


def faults(run: Path) -> str:
    """What `lotus trace` without -q would have said while the program ran, of faults of its own."""
    try:
        lines = (run / "processes.jsonl").read_text().splitlines()
    except OSError:
        return ""
    events = [json.loads(line) for line in lines if '"fault"' in line]
    return "".join(f"lotus: stopped: {event['error']}\n" for event in events if "error" in event)
