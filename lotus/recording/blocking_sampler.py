"""Samples what blocks threads that make or await batches, and the machine's state: blocking.json.

A thread of the launcher looks at them up to 50 times a second: the kernel tells a process's
ancestors in which system call a thread is (/proc/PID/syscall), and the state page tells the
operation in hand. Nothing runs inside the program for it. The looks take at most 0.7 % of a core:
the more processes there are, the rarer they are. What else it reads has limits of its own.
"""

import contextlib
import os
import resource
import threading
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from lotus.common.errors import LotusError
from lotus.common.machine.kernel_files import contents
from lotus.common.storage import files
from lotus.common.text import redaction
from lotus.format.run_directory import BLOCKING as NAME
from lotus.format.run_directory import STANDING_CODE
from lotus.inside.common.process_stat import ProcessStat
from lotus.inside.trace.log import state_page
from lotus.recording.looks import state_pages
from lotus.recording.looks.blocked_reason import BlockedReasons
from lotus.recording.looks.look_counts import IN_COLLATE, IN_NEXT, IN_OWN_CODE, IN_STEP, LookCounts
from lotus.recording.looks.look_pace import LookPace
from lotus.recording.looks.mounts import Mounts
from lotus.recording.looks.place_counts import PlaceCounts
from lotus.recording.looks.standing_processes import Standing
from lotus.recording.looks.state_pages import StatePages
from lotus.recording.readings.kept_children import KeptChildren
from lotus.recording.readings.kept_files import KeptFiles
from lotus.recording.readings.machine_load import MachineLoad
from lotus.recording.readings.orphans import Orphans
from lotus.recording.readings.parents import descends
from lotus.recording.readings.process_memory import ProcessMemory
from lotus.recording.readings.process_times import ProcessTimes
from lotus.recording.stacks.long_step_sampler import LongStepSampler
from lotus.recording.stacks.own_code_sampler import MAKING, TAKING, OwnCodeSampler
from lotus.recording.stacks.pause_sampler import PauseSampler
from lotus.recording.stacks.pause_times import PauseTimes
from lotus.recording.stacks.py_spy_child import PySpyChild, refusal_here

_PERIOD_S = 0.02
_RESCAN_S = 0.5
_IDLE_S = 0.1  # while there is no process to observe
_MOST_ROWS = 5000
# Of all observations of a part: from this share on, its Python stacks are worth recording.
_LARGE_SHARE, _BINDING_SHARE, _LOCKED_SHARE = 0.25, 0.75, 0.2
_NOT_WRITTEN = (
    "what threads were blocked in, memory and the load of the machine are not known: lotus writes "
    "down what it observed from outside as the program ends, and it still runs or was killed, or "
    "had no room for it"
)
_OTHERWISE = {
    state_page.COLLATE: IN_COLLATE,
    state_page.WAIT: IN_NEXT,
    state_page.STEP: IN_STEP,
}
_FEW = 64  # words: the page of a program with up to 48 operations has no more
_NO_MORE = bytes(state_page.SIZE - 8 * _FEW)
_LOOKED_AT = (state_page.FETCH, *_OTHERWISE)


