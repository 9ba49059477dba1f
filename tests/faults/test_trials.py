"""A candidate that dies or hangs is gone, and all else lives on."""

import gc
import mmap
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from lotus.inside.tune.candidates.processes import teardown
from lotus.inside.tune.candidates.trial_requests import Close, Measure, Open
from lotus.inside.tune.candidates.trials.trials import CandidateError, Trials

_SELF = os.getpid()


def setting(workers: int, **others: Any) -> dict[str, Any]:
    values = {"num_workers": workers, "prefetch_factor": None, "pin_memory": False}
    values |= {"persistent_workers": False, "start_method": None, "in_order": None, "threads": None}
    return values | others


def _hang() -> None:
    time.sleep(10_000)


def _raise() -> None:
    raise ValueError("bad image\nand more of it")


FAULTS = {
    "raises": (_raise, "ValueError: bad image"),
    "hangs": (_hang, "took longer than"),
    "exits": (lambda: os._exit(0), "ended with exit code 0"),
    "is killed": (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL"),
    "has a bus error": (lambda: os.kill(os.getpid(), signal.SIGBUS), "was killed by SIGBUS"),
}


class Faulty(Dataset[Any]):
    """Does at sample 20 what it is told to; never in the program's own process."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        if index == 20 and self.fault:
            assert os.getpid() != _SELF
            FAULTS[self.fault][0]()
        return torch.full((64,), float(index))


class Starts(Faulty):
    """Starts a program, and says which in a file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def __getitem__(self, index: int) -> Any:
        if index == 0:
            with open(self.path, "a") as file:
                print(subprocess.Popen(["sleep", "1000"]).pid, file=file)
        return super().__getitem__(index)


class TimeUp(Exception):
    """Raised by a handler of the program."""


def time_up(number: int, frame: Any) -> None:
    raise TimeUp


class Unpicklable(Faulty):
    def __init__(self) -> None:
        super().__init__()
        self.function = lambda: None


class NeverArrives(Faulty):
    """Hangs where a spawned worker is given it, with more to come than a pipe takes."""

    def __init__(self) -> None:
        super().__init__()
        self.payload = bytes(4_000_000)

    def __reduce__(self) -> Any:
        return time.sleep, (10_000,), None, iter([self.payload])


def bad_start(worker: int) -> None:
    raise OSError("no licence")


def bad_collate(batch: Any) -> Any:
    raise KeyError("mask")


def left() -> dict[str, Any]:
    """What a candidate may not leave, beside what the program has itself."""
    me = str(os.getpid())
    children = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[1] == me:
                    children.append(pid)
        except OSError:
            pass
    return {
        "children": sorted(children),
        "descriptors": {fd: _target(fd) for fd in sorted(os.listdir("/proc/self/fd"))},
        "threads": threading.enumerate(),
        "shared": [name for name in os.listdir("/dev/shm") if name.startswith("torch_" + me)],
        "signals": [signal.getsignal(number) for number in range(1, signal.SIGRTMAX + 1)],
    }


def settled() -> dict[str, Any]:
    """The same before anything, when what earlier tests left to the collector is gone."""
    gc.collect()
    return left()


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:  # of the listing itself
        return ""


@pytest.fixture(name="running")
def _running() -> Any:
    """The program's own iteration, with a worker that must live on."""
    loader = DataLoader(Faulty(), batch_size=4, num_workers=1)
    iterator = iter(loader)
    next(iterator)
    while not any(thread.name == "QueueFeederThread" for thread in threading.enumerate()):
        time.sleep(0.01)
    yield iterator
    assert sum(1 for _ in iterator) == 15


def test_faults_are_said_and_leave_nothing(running: Any) -> None:
    before = settled()
    for fault, (_, says) in FAULTS.items():
        for workers in (0, 2):
            trials = Trials(DataLoader(Faulty(fault), batch_size=4))
            wanted = setting(workers)
            trials.open(wanted, Open(60))
            began = time.monotonic()
            # Who comes to its end by itself has all the time that a slow machine takes to it.
            limit_s = 1 if fault == "hangs" else 600
            with pytest.raises(CandidateError) as failed:
                trials.measure(wanted, Measure(seconds=0, least=30, step=False, limit_s=limit_s))
            assert says in str(failed.value)
            assert "\n" not in str(failed.value)
            assert fault == "hangs" or time.monotonic() - began < 300  # not at the limit
            with pytest.raises(CandidateError, match="not open"):
                trials.measure(wanted, Measure(seconds=0, least=1, step=False, limit_s=1))
            assert left() == before, (fault, workers)
            trials.end()


def test_a_start_that_fails_leaves_nothing(running: Any) -> None:
    spawn = setting(2, start_method="spawn")
    cases = [
        ({"worker_init_fn": bad_start}, Faulty(), setting(2), "OSError: no licence"),
        ({"collate_fn": bad_collate}, Faulty(), setting(2), "KeyError: 'mask'"),
        ({"collate_fn": bad_collate}, Faulty(), setting(0), "KeyError: 'mask'"),
        ({}, Unpicklable(), spawn, "pickle"),
        ({}, NeverArrives(), spawn, "took longer than 3 s"),  # the only one that the limit ends
    ]
    before = settled()
    for arguments, data, wanted, says in cases:
        trials = Trials(DataLoader(data, batch_size=4, **arguments))
        with pytest.raises(CandidateError) as failed:
            trials.open(wanted, Open(3 if isinstance(data, NeverArrives) else 600))
        trials.end()
        assert says in str(failed.value)
        del failed
        assert left() == before, says


def test_other_candidates_live_on_where_one_is_killed(running: Any) -> None:
    before = settled()
    trials = Trials(DataLoader(Faulty(), batch_size=4))
    few, many = setting(1), setting(3, prefetch_factor=4)
    trials.open(few, Open(60))
    for sign in (signal.SIGKILL, signal.SIGSTOP):
        victim = trials.open(many, Open(60)).workers[1]
        os.kill(victim, sign)
        with pytest.raises(CandidateError, match=r"was killed by SIGKILL|took longer than"):
            trials.measure(many, Measure(seconds=0, least=100, step=False, limit_s=1.5))
        block = trials.measure(few, Measure(seconds=0, least=20, step=False, limit_s=60))
        assert len(block.sizes) == 20
    victim = trials.open(many, Open(60)).workers[0]
    os.kill(victim, signal.SIGKILL)
    trials.close(many, Close())
    trials.close(few, Close())
    trials.end()
    assert left() == before


def test_the_death_of_the_programs_own_worker_is_told_to_the_program() -> None:
    loader = DataLoader(Faulty(), batch_size=4, num_workers=1)
    iterator = iter(loader)
    next(iterator)
    worker = iterator._workers[0]
    trials = Trials(loader)
    trials.open(setting(1), Open(60))
    trials.step = lambda batch: os.kill(worker.pid, signal.SIGKILL)

    def goes_on() -> None:
        trials.measure(setting(1), Measure(seconds=0, least=2, step=True, limit_s=60))
        time.sleep(10_000)

    with pytest.raises(
        RuntimeError, match="killed by signal"
    ):  # torch's handler, not a CandidateError
        goes_on()
    trials.end()


def test_shared_memory_of_a_killed_worker_is_given_back() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    name = f"/dev/shm/torch_{process.pid}_7_0"
    other = f"/dev/shm/torch_{process.pid}0_7_0"
    used = f"/dev/shm/torch_{process.pid}_7_1"  # which torch takes out, and dies where it cannot
    for file_name in (name, other, used):
        with open(file_name, "wb") as file:
            file.write(b"x")
    with open(used, "rb") as file, mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ):
        teardown._remove_shared(process.pid)
    assert not os.path.exists(name)
    for file_name in (other, used):
        os.unlink(file_name)


