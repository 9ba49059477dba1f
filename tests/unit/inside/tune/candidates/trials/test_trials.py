"""Candidate loaders in this process: what they measure, and that they leave the program alone."""

import gc
import itertools
import multiprocessing
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from lotus.inside.tune.candidates.loading import batch_contents
from lotus.inside.tune.candidates.loading.candidate_loader import MARK
from lotus.inside.tune.candidates.trial_requests import Close, CompareEpochs, Measure, Open
from lotus.inside.tune.candidates.trials.step_emulator import StepEmulator
from lotus.inside.tune.candidates.trials.trials import CandidateError, Step, Trials


def setting(workers: int, **others: Any) -> dict[str, Any]:
    chosen = {"num_workers": workers, "prefetch_factor": None, "pin_memory": False}
    chosen |= {"persistent_workers": False, "start_method": None, "in_order": None, "threads": None}
    return chosen | others


Stood = tuple[float, float, float]  # of a step stood in for; see `_stood_in`


class Numbers(Dataset[Any]):
    """Sample i is i; takes CPU time."""

    touched = 0

    def __len__(self) -> int:
        return 90

    def __getitem__(self, index: int) -> Any:
        self.touched += 1
        until = time.thread_time() + 0.0005
        while time.thread_time() < until:
            pass
        return torch.full((8,), float(index)), index, "x"


class Loader(DataLoader[Any]):
    """A subclass whose `__iter__` is not torch's."""

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield "wrapped", batch


class Stream(IterableDataset[Any]):
    def __init__(self, samples: int = 24, *, shared: bool = True, noise: bool = False) -> None:
        self.samples, self.shared, self.noise = samples, shared, noise

    def __iter__(self) -> Any:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info and self.shared else (0, 1)
        for index in range(first, self.samples, step):
            yield torch.rand(2) if self.noise else torch.full((2,), float(index)), {"name": "x"}


def surroundings() -> dict[str, Any]:
    """What a program would miss, or find too much, if a candidate left something."""
    import multiprocessing

    me = str(os.getpid())
    return {
        "children": [pid for pid in os.listdir("/proc") if pid.isdigit() and _parent(pid) == me],
        "known": set(multiprocessing.active_children()),
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "threads": threading.enumerate(),
        "shared": [name for name in os.listdir("/dev/shm") if name.startswith("torch_" + me)],
        "signals": [signal.getsignal(number) for number in range(1, signal.SIGRTMAX + 1)],
        "torch": torch.get_rng_state().tolist(),
        "python": random.getstate(),
        "numpy": np.random.get_state()[1].tolist(),  # type: ignore[index, union-attr]
        "threads of torch": torch.get_num_threads(),
    }