class BlockingSampler:
    """A context manager: looks while it is entered, and writes the file as it is left."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._entered = threading.Lock()  # waiting takes a third less than for an Event
        self._thread = threading.Thread(target=self._run, name="lotus-blocking", daemon=True)
        self._files = KeptFiles()
        self._reasons = BlockedReasons(self._files.read)
        self._pages = StatePages(directory / "state")
        self._batch_processes: set[int] = set()  # all that have had a page
        self._descendants: dict[int, bool] = {}
        self._outside: dict[int, int] = {}  # pid of no descendant -> its first `W_SINCE`
        self._looks = LookCounts()
        self._places = PlaceCounts()
        self._mounts = Mounts()
        self._machine = MachineLoad()
        self._memory = ProcessMemory()
        self._times = ProcessTimes()
        self._kept = KeptChildren(Orphans(f"LOTUS_RUN={directory.absolute()}"))
        self._delays: dict[int, int] = {}  # pid of a main process -> ns
        self._stats: dict[tuple[int, int], ProcessStat] = {}  # (pid, worker) -> the last one
        self._pause_times = PauseTimes()
        self._own_code = OwnCodeSampler(directory)
        self._pauses = PauseSampler(directory)
        self._standing = Standing()
        self._standing_code = PySpyChild(directory / STANDING_CODE)
        self._long_steps = LongStepSampler(directory)
        self._cost_ns = self._ended_ns = 0
        self._problem = ""

    def __enter__(self) -> "BlockingSampler":
        self._write({"schema": 1, "problem": _NOT_WRITTEN})  # which stays, if lotus is killed
        self._machine.read(now=True)
        self._ended_ns = _cpu_of_ended()
        self._entered.acquire()
        try:
            self._thread.start()
        except RuntimeError:  # as where a user may have no more processes
            self._problem = (
                "lotus could not start a thread: the program was not observed from outside"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._entered.release()
        if self._thread.ident is not None:
            self._thread.join()
        samples = self._samples
        for sample in samples:
            sample.interrupt()  # all write what they have at once
        self._machine.read(now=True)
        for sample in samples:
            sample.finish()
        most = self._looks.rows.most_common(_MOST_ROWS)
        rows = [
            {"pid": pid, "worker": worker, "operation": operation, "reason": reason, "looks": looks}
            for (pid, worker, operation, reason), looks in most
        ]
        kept = sum(looks for _, looks in most)
        problem = self._problem or self._pages.problem or self._reasons.problem
        places = self._place_rows()
        left_out = (
            _left_out(self._looks.rows, kept),
            _elsewhere(self._places.elsewhere, sum(row["looks"] for row in places)),
        )
        record = {
            "schema": 1,
            "cost_ns": self._cost_ns,
            "problem": problem or " ".join(filter(None, left_out)),
            "rows": rows,
            "places": places,
            "places_elsewhere": self._places.elsewhere,
            "machine": self._machine.rows,
            "memory": self._memory.rows,
            "program_ns": _cpu_of_ended() - self._ended_ns,
            "children": [
                self._process_row(process) for process in {**self._stats, **self._times.processes}
            ],
            "standing": self._standing.rows(),
            "standing_code": self._standing_code.stacks,
            "no_stacks": next(filter(None, (each.refusal for each in samples)), refusal_here()),
            **self._stacks(),
        }
        self._write(record)

    @property
    def _samples(self) -> tuple[PySpyChild, ...]:
        return (
            self._own_code.sample, self._pauses.sample, self._long_steps.sample,
            self._standing_code,
        )  # fmt: skip

    def _stacks(self) -> dict[str, Any]:
        """Return the stacks of loops and pauses, and the source of the lines of all."""
        of_loops, of_pauses, long, _ = self._samples
        kept = of_loops, of_pauses, *([long] if long.times else [])  # only these tell them apart
        rows, before = [], 0
        for sample in kept:
            rows += sample.rows_of_times(before)
            before += len(sample.stacks)
        texts = (each.texts.items() for each in self._samples)
        return {
            "own_code": of_loops.stacks,
            "pause_code": [stack for sample in kept[1:] for stack in sample.stacks],
            "own_code_texts": {at: text for items in texts for at, text in items},
            "stack_times": rows,
            "stack_times_bound_ns": max(sample.bound_ns for sample in kept),
        }

    def _process_row(self, process: tuple[int, int]) -> list[int]:
        used, stat = self._times.between(process), self._stats.get(process)
        return [
            *process,
            -1 if stat is None else stat.children_ns,
            used.cpu_ns,
            used.wall_ns,
            self._kept.cpu_ns(process, self._batch_processes),
            used.system_ns,
            used.minor_faults,
            used.copied_bytes,
            used.copies,
            self._delays.get(process[0], -1),
        ]

    def _place_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "pid": pid,
                "operation": operation,
                "reason": reason,
                "place": redaction.text(place),
                "file_system": self._mounts.type_of(pid, place),
                "looks": looks,
            }
            for (pid, operation, reason, _), place, looks in self._places.rows()
        ]

    def _write(self, record: dict[str, Any]) -> None:
        with contextlib.suppress(LotusError):  # a full disk is reported by what matters more
            # Without spaces: a long run has thousands of processes.
            files.replace(self._directory / NAME, files.json_text(record, indent=None), mode=0o600)

    def _run(self) -> None:
        try:
            self._look_until_stopped()
            self._note_those_not_looked_at()
        except Exception as error:  # an error of lotus must not affect the program
            self._problem = f"{type(error).__name__}: {error}"[:300]
        finally:
            self._files.close()
            self._pages.close_all()

    def _look_until_stopped(self) -> None:
        pace, period, scanned = LookPace(), _PERIOD_S, 0.0
        running: set[int] = set()
        while not self._is_left_within(period):
            of_stacks = 0
            if time.monotonic() - scanned > _RESCAN_S:
                self._pages.find()
                of_stacks = self._consider_stacks(running)
                scanned = time.monotonic()
            processes = [
                process
                for name, descriptor in list(self._pages.open.items())
                if (process := self._look(name, descriptor)) is not None
            ]
            running = {pid for pid, _ in processes}
            self._machine.read(running)
            cost = time.thread_time_ns() - self._cost_ns  # waking up is a part of it
            self._memory.read(processes)  # within limits of its own
            self._cost_ns = time.thread_time_ns()
            least = _PERIOD_S if self._pages.open else _IDLE_S
            # To start py-spy takes as long as many looks, which are not to wait for it.
            period = pace.until_next(cost - of_stacks, least)

    def _consider_stacks(self, running: set[int]) -> int:
        """Read the Python stacks that were sampled, and sample those that are worth it now.

        Returns its CPU time, in nanoseconds.
        """
        begun = time.thread_time_ns()
        for sample in self._samples:
            sample.collect()
        # The workers of a loop that hardly waits are not observed.
        for part, least_share, subject in (
            (self._looks.step, _BINDING_SHARE, TAKING),
            (self._looks.own_code, _LARGE_SHARE, MAKING),
            (self._looks.collate, _LARGE_SHARE, MAKING),
            (self._looks.computing_next, _LARGE_SHARE, TAKING),
            (self._looks.locked_step, _LOCKED_SHARE, TAKING),
        ):
            self._own_code.consider(part, least_share, running, subject)
        if (still := self._standing.longest(running)) is not None:
            self._standing_code.start(still[0])
        return time.thread_time_ns() - begun

    def _is_left_within(self, seconds: float) -> bool:
        return self._entered.acquire(timeout=seconds)

    def _look(self, name: str, descriptor: int) -> tuple[int, int] | None:
        """Count what a process is at; its pid and worker, None where it is not the program's."""
        page, words = self._read(descriptor)
        pid, worker = (
            (-1, -1) if words is None else (words[state_page.W_PID], words[state_page.W_WORKER])
        )
        if words is None or words[state_page.W_PHASE] == state_page.ENDED:
            self._pages.close(name)
            self._look_at_pause(pid, False)
            self._standing.forget_if_short(pid)
            return None
        if not self._is_ours(pid):
            self._note_outside(pid, words[state_page.W_SINCE])
            return None
        if worker < 0:
            self._look_at_pause(pid, words[state_page.W_PHASE] == state_page.BETWEEN)
            beside = self._own_code.sample.pid
            self._long_steps.look(pid, words, time.monotonic(), beside)
        if self._times.read((pid, worker)):
            self._kept.read((pid, worker), self._batch_processes)
        if words[state_page.W_PHASE] in _LOOKED_AT and worker < 0:
            self._note_delay_before(pid)
        if words[state_page.W_PHASE] in _LOOKED_AT and not self._reasons.problem:
            try:
                reason, place = self._reason(pid, worker)
                operation, since_ns = _operation(page, words)
                self._looks.add(pid, worker, operation, reason)
                self._standing.look((pid, worker), (operation, since_ns), reason, place)
                if place:
                    self._places.add(pid, operation, reason, place)
                    self._mounts.note(pid)
            except PermissionError:
                self._problem = (
                    "the kernel does not let lotus see what the program's threads wait for"
                )
            except OSError as error:
                if error.errno in state_pages.NO_DESCRIPTOR:
                    self._pages.problem = state_pages.FEW_DESCRIPTORS
                return None  # else it has ended
        return pid, worker

    def _note_delay_before(self, pid: int) -> None:
        """Note how long a main process had no core before it is first seen in a loop."""
        if pid not in self._delays:
            self._delays[pid] = -1  # the kernel may not tell
            with contextlib.suppress(OSError, ValueError, IndexError):
                self._delays[pid] = int(contents(f"/proc/{pid}/schedstat").split()[1])

    def _look_at_pause(self, pid: int, in_pause: bool) -> None:
        pause = self._pause_times.look(pid, in_pause, time.monotonic())
        for sampler in (self._own_code, self._pauses):
            sampler.look(pid, pause)

    def _read(self, descriptor: int) -> tuple[bytes, memoryview | None]:
        """Read a page, also as words (None: it is not complete), and note whose it is."""
        page = os.pread(descriptor, state_page.SIZE, 0)
        words = memoryview(page).cast("q") if len(page) == state_page.SIZE else None
        if words is not None:
            self._batch_processes.add(words[state_page.W_PID])
        return page, words

    def _note_those_not_looked_at(self) -> None:
        """Note the processes that had a page for less than the time between two scans.

        A worker imports the program before it has a page, and may be gone before the next scan.
        """
        self._pages.find()
        while self._pages.open:
            for name, descriptor in list(self._pages.open.items()):
                self._read(descriptor)
                self._pages.close(name)
            self._pages.find()

    def _reason(self, pid: int, worker: int) -> tuple[str, str]:
        """Return what a process's main thread is doing, and where; keep its stat."""
        reason, place, stat = self._reasons.look(pid)
        if stat is not None:
            self._stats[pid, worker] = stat
        return reason, place

    def _note_outside(self, pid: int, since_ns: int) -> None:
        """Note a process that goes on but is no descendant; one that has ended does not go on."""
        if self._outside.setdefault(pid, since_ns) != since_ns and not self._problem:
            self._problem = (
                "processes of the program are not below lotus in the process tree (another PID "
                "namespace, a daemon, another launcher's): they were not observed from outside"
            )

    def _is_ours(self, pid: int) -> bool:
        """Return True if it is a descendant: others belong to another program or a container."""
        known = self._descendants.get(pid)
        if known is None:
            known = self._descendants[pid] = descends(pid)
        return known


