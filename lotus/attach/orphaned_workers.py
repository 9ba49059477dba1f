"""Finds workers whose program has ended, which still hold memory and cores."""

import re
import subprocess
from collections.abc import Callable, Iterable, Mapping

from lotus.attach.processes import process_discovery
from lotus.attach.processes.process_discovery import ProcessFacts
from lotus.attach.stacks import stack_recorder
from lotus.common.text.formatting import plural

_LOOP = re.compile(r"\b_worker_loop \(.*worker\.py")
_MOST_ASKED, _PATIENCE_S = 8, 10.0


def orphaned_workers(
    processes: Mapping[int, ProcessFacts],
    named: int | None = None,
    is_worker: Callable[[int], bool] | None = None,
) -> list[ProcessFacts]:
    """Return the workers of loaders whose program has ended, sorted by process id.

    Newer torch names its workers. Other forked processes whose parent has ended may be programs
    that moved to the background: `is_worker` decides about them by their stacks, or only about
    the process `named`, if that is given.
    """
    asked, result = 0, []
    for facts in sorted(processes.values(), key=lambda each: each.pid):
        if not facts.torch or facts.state in "ZX" or not _is_adopted(facts, processes):
            continue
        certain = process_discovery.is_named_worker(facts)
        if not certain and asked < _MOST_ASKED and named in (None, facts.pid):
            asked += 1
            certain = (is_worker or _runs_worker_loop)(facts.pid)
        if certain:
            result.append(facts)
    return result


def sentence(workers: Iterable[int], *, just_now: bool = False) -> str:
    """Return a sentence that names these workers and the command that ends them; "" if none.

    `workers`: process ids. `just_now`: their program has just ended, so they may end by themselves.
    """
    pids = [str(pid) for pid in workers]
    if not pids:
        return ""
    are, their = ("is", "its") if len(pids) == 1 else ("are", "their")
    text = f"{plural(len(pids), 'worker')} ({', '.join(pids)}) "
    if just_now:
        text += f"still ran when {their} program had ended. If that lasts for longer than some "
        text += "seconds, end"
    else:
        text += f"{are} left over: {their} program has ended. End"
    return f"{text} what is left with: kill {' '.join(pids)}"


def _is_adopted(facts: ProcessFacts, processes: Mapping[int, ProcessFacts]) -> bool:
    """Return whether a forked or spawned process has lost the parent that started it."""
    if not (facts.forked or process_discovery.is_spawned(facts)):
        return False
    parent = processes.get(facts.parent)
    # Only Python programs fork or spawn in this way.
    return parent is None or not parent.python


def _runs_worker_loop(pid: int) -> bool:
    """Return whether py-spy finds torch's worker loop in the stacks of a process."""
    path, problem = stack_recorder.find()
    if problem:
        return False
    try:
        words = [path, "dump", "--nonblocking", "--pid", str(pid)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=_PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return bool(_LOOP.search(done.stdout))
