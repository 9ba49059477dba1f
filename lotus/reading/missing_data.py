"""Reasons for a run that recorded nothing, or too little: from what its processes reported."""

import os
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lotus.common.machine import memory_headroom
from lotus.common.text.formatting import amount, plural, signal_name, size
from lotus.format import process_reports

# A loss that affects no other figure: a worker ended before it noted when it had sent its last
# batch.
SEND_TIMES = "send times of a batch"
_NO_PYTHON = (
    "no Python process reported: the command started none, or started it so that lotus cannot "
    "load (python -I, -E or -S, or an empty environment); run it without these"
)
_NO_TORCH = (
    "lotus records loops over torch's DataLoader, but this program never imported "
    "torch.utils.data; check that this command starts the training"
)
_ENDED_BEFORE = "no DataLoader was iterated before that, so there is nothing to report"
_NO_ITERATION = (
    "torch.utils.data was imported, but no DataLoader was iterated: nothing was recorded; "
    "check that the program reached its training loop"
)


def processes(directory: Path) -> list[dict[str, Any]]:
    """Return what the traced processes reported (processes.jsonl), without incomplete lines."""
    try:
        return process_reports.read(directory).lines
    except OSError:
        return []


def notes(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the remarks among the lines of processes.jsonl."""
    texts = [report.get("text") for report in reports if report.get("event") == "note"]
    return [text for text in texts if isinstance(text, str)]


def ending(
    exit_code: int | None,
    signal: int | None,
    memory_kills: int | None = None,
    recorded: bool = True,
) -> list[str]:
    """Return lines that say how the program ended, none if it succeeded.

    `memory_kills` is that of `manifest.end`; `recorded`: something is kept.
    """
    lines = []
    if signal is not None:
        lines.append(f"the program was ended by {signal_name(signal)}")
    elif exit_code:
        lines.append(f"the program ended with code {exit_code}")
    lines = [f"{line}; what it did until then is kept" if recorded else line for line in lines]
    if memory_kills:
        limit = memory_headroom.limit()
        limited = "" if limit is None else f" (memory limit {size(limit)})"
        lines.append(
            f"out of memory: the kernel killed {plural(memory_kills, 'process')} of this "
            f"cgroup{limited} while it ran; if they were the program's, use fewer workers, a "
            "smaller prefetch_factor or less data in memory"
        )
    return lines


def missing(
    reports: Sequence[Mapping[str, Any]],
    unseen: Sequence[Mapping[str, Any]] = (),
    failed: bool = False,
) -> list[str]:
    """Return lines that say why no batch was recorded; none if there are batches.

    `reports` are the lines of processes.jsonl, `unseen` the loaders that lotus cannot observe,
    `failed`: the program did not end well, which is why as far as nothing else is known.
    """
    lines = [f"not seen: {loader.get('what')}, for {loader.get('why')}" for loader in unseen]
    events = {report.get("event") for report in reports}
    if "python" not in events:
        return [_NO_PYTHON]
    faults = [str(report.get("error")) for report in reports if report.get("event") == "fault"]
    if faults:
        return [*lines, f"recording was switched off: {faults[0]}"]
    lines += notes(reports)
    if "torch" not in events:
        return lines or [_ENDED_BEFORE if failed else _NO_TORCH, *_other_environment(reports)]
    return lines or [_ENDED_BEFORE if failed else _NO_ITERATION]


def loss(what: str, count: int, size_bytes: int = 0, times: int = 1) -> str:
    """Return what was lost, in words; `what` as in `Run.lost`, `times` in how many rows of it."""
    if what == SEND_TIMES:
        whose = "its worker" if count == 1 else "their workers"
        return (
            f"when {plural(count, 'batch')} had been sent is not known, as {whose} ended before "
            "noting it; no other figure lacks anything"
        )
    text = what
    if count > 0:
        text += f": {amount(count)}"
    if size_bytes > 0:
        text += f" ({size(size_bytes)})"
    return f"{text}, in {times} places" if times > 1 else text


def unfound(ops: Sequence[str], recorded: Collection[str], notes: Iterable[str]) -> list[str]:
    """Return a line for each `--op` whose module was never imported.

    `ops` are those of the manifest, `recorded` the names of operations of the kind "named". An `op`
    for which the tracer already made a remark (`notes`), such as that a module lacks the function,
    is skipped.
    """
    lines = []
    remarks = list(notes)
    for op in ops:
        module, _, name = op.partition(":")
        if name not in recorded and not any(text.startswith(f"--op {op}: ") for text in remarks):
            hint = "" if module == "__main__" else " (the script itself is __main__)"
            lines.append(f"--op {op} was never found: no recorded process imported {module}{hint}")
    return lines


def _other_environment(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line if no Python that ran is of the environment that lotus is installed in.

    Then `python` is often another than the user means, as no environment is active.
    """
    texts = [report.get("executable") for report in reports if report.get("event") == "python"]
    ran = {text for text in texts if isinstance(text, str)}
    own = sys.executable
    if not own or not ran or any(os.path.dirname(path) == os.path.dirname(own) for path in ran):
        return []
    return [
        f"the program ran in {', '.join(sorted(ran))}, lotus in {own}: if torch is installed "
        f"beside lotus only, type lotus trace -- {shlex.quote(own)} and then the script"
    ]