def _parent(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[1]
    except OSError:
        return ""


def test_a_program_is_as_it_was_after_its_loader_was_tried_in_all_ways() -> None:
    def made() -> Any:
        generator = torch.Generator().manual_seed(3)
        return Loader(Numbers(), batch_size=4, shuffle=True, num_workers=1, generator=generator)

    def indices(loader: Any) -> list[Any]:
        return [batch[1][1].tolist() for batch in loader]

    plain = made()
    expected = [indices(plain) for _ in range(2)]

    loader = made()
    running = iter(loader)
    drawn = [next(running)[1][1].tolist()]
    vars_before = dict(vars(loader))
    while not any(thread.name == "QueueFeederThread" for thread in threading.enumerate()):
        time.sleep(0.01)
    gc.collect()  # what earlier tests left
    before = surroundings()
    trials = Trials(loader)
    description = trials.describe()
    assert description["setting"]["num_workers"] == 1
    assert description["setting"]["start_method"] == "fork"
    assert description["loader"] == {
        "dataset": "Numbers",
        "dataset_length": 90,
        "sampler": "RandomSampler",
    }
    assert description["batches"] == 23
    assert not description["iterable"]
    # It sleeps 3 of its 4 ms; its work takes less where the machine was slow when that was tried.
    trials.step, asleep_s = Step(0.004, 0.001), 0.95 * 0.003
    blocks, took_s = {}, {}
    for workers in (0, 2):
        opened = trials.open(setting(workers), Open(60))
        assert len(opened.workers) == workers
        assert 0 < opened.iter_s < opened.first_batch_s
        for step in (False, True):
            began = time.perf_counter()
            blocks[workers, step] = trials.measure(
                setting(workers), Measure(seconds=0, least=30, step=step, limit_s=60)
            )
            took_s[workers, step] = time.perf_counter() - began
    for (workers, step), block in blocks.items():
        assert len(block.waits_s) == len(block.steps_s) == len(block.sizes) == 30
        assert set(block.sizes) == {4, 2}  # the last batch of an epoch has two
        # Half a millisecond a sample; workers read ahead, or had read already. In two epochs there
        # are twice the workers: their start in a large process takes more than these samples.
        assert 0.03 < block.worker_cpu_s < 2 * max(workers, 1) * took_s[workers, step]
        assert block.worker_queued_s >= 0
        assert (block.main_cpu_s > 0) == bool(workers)
        assert all((seconds >= asleep_s) if step else seconds == 0 for seconds in block.steps_s)
        assert block.batch_bytes == 4 * 8 * 4 + 4 * 8 + 4
        assert (block.tensors, block.shared_bytes) == (2, 4 * 8 * 4 + 4 * 8)
        assert block.worker_bytes > 0
        assert block.main_bytes > block.batch_bytes
    assert trials.close(setting(2, prefetch_factor=2), Close()) > 0  # the same as none
    with pytest.raises(CandidateError, match="not open"):
        trials.measure(setting(2), Measure(seconds=0, least=1, step=False, limit_s=1))
    trials.end()
    assert surroundings() == before
    assert vars(loader) == vars_before
    assert loader.dataset.touched == 0
    drawn += [batch[1][1].tolist() for batch in running]
    assert [drawn, indices(loader)] == expected


def test_a_function_is_called_with_batches_also_where_a_child_makes_them() -> None:
    seen: list[Any] = []
    trials = Trials(DataLoader(Numbers(), batch_size=6))
    trials.step = lambda batch: seen.append((os.getpid(), len(batch[0]))) or time.sleep(0.01)
    for workers in (0, 1):
        trials.open(setting(workers), Open(60))
        block = trials.measure(setting(workers), Measure(seconds=0, least=3, step=True, limit_s=60))
        assert min(block.steps_s) >= 0.01
        assert block.worker_cpu_s > 0
    trials.end()
    assert seen == [(os.getpid(), 6)] * 6


def test_all_candidates_read_the_same_indices_in_turn() -> None:
    trials = Trials(DataLoader(Numbers(), batch_size=30, shuffle=True))
    seen: dict[int, list[Any]] = {0: [], 1: [], 2: []}
    for workers, batches in seen.items():
        trials.step = lambda batch, batches=batches: batches.append(batch[1].tolist())
        trials.open(setting(workers), Open(60))
        trials.measure(
            setting(workers), Measure(seconds=0, least=4, step=True, limit_s=60, discard=0)
        )
    trials.end()
    assert seen[1] == seen[2]
    assert sorted(index for batch in seen[1][:3] for index in batch) == list(range(90))
    assert seen[1][3] == seen[1][0]


def test_a_stream_begins_again_and_a_restart_is_no_wait() -> None:
    notes: list[str] = []
    trials = Trials(DataLoader(Stream(40), batch_size=4), say=notes.append)
    for workers, persistent in ((0, False), (2, False), (2, True)):
        candidate = setting(workers, persistent_workers=persistent)
        opened = trials.open(candidate, Open(60))
        block = trials.measure(candidate, Measure(seconds=0, least=25, step=False, limit_s=60))
        assert len(block.waits_s) == 25
        if workers:
            # Of several, as a machine that stands still makes any wait a long one.
            few_s = opened.first_batch_s * 5
            again = (
                trials.measure(candidate, Measure(seconds=0, least=25, step=False, limit_s=60))
                for _ in range(5)
            )
            assert any(max(each.waits_s) < few_s for each in itertools.chain([block], again))
        trials.close(candidate, Close())
    trials.end()
    assert notes == ["its data set ended and was started again; that is not in the waits"]


@pytest.mark.parametrize(
    ("stream", "own", "other", "says"),
    [
        (Stream(), 1, 2, ""),
        (Stream(), 0, 2, ""),
        (Stream(), 2, 0, ""),
        (Stream(shared=False), 0, 2, "24 samples with 0 workers and 48 with 2 workers"),
        (Stream(noise=True), 1, 2, "differ already, as with random augmentation"),
        (Stream(10**9), 0, 1, "took longer"),
    ],
    ids=["1-2", "0-2", "2-0", "unshared", "random", "endless"],
)
def test_the_samples_of_a_stream_are_compared(
    stream: Stream, own: int, other: int, says: str
) -> None:
    trials = Trials(DataLoader(stream, batch_size=5, num_workers=own))
    state = torch.get_rng_state()
    limit_s = 1.5 if stream.samples > 100 else 60
    comparison = trials.compare_epochs(setting(other), CompareEpochs(limit_s))
    trials.end()
    assert says in comparison.why if says else comparison.why == ""
    if not says and own != other:
        # Each worker ends with a batch of its own.
        parts = [
            len(range(number, stream.samples, max(other, 1))) for number in range(max(other, 1))
        ]
        batches = sum(-(-part // 5) for part in parts)
        assert comparison.epochs[1] == (other, stream.samples, batches)
    assert torch.equal(state, torch.get_rng_state())


def test_samples_are_told_apart_by_all_that_is_in_them() -> None:
    batch = [torch.arange(6).reshape(3, 2), ("a", "b", "c"), {"n": np.arange(3)}]
    swapped = [torch.arange(6).reshape(3, 2).flip(0), ("c", "b", "a"), {"n": np.arange(3)[::-1]}]
    other = [torch.arange(6).reshape(3, 2), ("a", "b", "d"), {"n": np.arange(3)}]
    plain, two, three = (set(batch_contents.hashes(each)) for each in (batch, swapped, other))
    assert len(plain) == 3
    assert plain == two
    assert len(plain & three) == 2
    assert len(list(batch_contents.hashes([torch.zeros(3, 4), 7]))) == 1  # nothing in common to cut


def test_bytes_of_a_batch_are_those_of_its_storages() -> None:
    whole = torch.zeros(10, 10)
    measured = batch_contents.measures(
        {"view": whole[:2], "same": [whole[3]], "array": np.zeros(5)}
    )
    assert measured["tensors"] == 1
    assert measured["shared_bytes"] == 400
    assert measured["batch_bytes"] == 80 + 40 + 40
    assert 40 < measured["pipe_bytes"] < 1000
    ring: list[Any] = []
    ring.append(ring)
    assert batch_contents.measures(ring)["tensors"] == 0


def test_the_parts_of_a_step() -> None:
    for step, alone_s, shared_s in (
        (Step(0.02, 0.01, 4), 0.01, 0.0),  # asleep for the rest
        (Step(0.02, 0.03, 1), 0.02, 0.0),
        (Step(0.02, 0.03, 2), 0.01, 0.01),
        (Step(0.02, 0.05, 4), 0.01, 0.01),
        (Step(0.02, 0.20, 4), 0.0, 0.02),  # more than they can: other threads of the program
    ):
        assert step.alone_s() == pytest.approx(alone_s)
        assert step.shared_s() == pytest.approx(shared_s)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_a_stand_in_takes_the_cpu_time_and_the_time_of_a_step() -> None:
    step = Step(0.02, 0.01)

    def good(cpu: float, own: float, wall: float) -> bool:
        # The work is fixed: how long it takes changes with the processor's clock and neighbours.
        return 0.6 * step.cpu_seconds < cpu < 2 * step.cpu_seconds

    tries = _tried(lambda: _stood_in(StepEmulator(step, False)), good)
    assert good(*tries[-1]), tries
    rest_s = step.seconds - step.alone_s()
    assert all(wall >= own + 0.95 * rest_s for _, own, wall in tries)


@pytest.mark.usefixtures("two_threads")
def test_a_stand_in_works_on_torchs_threads() -> None:
    # No more than this, beside what other tests do: where a thread has no core the other waits for
    # it and works all the while, as in a step of torch.
    def good(cpu: float, own: float, wall: float) -> bool:
        return cpu > 1.2 * own

    tries = _tried(lambda: _stood_in(StepEmulator(Step(0.02, 0.04, 2), False)), good)
    assert good(*tries[-1]), tries
    tries = [_stood_in(StepEmulator(Step(0.02, 0.02, 2), False)) for _ in range(3)]
    assert all(cpu < 1.1 * own + 0.001 for cpu, own, _ in tries)


def test_a_stand_in_reads_what_a_worker_shares() -> None:
    images: Any = [torch.zeros(1 << 20) for _ in range(4)]
    batches = iter(DataLoader(images, batch_size=2, num_workers=1))
    for own_shares in (False, True):
        stand_in = StepEmulator(Step(0.001, 0.0), False, own_shares)
        stand_in.run([torch.zeros(4), {"x": torch.zeros(4).to_sparse()}])
        batch = next(batches)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        stand_in.run({"images": batch, "more": "text"})
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        assert (faults > 60) == (not own_shares)  # 8 MiB, some pages at a time


@pytest.mark.usefixtures("two_threads")
def test_a_stand_in_works_in_a_forked_process_where_torchs_threads_are_not() -> None:
    step = Step(0.02, 0.03, 2)

    def good(cpu: float, own: float, wall: float) -> bool:
        return 0.5 * step.seconds < own < 2 * step.seconds

    stand_in = StepEmulator(step, False)
    _stood_in(stand_in)
    receiving, sending = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=lambda: sending.send(_tried(lambda: _stood_in(stand_in), good))
    )
    process.start()
    tries = receiving.recv()
    process.join()
    assert good(*tries[-1]), tries
    assert all(cpu < 1.1 * own + 0.001 for cpu, own, _ in tries)  # on one thread


def _tried(once: Callable[[], Stood], good: Callable[..., bool]) -> list[Stood]:
    """What was tried until it was good; other work on the machine spoils some, never all."""
    tries = [once()]
    while not good(*tries[-1]) and len(tries) < 50:
        tries.append(once())
    return tries


def _stood_in(stand_in: StepEmulator) -> Stood:
    """CPU seconds of all threads and of this one, and seconds, of a step stood in for."""
    clocks = (time.process_time, time.thread_time, time.perf_counter)
    begun = [clock() for clock in clocks]
    for _ in range(10):
        stand_in.run(None)
    cpu, own, wall = ((clock() - start) / 10 for clock, start in zip(clocks, begun, strict=True))
    return cpu, own, wall


def test_what_torch_refuses_is_said_before_anything_is_started() -> None:
    waits = DataLoader(Numbers(), batch_size=4, num_workers=1, timeout=5)
    with pytest.raises(CandidateError, match=r"a timeout .* needs workers"):
        Trials(waits).open(setting(0), Open(10))
    with pytest.raises(CandidateError, match="OpenMP can hang in forked workers"):
        Trials(DataLoader(Numbers())).open(setting(1, threads=2), Open(10))
    assert MARK not in vars(waits)  # a copy has it
