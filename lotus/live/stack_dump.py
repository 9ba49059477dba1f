"""Python stacks of running processes, by `py-spy dump`.

py-spy reads the memory of a process without stopping it (--nonblocking), so a stack may be
inconsistent. It uses a few tenths of a second of CPU time per process.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from lotus.common.machine import py_spy_program
from native_map.programs import ProgramLimits, answer

# py-spy maps the files of the process that it looks at.
_LIMITS = ProgramLimits(wait_s=30, cpu_s=30, memory=8 << 30, output=16 << 20)
_OURS = ("lotus/inside", "_lotus_inside", "<lotus hook")


def dump(pids: Iterable[int]) -> dict[int, list[str]]:
    """Map pids to the stacks of their main threads, innermost first, as `function (file:line)`.

    A stack that is not available is a line with the reason.
    """
    path = py_spy_program.find()
    if path is None:
        return {pid: [py_spy_program.MISSING] for pid in pids}
    return {pid: _dump(path, pid) for pid in pids}


def _dump(path: str, pid: int) -> list[str]:
    command = [path, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    try:
        output = answer(command, _LIMITS)
    except OSError as error:
        return [f"py-spy did not answer: {error}"]
    if output.stopped:
        return [f"py-spy did not answer: {output.stopped}"]
    try:
        threads = json.loads(output.out)
        return frames(threads, pid) or ["py-spy found no Python frame"]
    except (ValueError, RecursionError, TypeError, AttributeError, KeyError):
        return [f"py-spy: {output.complaint[:200] or 'no answer'}"]


def frames(threads: Sequence[dict[str, Any]], pid: int) -> list[str]:
    """Return the frames of the main thread, innermost first, without lotus's own hooks."""
    # On Linux the id of the main thread is that of the process.
    main = [thread for thread in threads if thread.get("os_thread_id") == pid]
    main = main or [thread for thread in threads if thread.get("thread_name") == "MainThread"]
    lines = []
    for frame in (main or list(threads))[0]["frames"] if threads else ():
        name = str(frame.get("filename") or "")
        if not any(part in name for part in _OURS):
            short = frame.get("short_filename") or name
            lines.append(f"{frame.get('name')} ({short}:{frame.get('line')})")
    return lines