def _left_out(looks: Counter[tuple[int, int, int, str]], kept: int) -> str:
    """Return a note on the rarest observations, for which the record has no room, or ""."""
    total = looks.total()
    if kept == total:
        return ""
    return (
        f"{(total - kept) / total:.1%} of the observations of what threads were blocked in are "
        f"left out: {len(looks) - _MOST_ROWS:,} rare combinations of process, operation and state"
    )


def _elsewhere(looks: int, kept: int) -> str:
    """Return a note on the looks at places for which the record has no room, or ""."""
    if not looks:
        return ""
    return (
        f"Where threads were blocked is left out for {looks / (looks + kept):.1%} of the looks at "
        "files and connections: they were at too many places"
    )


def _cpu_of_ended() -> int:
    """Return the CPU time (ns) of all that this process started and that has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((used.ru_utime + used.ru_stime) * 1e9)


def _operation(page: bytes, words: memoryview) -> tuple[int, int]:
    """Number of the operation in hand, or what is in hand instead of one, and its beginning, ns.

    Own code is what is in no operation.
    """
    phase = words[state_page.W_PHASE]
    if phase != state_page.FETCH:
        return _OTHERWISE[phase], int(words[state_page.W_SINCE])
    end = state_page.LAST + 1 if page[8 * _FEW :] != _NO_MORE else _FEW
    begun = words[state_page.OPERATIONS : end].tolist()
    since = max(words[state_page.W_SAMPLE_SINCE], words[state_page.W_SINCE])
    last = max(begun)
    return (begun.index(last), last) if last >= since else (IN_OWN_CODE, since)
