"""Python stacks of processes that run, by `py-spy dump`.

py-spy reads the memory of a process without stopping it (--nonblocking), so that a stack may be
torn between two moments. It takes some CPU time of its own: a few tenths of a second a process.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any

_PATIENCE_S = 30
_OURS = ("lotus/inside", "_lotus_inside", "<lotus hook")


def dump(pids: Iterable[int]) -> dict[int, list[str]]:
    """pid -> the stack of its main thread, innermost first, as `function (file:line)`.

    What cannot be had is a line that says why.
    """
    path = shutil.which("py-spy", path=_search())
    if path is None:
        return {pid: ["py-spy is not installed; pip install py-spy"] for pid in pids}
    return {pid: _dump(path, pid) for pid in pids}


def _search() -> str:
    # Beside the Python that runs lotus too, where its environment is not activated.
    return os.pathsep.join([os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)])


def _dump(path: str, pid: int) -> list[str]:
    command = [path, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
            start_new_session=True,  # a Ctrl-C is meant for us
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"py-spy did not answer: {error}"]
    try:
        threads = json.loads(done.stdout)
        return frames(threads, pid) or ["py-spy found no Python frame"]
    except (ValueError, RecursionError, TypeError, AttributeError, KeyError):
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return [f"py-spy: {' '.join(words)[:200] or 'no answer'}"]


def frames(threads: Sequence[dict[str, Any]], pid: int) -> list[str]:
    """The frames of the main thread, innermost first, without lotus's own hooks."""
    # On Linux the id of the main thread is that of the process.
    main = [one for one in threads if one.get("os_thread_id") == pid]
    main = main or [one for one in threads if one.get("thread_name") == "MainThread"]
    found = []
    for frame in (main or list(threads))[0]["frames"] if threads else ():
        name = str(frame.get("filename") or "")
        if not any(part in name for part in _OURS):
            short = frame.get("short_filename") or name
            found.append(f"{frame.get('name')} ({short}:{frame.get('line')})")
    return found