def test_what_a_data_set_started_ends_with_the_candidate(tmp_path: Any) -> None:
    trials = Trials(DataLoader(Starts(str(tmp_path / "pids")), batch_size=4))
    for workers in (0, 1):
        trials.open(setting(workers), Open(60))
        trials.close(setting(workers), Close())
    trials.end()
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2
    while any(_alive(int(pid)) for pid in pids):
        time.sleep(0.01)


def test_what_handlers_raise_goes_on_up_and_everything_is_closed() -> None:
    shown = signal.signal(signal.SIGALRM, time_up)
    before = settled()
    for workers, sign in ((0, signal.SIGINT), (1, signal.SIGALRM), (0, signal.SIGALRM)):
        trials = Trials(DataLoader(Faulty("hangs"), batch_size=4))
        trials.open(setting(workers), Open(60))
        timer = threading.Timer(0.5, os.kill, (os.getpid(), sign))
        with pytest.raises(KeyboardInterrupt if sign == signal.SIGINT else TimeUp):  # noqa: PT012
            timer.start()
            trials.measure(setting(workers), Measure(seconds=0, least=60, step=False, limit_s=600))
        timer.join()
        assert left() == before  # already, without `end`
        trials.end()
    signal.signal(signal.SIGALRM, shown)


def test_a_candidate_dies_with_its_program() -> None:
    program = """
        import os, sys, time
        sys.path.insert(0, sys.argv[1])
        from torch.utils.data import DataLoader
        from lotus.inside.tune.candidates.trial_requests import Open
        from lotus.inside.tune.candidates.trials.trials import Trials
        class Slow:
            def __len__(self): return 8
            def __getitem__(self, index):
                print(os.getpid(), flush=True)
                time.sleep(1000)
        asked = {"num_workers": 0, "prefetch_factor": None, "pin_memory": False}
        Trials(DataLoader(Slow())).open(asked, Open(1000))
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    command = [sys.executable, "-c", textwrap.dedent(program), root]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
        process.stdout.read()  # to its end: nobody has it open any more
    while _alive(child):  # its descriptors are closed a moment before it is dead
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
