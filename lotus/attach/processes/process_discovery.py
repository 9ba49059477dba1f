"""Finds running programs that use torch, and the workers and ranks among their processes."""

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lotus.attach.processes import permissions
from lotus.attach.processes.thread_numbers import process_of
from lotus.common.errors import LotusError
from lotus.common.rank_launchers import OF_PYTHON
from lotus.common.text import redaction
from lotus.common.text.formatting import brief_command, plain, plural
from lotus.inside.common import process_stat

_PYTHON = re.compile(r"(^|/)(python|pypy)[\d.]*[a-z]*$|libpython\d")
_TORCH = re.compile(r"/torch/lib/libtorch|/libtorch_(cpu|python)|/torch/_C\.")
_AGENT = re.compile(
    rf"(^|[/\s])({'|'.join(OF_PYTHON)})(\s|$)|torch\.distributed\.(run|launch)|"
    r"torch/distributed/(run|launch)\.py"
)
_SPAWNED = re.compile(r"multiprocessing\.(spawn|forkserver)|multiprocessing-fork")
# Threads of torch.distributed: a process with one has joined a process group.
_GROUP_THREAD = re.compile(r"pt_(gloo|nccl)")
_HELPERS = re.compile(r"multiprocessing\.resource_tracker|multiprocessing\.resource_sharer")
_MOST_LISTED = 8


class TorchNotLoadedError(LotusError):
    """No process that a process id stands for has loaded torch, which one that starts may do."""


@dataclass(frozen=True)
class ProcessFacts:
    """A process as /proc describes it; `torch` and `python` are None if that may not be read."""

    pid: int
    parent: int
    uid: int
    state: str
    start_ticks: int
    command: tuple[str, ...]
    name: str
    python: bool | None
    torch: bool | None
    rank: int = -1
    forked: bool = False  # and runs the program of its parent
    joined: bool = False  # a process group of torch.distributed

    @property
    def words(self) -> str:
        """The command, shortened to fit a line of text."""
        if not any(self.command):  # a thread of the kernel
            return plain(self.name)
        return plain(brief_command(list(redaction.command(self.command)), 50))


@dataclass(frozen=True)
class Program:
    """A main process with its workers, in the order in which they started."""

    main: ProcessFacts
    workers: tuple[ProcessFacts, ...] = ()


def programs_of(pid: int, processes: Mapping[int, ProcessFacts]) -> list[Program]:
    """Return the programs that a process id stands for.

    A worker stands for its parent; a process that started ranks (torchrun,
    torch.multiprocessing.spawn) for all of them. Raises LotusError, one line with the next step,
    if there is none.
    """
    facts = _running(pid, processes)
    children = _children(processes)
    below = [processes[each] for each in _below(pid, children)]
    ranks = [each for each in below if each.torch and not _is_worker(each, processes, children)]
    agent = bool(_AGENT.search(" ".join(facts.command)))
    if agent and ranks:
        return _joined([_program(each, processes, children) for each in ranks])
    starts = _starts_ranks(facts)
    foreign = facts.torch is None and facts.uid != os.geteuid()
    if foreign and not ranks and (starts or not facts.python):
        raise LotusError(
            f"process {pid} ({facts.words}) belongs to {permissions.other_owner(pid)}, and what "
            f"trains there may not be read; try: {permissions.with_more_rights(pid)}"
        )
    if starts and (not below or any(_may_be_a_rank(each, facts) for each in below)):
        raise TorchNotLoadedError(
            f"process {pid} ({facts.words}) starts other processes, and none of them has loaded "
            "torch yet; try again in some seconds"
        )
    if facts.torch is None and facts.python:  # of another user: a little can be read
        return [_program(facts, processes, children)]
    if not facts.torch and not facts.python and (facts.torch is None or not ranks):
        raise LotusError(
            f"process {pid} ({facts.words}) is not a Python program; lotus attach without a number "
            "lists those with torch"
        )
    if facts.torch is False and ranks:  # a shell, uv, or another launcher
        if job := _spawned_job(ranks, processes, children):
            return job
        programs = _joined([_program(each, processes, children) for each in ranks])
        if len(programs) > 1 and not _of_agent(programs):
            raise _several(programs)
        return programs
    if facts.torch is False:
        raise TorchNotLoadedError(
            f"process {pid} ({facts.words}) has not loaded torch; if it is still starting, try "
            "again, else lotus attach without a number lists those that have"
        )
    main = facts
    while _is_worker(main, processes, children):
        main = _starter(main, processes) or main
    if job := _spawned_job([facts], processes, children):
        return job
    return [_program(main, processes, children)]


