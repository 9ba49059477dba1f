"""What a program printed, but for what Python adds to it by chance."""

import json
import re
from pathlib import Path

_TRACKED = re.compile(r".*resource_tracker.*\n(  warnings\.warn\(\n)?")


def without_tracker(err: str) -> list[str]:
    """The lines of a program's stderr without those of Python's resource tracker.

    At times it warns of semaphores that a process which just ends has removed, also without lotus.
    """
    return _TRACKED.sub("", err).splitlines()


def faults(run: Path) -> str:
    """What `lotus trace` without -q would have said while the program ran, of faults of its own."""
    try:
        lines = (run / "processes.jsonl").read_text().splitlines()
    except OSError:
        return ""
    events = [json.loads(line) for line in lines if '"fault"' in line]
    return "".join(f"lotus: stopped: {one['error']}\n" for one in events if "error" in one)
