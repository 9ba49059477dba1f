"""Decides if a process that iterates a loader makes progress, and if not, what blocks it.

The verdict is computed from the state pages of the main process and its workers, and from what the
kernel reports about them. A pause alone does not prove a cause: the text says what is known, and
which command shows more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lotus.common.text.formatting import duration, operation_name
from lotus.format.hang_threshold import hang_threshold_ns

BUSY = 0.3  # cores: a process that uses this much is computing
WORKING = ("fetch", "collate", "send")
# Kinds of verdicts that need the user's attention.
BAD = ("dead", "hung", "storage", "slow", "lost", "stopped")
NAN = float("nan")


@dataclass(frozen=True)
class Doing:
    """The work of a process; durations in ns up to the time of the view, -1 and None as in State.

    alive   None if it cannot be determined from this host
    quiet_ns  time since the last activity on its page; an idle worker's waiting is not activity
    cpu     cores in use since the previous view; NaN if not known
    status, asleep  as in ProcessStatus; "" if not known
    rss, shared, pss  bytes, NaN if not known
    """

    pid: int
    worker: int
    alive: bool | None
    phase: str
    since_ns: int
    quiet_ns: int
    batch: int = -1
    sample: int | None = None
    sample_ns: int | None = None
    operation: str | None = None
    operation_ns: int | None = None
    cpu: float = NAN
    status: str = ""
    asleep: str = ""
    rss: float = NAN
    shared: float = NAN
    pss: float = NAN
    loader: int = -1

    @property
    def name(self) -> str:
        """The name that is shown to users."""
        return "the main process" if self.worker < 0 else f"worker {self.worker}"


@dataclass(frozen=True)
class Loop:
    """The loop of a main process, as far as it is known.

    workers   the workers of the loader that it iterates
    awaited   the batch that it takes next
    awaited_made  whether a worker has already sent that batch
    whole     every batch is recorded: a batch without a record was not made
    outside   the epoch has ended, or none has begun
    in_order  the batches are taken in the order of the sampler
    typical_ns  median time of a batch (to make it or to take it, whichever is longer); NaN before
                the first
    """

    main: Doing
    workers: Sequence[Doing] = ()
    awaited: int = -1
    awaited_made: bool = False
    whole: bool = True
    outside: bool = False
    in_order: bool = True
    typical_ns: float = NAN


@dataclass(frozen=True)
class HangVerdict:
    """kind: one of BAD, or "moving", "starting", "step" (the program's own), "outside" (no loop),
    "unwatched" (its recording has stopped).

    pid, worker, batch, sample  of the process that blocks the loop; None if it is not known
    """

    kind: str
    headline: str
    lines: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    quiet_ns: int = 0
    pid: int | None = None
    worker: int | None = None
    batch: int | None = None
    sample: int | None = None

    @property
    def bad(self) -> bool:
        """True if something is wrong."""
        return self.kind in BAD


UNWATCHED = HangVerdict("unwatched", "its recording has stopped: its present state is not known")


def judge(loop: Loop) -> HangVerdict:
    """Return the verdict on what blocks this loop, if anything does."""
    main, workers = loop.main, loop.workers
    quiet_ns = min(
        [main.quiet_ns, *(process.quiet_ns for process in workers if process.phase != "ended")]
    )
    stopped = next((process for process in (main, *workers) if process.status in ("T", "t")), None)
    if stopped is not None:
        return _stopped(stopped, quiet_ns)
    dead = [process for process in workers if process.alive is False and process.phase != "ended"]
    if dead and main.alive is not False:
        return _dead(dead, quiet_ns)
    if quiet_ns < hang_threshold_ns(loop.typical_ns):
        return HangVerdict("moving", "moving", quiet_ns=quiet_ns)
    if main.phase == "step":
        return _step(loop, quiet_ns)
    culprit = _culprit(loop)
    if culprit is not None:
        return _held(culprit, loop, quiet_ns)
    if main.phase == "wait":
        return _lost(loop, quiet_ns)
    text = f"no loop has begun since {duration(quiet_ns)}"
    return HangVerdict("starting", text, [_line(main)], [_dump(main)], quiet_ns)


def _culprit(loop: Loop) -> Doing | None:
    """Return the process that makes the batch for which the loop waits."""
    if loop.main.phase in WORKING:
        return loop.main  # without workers it makes its batches itself
    if loop.main.phase != "wait":
        return None
    busy = [process for process in loop.workers if process.phase in (*WORKING, "starting")]
    if loop.in_order:
        mine = [
            process
            for process in busy
            if process.phase in WORKING and process.batch == loop.awaited
        ]
        if mine or loop.awaited_made:
            return mine[0] if mine else None
        # torch assigns batches in turn: one not yet begun is queued at the worker whose turn it is.
        turn = loop.awaited % len(loop.workers) if loop.workers and loop.awaited >= 0 else -1
        return next((process for process in busy if process.worker == turn), None)
    return max(busy, key=lambda process: process.quiet_ns, default=None)


def _held(process: Doing, loop: Loop, quiet_ns: int) -> HangVerdict:
    place = f"batch {process.batch}" if process.batch >= 0 else "its start"
    if process.sample is not None:
        place = f"sample {process.sample} of batch {process.batch}"
    if process.phase in ("collate", "send"):
        place = f"{process.phase} of batch {process.batch}"
    if process.status == "D":
        kind, word = "storage", "HUNG"
    elif process.status == "R" or process.cpu >= BUSY:
        kind, word = "slow", "SLOW"
    else:
        kind, word = "hung", "HUNG"
    headline = f"{word}: nothing has moved for {duration(quiet_ns)}; {process.name} is at {place}"
    lines = [_line(process), _why(process, kind)]
    if process is not loop.main:
        lines.append(f"the main process (pid {loop.main.pid}) waits for batch {loop.awaited}")
        others = [other for other in loop.workers if other is not process]
        idle = sum(other.phase == "idle" for other in others)
        if idle:
            lines.append(f"{idle} of {len(others)} other workers idle")
    if process.sample is not None:
        lines.append(f"to try that sample by itself: dataset[{process.sample}]")
    return _about(process, kind, headline, lines, [_dump(process)], quiet_ns)


def _about(
    process: Doing,
    kind: str,
    headline: str,
    lines: list[str],
    commands: list[str],
    quiet_ns: int,
) -> HangVerdict:
    """Return a verdict on a process, with the batch and sample that it works on."""
    place = (process.pid, process.worker, process.batch, process.sample)
    return HangVerdict(kind, headline, lines, commands, quiet_ns, *place)


def _why(process: Doing, kind: str) -> str:
    if kind == "storage":
        return (
            "the kernel waits for a disk or a file server for it (state D): see dmesg, df, mounts"
        )
    if kind == "slow":
        return "it is computing: a slow sample, or an infinite loop"
    if process.asleep.startswith("futex"):
        return (
            "it waits for a lock: another of its threads holds it, or a thread held it that a fork "
            "did not copy (OpenMP, OpenCV, HDF5)"
        )
    if process.asleep:
        return "it is not computing: the function above waits for something"
    return "it is not computing" if process.status == "S" else "what it waits for is not known"


def _lost(loop: Loop, quiet_ns: int) -> HangVerdict:
    main, awaited = loop.main, loop.awaited
    if not loop.workers:
        headline = f"HUNG: next() of batch {awaited} lasts {duration(main.since_ns)}"
        lines = [_line(main), "its sampler or its data set waits: it is not making a sample"]
        return HangVerdict("hung", headline, lines, [_dump(main)], quiet_ns, main.pid, -1, awaited)
    since = duration(quiet_ns)
    headline = f"DEADLOCK: nothing has moved for {since}; no process is making batch {awaited}"
    lines = [_line(main)]
    if loop.awaited_made:
        lines.append(
            f"batch {awaited} was made and has not arrived: look at the worker's queue thread, "
            "the pin thread and /dev/shm"
        )
    elif not loop.whole:
        lines.append("not every batch is recorded, so it is not known whether a worker has made it")
    else:
        lines.append(
            f"all {len(loop.workers)} workers are idle: the batch was not requested, or its "
            "indices did not arrive"
        )
    return HangVerdict("lost", headline, lines, [_dump(main)], quiet_ns, main.pid, -1, awaited)


def _step(loop: Loop, quiet_ns: int) -> HangVerdict:
    main = loop.main
    if loop.outside:
        text = f"the last epoch ended {duration(main.since_ns)} ago; no loader is iterated since"
        return HangVerdict("outside", text, [_line(main)], [_dump(main)], quiet_ns)
    text = f"the program's own step lasts {duration(main.since_ns)}: it is not waiting for data"
    return HangVerdict("step", text, [_line(main)], [_dump(main)], quiet_ns, main.pid)


def _stopped(process: Doing, quiet_ns: int) -> HangVerdict:
    if process.status == "t":
        text = f"STOPPED: a debugger holds {process.name} (pid {process.pid})"
        return HangVerdict(
            "stopped", text, [_line(process)], [], quiet_ns, process.pid, process.worker
        )
    text = f"STOPPED: {process.name} (pid {process.pid}) was stopped by a signal (Ctrl-Z, SIGSTOP)"
    lines, commands = [_line(process)], [f"kill -CONT {process.pid}"]
    return HangVerdict("stopped", text, lines, commands, quiet_ns, process.pid, process.worker)


def _dead(dead: Sequence[Doing], quiet_ns: int) -> HangVerdict:
    process = dead[0]
    others = f" and {len(dead) - 1} more" if len(dead) > 1 else ""
    headline = f"DEAD: {process.name} (pid {process.pid}){others} is gone"
    if process.sample is not None:
        headline += f", last at sample {process.sample} of batch {process.batch}"
    elif process.batch >= 0:
        headline += f", last at batch {process.batch}"
    lines = [
        f"its last state: {_state(process)}",
        "it was killed, as for lack of memory, or crashed in C code; see the log of the kernel",
    ]
    return _about(process, "dead", headline, lines, ["dmesg | tail"], quiet_ns)


def _dump(process: Doing) -> str:
    return f"py-spy dump --pid {process.pid}"


def _line(process: Doing) -> str:
    """Return what is known about a process, as a sentence."""
    text = f"{process.name} (pid {process.pid}): {_state(process)}"
    if process.status == "D":
        text += f"; waits for storage{f' in {process.asleep}' if process.asleep else ''}"
    elif process.cpu >= BUSY:
        text += f"; uses {process.cpu:.0%} of a core"
    elif process.status == "R":
        text += "; is running"
    elif process.status == "S":
        text += f"; sleeps{f' in {process.asleep}' if process.asleep else ''}"
    return text


def _state(process: Doing) -> str:
    text = f"{process.phase} for {duration(process.since_ns)}"
    if process.sample_ns is not None:
        work = "a sample" if process.sample is None else f"sample {process.sample}"
        text += f", {work} for {duration(process.sample_ns)}"
    if process.operation is not None and process.operation_ns is not None:
        text += f", {operation_name(process.operation)} began {duration(process.operation_ns)} ago"
    return text
