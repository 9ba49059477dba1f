"""Builds `perf record` command lines and interprets perf's output. Starts nothing."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from native_map.errors import UnusableError

CLOCK = "CLOCK_MONOTONIC"
# Modifiers after an event's last colon (perf-list(1), EVENT MODIFIERS).
_MODIFIERS = re.compile(r"[ukhIGHpPSDWeb]+")
_EMPTY_WORDS = ("", "Error", "Events enabled")
_SPACES = "ukhGH"  # modifiers that select user, kernel, hypervisor, guest or host
# An event and what may be its modifiers; the colon may also be that of a tracepoint `system:name`.
_TAIL = re.compile(r"^(?P<event>.*?[/}]|[^:/{}]+):?(?P<modifiers>[^:/{}]*)$", re.DOTALL)


@dataclass(frozen=True)
class Sampling:
    """The events to sample: perf's names, each at `frequency` samples per second and CPU.

    `kernel` includes the kernel for events without a modifier that selects a mode.
    """

    events: tuple[str, ...] = ("cpu-clock",)
    frequency: int = 997
    kernel: bool = False


def split(text: str) -> tuple[str, ...]:
    """Return the events of a list such as `cycles,cpu/event=0x1a0,umask=0x01/,{a,b}`.

    Commas within slashes and braces belong to an event. Raises UnusableError for an empty event, an
    unclosed slash or brace, and for group sampling.
    """
    events, depth, slash, begin = [], 0, False, 0
    for at, letter in enumerate(text):
        if letter == "/":
            slash = not slash
        elif not slash and letter in "{}":
            depth += 1 if letter == "{" else -1
        elif letter == "," and not slash and not depth:
            events.append(text[begin:at].strip())
            begin = at + 1
    events.append(text[begin:].strip())
    if slash or depth or not all(events):
        raise UnusableError(
            f"{text!r} is not a list of events such as cycles,cpu/event=0xc0/; "
            "`perf list` names them"
        )
    for event in events:
        _refuse_group_sampling(event)
    return tuple(events)


def _refuse_group_sampling(event: str) -> None:
    match = _TAIL.match(event)
    if match and "S" in match["modifiers"] and _MODIFIERS.fullmatch(match["modifiers"]):
        raise UnusableError(
            f"{event}: group sampling (S) does not follow worker processes; "
            "name the events one by one, as in --perf-events cycles,instructions"
        )


def command(
    perf: str,
    pid: int | Sequence[int],
    output: str,
    sampling: Sampling,
    control: tuple[int, int] | None = None,
) -> list[str]:
    """Return the words of a `perf record` that attaches to a process, or several, and follows its
    children.

    `control` is two file descriptors: perf takes commands from one and acknowledges on the other
    (perf 5.10 and later). Raises UnusableError for group sampling, which drops the children.
    """
    pids = str(pid) if isinstance(pid, int) else ",".join(map(str, pid))
    words = [perf, "record", f"--pid={pids}", f"--output={output}", f"--clockid={CLOCK}"]
    # Libraries are identified by build id; copies of them in ~/.debug are not needed.
    words += [f"--freq={sampling.frequency}", "--no-buildid-cache"]
    for event in sampling.events:
        _refuse_group_sampling(event)
        words.append(f"--event={event if sampling.kernel else user_space(event)}")
    if control is not None:
        # Older versions support neither option. The thread for BPF ends only after a second.
        words += ["--no-bpf-event"]
        words.append(f"--control=fd:{control[0]},{control[1]}")
    return words


def user_space(event: str) -> str:
    """Return the event for user space only, unless it has a modifier that selects a mode."""
    match = _TAIL.match(event)
    if match is None:  # a tracepoint with modifiers
        return event
    modifiers = match["modifiers"]
    if any(letter in _SPACES for letter in modifiers) and _MODIFIERS.fullmatch(modifiers):
        return event
    if modifiers and not _MODIFIERS.fullmatch(modifiers):
        return event
    name = match["event"]
    return f"{name}{modifiers}u" if name.endswith("/") else f"{name}:{modifiers}u"


def bare(event: str) -> str:
    """Return the event without the part after its last colon or slash."""
    match = _TAIL.match(event)
    return match["event"] if match and _MODIFIERS.fullmatch(match["modifiers"]) else event


def knows_no_control(text: str) -> bool:
    """Return whether this perf is too old for `control`, judging by its output."""
    return re.search(r"unknown option .?control", text, re.IGNORECASE) is not None


def finished(text: str) -> bool:
    """Return whether perf has completed its file, judging by its output."""
    return "Captured and wrote" in text


def missed_process(text: str) -> bool:
    """Return whether a process had ended before perf could attach to it, judging by its output."""
    return "no such process" in text.lower()


def counts(text: str) -> dict[str, Any]:
    """Return figures from perf's output: the number of `samples`, chunks `lost`, and `warnings`.

    Figures that it did not print are absent.
    """
    facts: dict[str, Any] = {}
    if match := re.search(r"\((\d+) samples\)", text):
        facts["samples"] = int(match[1])
    lost = [int(number) for number in re.findall(r"\blost (\d+) (?:chunks|events|samples)", text)]
    if lost:
        facts["lost"] = sum(lost)
    marks = ("warning", "lost", "throttl", "error", "failed", "overload", "no space")
    warnings = [
        line.strip()
        for line in text.splitlines()
        if any(mark in line.lower() for mark in marks) and line.strip().lower() != "error:"
    ]
    if warnings:
        facts["warnings"] = warnings[:10]
    return facts


def reason(text: str, events: Sequence[str]) -> str:
    """Return from perf's output, in a few words, why it recorded nothing, and what to type."""
    low = text.lower()
    if "access to performance monitoring" in low or "perf_event_paranoid" in low:
        level = re.search(r"perf_event_paranoid setting is (-?\d+)", text)
        now = f" (perf_event_paranoid is {level[1]})" if level else ""
        # At level 2 users may sample their own programs, but not the kernel.
        needed = 1 if level and int(level[1]) == 2 else -1 if level and int(level[1]) < 2 else 2
        cure = f"sudo sysctl kernel.perf_event_paranoid={needed}"
        return f"perf may not sample this program{now}; {cure}"
    if "permission" in low or "not permitted" in low:
        if "perf_event_mlock_kb" in low:
            return "perf may not lock more memory; sudo sysctl kernel.perf_event_mlock_kb=2048"
        return "perf has no permission; sudo sysctl kernel.perf_event_paranoid=2"
    if "no space left" in low:
        return "the disk is full"
    if "event syntax error" in low or "cannot find pmu" in low:
        return f"perf knows no event of this name: {','.join(events)}; `perf list` names them"
    if "not supported" in low or "no such device" in low or "sys_perf_event_open" in low:
        return f"this machine cannot sample {','.join(events)}; --perf-events cpu-clock works"
    if missed_process(text):
        return "the program had already ended"
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line.strip(":") not in _EMPTY_WORDS), "")
    return f"perf said {first[:200]!r}" if first else "perf ended without a message"