def _running(pid: int, processes: Mapping[int, ProcessFacts]) -> ProcessFacts:
    """Return a running process. Raises LotusError, one line with the next step, for others."""
    facts = processes.get(pid)
    if facts is None and permissions.is_hidden(pid):
        raise LotusError(
            f"process {pid} belongs to another user, and nothing of it may be read; try: "
            f"{permissions.with_more_rights(pid)}"
        )
    if facts is None:
        ours = process_of(pid)
        raise LotusError(
            f"there is no process {pid} here; "
            + (
                f"one in a container is {pid} there, and {ours} here: lotus attach {ours}"
                if ours
                else "lotus attach without a number lists those with torch (in a container, take "
                "the number that the host has for it)"
            )
        )
    if facts.state in "ZX":
        raise LotusError(f"process {pid} has ended; start the program again, or lotus trace it")
    if facts.state in "Tt":
        raise LotusError(
            f"process {pid} ({facts.words}) is stopped; let it go on with: kill -CONT {pid}"
        )
    return facts


def _spawned_ranks(
    facts: ProcessFacts,
    processes: Mapping[int, ProcessFacts],
    children: Mapping[int, list[int]],
) -> list[ProcessFacts]:
    """Return the ranks that a program started from Python, as torch.multiprocessing.spawn does.

    The program itself is included if it is a rank; [] if it started none. Ranks without a number
    in their environment are numbered in the order of their start.
    """
    own = [processes[pid] for pid in children.get(facts.pid, ()) if processes[pid].torch]
    if not facts.joined and any(is_named_worker(each) for each in own):
        return []  # it trains itself
    own = [each for each in own if is_worker_of(each, facts)]
    ranks = [each for each in own if each.joined]
    if not ranks:  # an older torch, which does not name its threads
        ranks = [each for each in own if not _is_worker(each, processes, children)]
        if len(ranks) < 2:
            return []
    ranks = sorted([facts] * facts.joined + ranks, key=lambda each: (each.start_ticks, each.pid))
    if all(each.rank >= 0 for each in ranks):
        return sorted(ranks, key=lambda each: each.rank)
    return [replace(each, rank=number) for number, each in enumerate(ranks)]


def _spawned_job(
    mains: list[ProcessFacts],
    processes: Mapping[int, ProcessFacts],
    children: Mapping[int, list[int]],
) -> list[Program]:
    """Return the programs of ranks if `mains` are all of one spawned job; else []."""
    for each in mains:
        ranks = _spawned_ranks(each, processes, children)
        if ranks and {main.pid for main in mains} <= {each.pid, *(rank.pid for rank in ranks)}:
            return [_program(rank, processes, children) for rank in ranks]
    return []


def ended_early(pid: int) -> LotusError:
    """Return the error for a process that ended before anything of it was sampled."""
    return LotusError(
        f"process {pid} ended before anything was seen of it; start it again with: "
        "lotus trace -- COMMAND"
    )


def _starts_ranks(facts: ProcessFacts) -> bool:
    """Return whether the program itself is an agent, rather than one with such an argument."""
    options = itertools.takewhile(lambda word: word.startswith("-"), facts.command[1:])
    return bool(_AGENT.search(" ".join(facts.command[: 2 + len(list(options))])))


def _may_be_a_rank(facts: ProcessFacts, agent: ProcessFacts) -> bool:
    """Return whether a process of an agent is a program of its own and may become a rank."""
    helps = is_worker_of(facts, agent) or _HELPERS.search(" ".join(facts.command))
    return bool(facts.python) and not facts.torch and not helps


def only_program(processes: Mapping[int, ProcessFacts]) -> list[Program]:
    """Return the only program with torch, or all ranks of the only job.

    Raises LotusError if there is none, or with a list if there are several.
    """
    children = _children(processes)
    mains = [
        each
        for each in processes.values()
        if each.torch
        and each.pid != os.getpid()
        and not _is_worker(each, processes, children)
        and not _AGENT.search(" ".join(each.command))
    ]
    if job := _spawned_job(mains, processes, children):
        return job
    programs = _joined([_program(each, processes, children) for each in mains])
    with_workers = [each for each in programs if each.workers]
    if not programs:
        raise LotusError(
            "no process here has torch loaded that you may look at; name one: lotus attach PID "
            "(of another user: sudo lotus attach PID)"
        )
    ranks = {each.main.parent for each in programs}
    if len(programs) == 1 or (
        len(ranks) == 1 and next(iter(ranks)) in processes and _of_agent(programs)
    ):
        return programs
    if len(with_workers) == 1:
        return with_workers
    raise _several(with_workers or programs)


def _several(programs: list[Program]) -> LotusError:
    lines = [
        f"{each.main.pid} ({each.main.words}, {plural(len(each.workers), 'worker')})"
        for each in programs[:_MOST_LISTED]
    ]
    return LotusError(f"several processes have torch; name one: {'; '.join(lines)}")


def _of_agent(programs: Iterable[Program]) -> bool:
    return all(each.main.rank >= 0 for each in programs)


def _joined(programs: list[Program]) -> list[Program]:
    """Return the programs sorted by rank and process id."""
    return sorted(programs, key=lambda each: (each.main.rank, each.main.pid))


