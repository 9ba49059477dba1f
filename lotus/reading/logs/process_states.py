"""Reads the state pages of a run: what each process is doing, or did before it was killed."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lotus.common.errors import LotusError
from lotus.common.storage import files
from lotus.common.text import decoder_name
from lotus.inside.trace.log import state_page

_settle: Callable[[str, str, bytes], None] = state_page.settle
# Between its loops a process runs the program's own code, as in a step.
PHASES = ("starting", "idle", "fetch", "collate", "send", "wait", "step", "ended", "step")


@dataclass(frozen=True)
class State:
    """The state of a process. Times are CLOCK_MONOTONIC or None; -1 for no worker or batch.

    worker     its number, -1 for a main process
    phase      one of PHASES; since_ns is its start
    loader, epoch, batch  those that it works on (a worker does not know its loader)
    sample     index of its current sample; None: no sample, or its index is not a number
    operation  the last one that started in the current sample (or outside any), and when
    """

    pid: int
    worker: int
    phase: str
    since_ns: int
    start_ns: int
    loader: int
    epoch: int
    batch: int
    sample: int | None
    sample_since_ns: int | None
    operation: str | None
    operation_since_ns: int | None


def read(directory: str | os.PathLike[str], named: bool = True) -> list[State]:
    """Return the states of all processes of a run, ordered by start; skip invalid files.

    Names of operations are in the logs, all of which are read for them if `named`.
    """
    names: dict[int, list[tuple[int, dict[int, str]]]] = {}
    states = []
    for words in _pages(Path(directory)):
        if named and not names:
            names = _operation_names(Path(directory))
        states.append(decoded(words, names.get(words[state_page.W_PID], [])))
    return sorted(states, key=lambda state: (state.start_ns, state.pid))


def open_waits(directory: Path, end_ns: object) -> list[tuple[int, ...]]:
    """Return (pid, loader, epoch, batch, start, length) of each wait open at the run's end, ns.

    `end_ns`: as a manifest has it; no number, or 0, where the end is not known.
    """
    if not isinstance(end_ns, int):
        return []
    return [
        (state.pid, state.loader, state.epoch, state.batch, state.since_ns, end_ns - state.since_ns)
        for state in read(directory, named=False)
        if state.worker < 0 and state.phase == "wait" and 0 < state.since_ns < end_ns
    ]


def settle(directory: Path) -> None:
    """Move the pages that killed processes left in /dev/shm into the run."""
    for link in _files(directory):
        with contextlib.suppress(OSError):
            target = os.readlink(link)
            if target == _moved(link):
                try:
                    _settle(target, str(link), content(link))
                except OSError:  # the disk is full: better no page than one that stays
                    os.unlink(target)


def content(path: Path) -> bytes:
    """Return the bytes of a page. Raises OSError if it is not a valid file of this user.

    The only link that is followed is the one to this page's place in /dev/shm.
    """
    place: Path | str = path
    if path.is_symlink() and os.readlink(path) == _moved(path):
        place = _moved(path)
    with open(files.open_plain(place), "rb") as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            raise OSError("not a state page")
        content = file.read(state_page.SIZE + 1)
    if len(content) != state_page.SIZE:
        raise OSError("not a state page")
    return content


def _moved(path: Path) -> str:
    return f"{state_page.SHM}/lotus-{path.name}"


def _files(directory: Path) -> list[Path]:
    """Return the pages of a run; none if their directory is outside the run."""
    folder = directory / "state"
    return [] if folder.is_symlink() else sorted(folder.glob("*.state"))


def _pages(directory: Path) -> Iterator[memoryview]:
    for path in _files(directory):
        with contextlib.suppress(OSError):
            words = memoryview(content(path)).cast("q")
            if words[state_page.W_MAGIC] == state_page.MAGIC:
                yield words


def _operation_names(directory: Path) -> dict[int, list[tuple[int, dict[int, str]]]]:
    """Map each pid to (start of the log, operation id -> name) of its logs."""
    from lotus.reading.logs.event_log import EventLog, ForeignError  # numpy is slow to import

    names: dict[int, list[tuple[int, dict[int, str]]]] = {}
    events = directory / "events"
    for path in [] if events.is_symlink() else sorted(events.glob("*.ltr")):
        with contextlib.suppress(OSError, ForeignError, LotusError):
            log = EventLog(str(path.parent), path.name)
            known: dict[int, str] = {}
            for event in log.events:
                defined = event.get("operations")
                for operation in defined if isinstance(defined, list) else ():
                    if isinstance(operation, dict) and isinstance(operation.get("id"), int):
                        known[operation["id"]] = str(operation.get("name"))
                        decoder_name.note(operation)
            names.setdefault(log.pid, []).append((log.start_ns, known))
    return names


def decoded(words: memoryview, names: list[tuple[int, dict[int, str]]]) -> State:
    """Decode a state page; `names`: (start ns, names of operations by id) of each log."""
    phase = words[state_page.W_PHASE]
    since, sample_since = words[state_page.W_SINCE], words[state_page.W_SAMPLE_SINCE]
    known = phase in range(len(PHASES))
    in_sample = phase == state_page.FETCH and sample_since >= since
    place = max(range(state_page.OPERATIONS, state_page.LAST + 1), key=words.__getitem__)
    began = words[place]
    operation = None
    if began > 0 and began >= (sample_since if in_sample else since) and phase != state_page.ENDED:
        # pids are reused: the process's log is the one that began closest to the page
        logs = sorted(names, key=lambda log: abs(log[0] - words[state_page.W_START]))
        number = place - state_page.OPERATIONS
        operation = (logs[0][1] if logs else {}).get(number, f"operation {number}")
    return State(
        pid=words[state_page.W_PID],
        worker=words[state_page.W_WORKER],
        phase=PHASES[phase] if known else f"phase {phase}",
        since_ns=since,
        start_ns=words[state_page.W_START],
        loader=words[state_page.W_LOADER],
        epoch=words[state_page.W_EPOCH],
        batch=words[state_page.W_BATCH],
        sample=words[state_page.W_SAMPLE]
        if in_sample and words[state_page.W_SAMPLE] >= 0
        else None,
        sample_since_ns=sample_since if in_sample else None,
        operation=operation,
        operation_since_ns=began if operation is not None else None,
    )