def _program(
    main: ProcessFacts,
    processes: Mapping[int, ProcessFacts],
    children: Mapping[int, list[int]],
) -> Program:
    workers = [processes[pid] for pid in children.get(main.pid, ())]
    # The fork server is in between.
    for pid in children.get(main.pid, ()):
        if "forkserver" in " ".join(processes[pid].command):
            workers = [each for each in workers if each.pid != pid]
            workers += [processes[each] for each in children.get(pid, ())]
    workers = [each for each in workers if each.torch is not False and each.state not in "ZX"]
    workers = [each for each in workers if is_worker_of(each, main) and not each.joined]
    workers.sort(key=lambda each: (each.start_ticks, each.pid))
    return Program(main, tuple(workers))


def is_worker_of(facts: ProcessFacts, main: ProcessFacts) -> bool:
    """Return whether a child looks like a worker of `main`.

    A forked worker has the command line of its parent, a spawned one that of multiprocessing.
    """
    if is_named_worker(facts):
        return True
    if _HELPERS.search(" ".join(facts.command)):
        return False
    return facts.command == main.command or is_spawned(facts)


def is_named_worker(facts: ProcessFacts) -> bool:
    """Return whether a process has the name that newer torch gives to workers."""
    return facts.name.startswith("pt_data_worker")


def is_spawned(facts: ProcessFacts) -> bool:
    """Return whether multiprocessing started a process by spawn."""
    return bool(_SPAWNED.search(" ".join(facts.command)))


def _starter(facts: ProcessFacts, processes: Mapping[int, ProcessFacts]) -> ProcessFacts | None:
    """Return the process that started this one, directly or through a fork server."""
    parent = processes.get(facts.parent)
    if parent is not None and "forkserver" in " ".join(parent.command):
        return processes.get(parent.parent)
    return parent


def _is_worker(
    facts: ProcessFacts,
    processes: Mapping[int, ProcessFacts],
    children: Mapping[int, list[int]],
) -> bool:
    parent = _starter(facts, processes)
    if parent is None or not parent.torch or not is_worker_of(facts, parent):
        return False
    if is_named_worker(facts):
        return True
    if facts.joined:
        return False
    # torch.multiprocessing.spawn starts ranks in the same way: those have workers of their own.
    own = [processes[pid] for pid in children.get(facts.pid, ()) if processes[pid].torch]
    return not any(is_worker_of(each, facts) for each in own)


def _children(processes: Mapping[int, ProcessFacts]) -> dict[int, list[int]]:
    below: dict[int, list[int]] = {}
    for facts in processes.values():
        below.setdefault(facts.parent, []).append(facts.pid)
    return below


def _below(pid: int, children: Mapping[int, list[int]]) -> list[int]:
    result, waiting = [], list(children.get(pid, ()))
    while waiting:
        each = waiting.pop(0)
        if each not in result:
            result.append(each)
            waiting += children.get(each, ())
    return result


def read_processes() -> dict[int, ProcessFacts]:
    """Return all visible processes by process id."""
    result = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (facts := read_process(int(name))) is not None:
            result[facts.pid] = facts
    return result


def read_process(pid: int, proc: Path = Path("/proc")) -> ProcessFacts | None:
    """Return a process; None if it has ended."""
    folder = proc / str(pid)
    try:
        stat = process_stat.read(pid, str(proc))
        uid = folder.stat().st_uid
        words = (folder / "cmdline").read_bytes()[:65536].rstrip(b"\0").split(b"\0")
        facts = ProcessFacts(
            pid=pid,
            parent=stat.parent,
            uid=uid,
            state=stat.state,
            start_ticks=stat.start_ticks,
            command=tuple(os.fsdecode(word) for word in words),
            name=stat.name,
            python=None,
            torch=None,
            forked=stat.is_forked,
        )
    except OSError:
        return None
    if words == [b""]:  # a thread of the kernel, or one that has ended
        return replace(facts, python=False, torch=False)
    python = bool(_PYTHON.search(os.path.basename(facts.command[0])))
    try:
        maps = (folder / "maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return replace(facts, python=python or None)
    python = python or bool(re.search(r"libpython\d|/python\d", maps))
    torch = bool(_TORCH.search(maps))
    if not torch:
        return replace(facts, python=python, torch=False)
    return replace(facts, python=python, torch=True, rank=_rank(folder), joined=_joins(folder))


def _joins(folder: Path) -> bool:
    names = []
    for task in folder.glob("task/*/comm"):
        with contextlib.suppress(OSError):  # a thread that has ended
            names.append(task.read_text(errors="replace"))
    return any(_GROUP_THREAD.match(name) for name in names)


def _rank(folder: Path) -> int:
    try:
        for pair in (folder / "environ").read_bytes().split(b"\0"):
            name, _, number = pair.partition(b"=")
            if name == b"RANK" and number.isdigit() and len(number) < 9:
                return int(number)
    except OSError:
        pass
    return -1
