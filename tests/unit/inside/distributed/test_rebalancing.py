"""Shares that change while a job trains: each sample once, all ranks alike, no change by chance."""

import random
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lotus.inside.distributed.batch_shares import Shared, let_change
from lotus.inside.distributed.gradient_weights import Weights
from lotus.inside.distributed.rebalancing import Rebalancing, decide
from tests.unit.inside.distributed.test_batch_shares import Breaking, Sampler, Store

MS = 1_000_000


# A job of threads: each trains as a rank does, and all meet in the averaging of gradients.


@dataclass
class Program:
    """What each rank runs."""

    sizes: list[int]
    every: int
    slow: list[float]  # what a sample takes each rank, in ms
    many: int = 100  # samples
    epochs: int = 3
    prefetch: list[int] = field(default_factory=list)  # batches drawn ahead, of each rank
    ahead: int = 0  # batches that it reads ahead
    drop_last: bool = False
    stop: int = 1 << 30  # step before which it leaves an epoch
    accumulate: int = 1  # backward passes to one averaging
    persistent: bool = False  # one iterator for all epochs
    again: bool = False  # a new loader each epoch
    own: int = 8  # its own batch size
    looks: tuple[int, int, int] = (0, 0, 0)  # rank that alone, after so many steps, reads so many
    slower: tuple[int, float] = (1 << 30, 1.0)  # from which step on rank 1 takes how often as long
    held: float = 0.0  # ms that rank 0 waits for others before its gradients are computed
    timed: bool = True
    in_thread: bool = False  # batches are read by another thread


class BatchSampler:
    """As torch's, as far as it is used: it makes batches only once shares may change."""

    def __init__(self, sampler: Any, size: int) -> None:
        self.sampler, self.batch_size = sampler, size


class Reader:
    """As torch's iterator: draws ahead, and draws before it gives a batch."""

    def __init__(self, batches: Any, prefetch: int) -> None:
        self.prefetch = prefetch
        self.reset(batches)

    def reset(self, batches: Any) -> None:
        self._sampler_iter = iter(batches)
        self._num_yielded = 0
        self.waiting: list[list[int]] = []
        for _ in range(self.prefetch):
            self._draw()

    def _draw(self) -> None:
        batch = next(self._sampler_iter, None)
        if batch is not None:
            self.waiting.append(batch)

    def next(self, rank: "Rank", reference: Any) -> list[int] | None:
        self._draw()
        if not self.waiting:
            rank.weights.ended(reference)
            return None
        rank.weights.delivered(self._sampler_iter, reference, self._num_yielded)
        self._num_yielded += 1
        return self.waiting.pop(0)


class Rank:
    def __init__(self, number: int, program: Program, store: Any, wait_s: float = 600) -> None:
        self.number, self.program = number, program
        self.notes: list[str] = []
        self.time = 0  # ns
        self.weights = Weights(False)
        self.rebalancing = Rebalancing(
            program.sizes,
            number,
            program.every,
            self.weights,
            store,
            self.notes.append,
            [2 * max(size, program.own) for size in program.sizes],
            1,
        )
        self.rebalancing.wait_s, self.rebalancing.now = wait_s, lambda: self.time
        self.seen: list[list[tuple[list[int], float]]] = []  # by epoch: batches, their weights
        self.lengths: list[int] = []
        self.random = random.Random(number)

    def loader(self) -> Any:
        program = self.program
        own = Sampler(range(program.many), len(program.sizes), self.number)
        shared = Shared(own, program.sizes, self.number, program.drop_last)
        batches: Any = BatchSampler(shared, program.sizes[self.number])
        let_change(batches, self.rebalancing)
        return batches

    def run(self, meet: Callable[[int], int]) -> None:
        """`meet`: wait for the others; returns when the last was ready."""
        program = self.program
        prefetch = program.prefetch[self.number] if program.prefetch else 0
        loader, reader, passes = self.loader(), None, 0
        for epoch in range(program.epochs):
            loader = self.loader() if program.again else loader
            loader.sampler.own.epoch = epoch
            self.lengths.append(len(loader))
            self.seen.append([])
            if reader is not None and program.persistent:
                reader.reset(loader)
            else:
                reader = Reader(loader, prefetch)
            reference = weakref.ref(reader)
            waiting = [reader.next(self, reference) for _ in range(program.ahead)]
            for _ in range(program.stop):
                waiting.append(self.read(reader, reference))
                batch = waiting.pop(0)
                if batch is None:
                    break
                self.seen[-1].append((batch, self.weights.weight()))
                passes += 1
                self.time += self.cost(len(batch), passes)
                if self.number == 0:
                    self.time += int(program.held * MS)
                    self.rebalancing.waited += int(program.held * MS)
                if passes % program.accumulate == 0:
                    ready = self.time
                    self.time = meet(ready) + MS // 10
                    times = (ready - 1, ready, self.time)
                    self.rebalancing.averaged(times if program.timed else None)
                if (self.number, passes) == program.looks[:2]:
                    other = Reader(loader, prefetch)
                    of_other = weakref.ref(other)
                    for _ in range(program.looks[2]):
                        other.next(self, of_other)

    def read(self, reader: Reader, reference: Any) -> list[int] | None:
        if not self.program.in_thread:
            return reader.next(self, reference)
        batches: list[Any] = []
        thread = threading.Thread(target=lambda: batches.append(reader.next(self, reference)))
        thread.start()
        thread.join()
        return batches[0]  # type: ignore[no-any-return]

    def cost(self, samples: int, passes: int) -> int:
        since, factor = self.program.slower
        each = self.program.slow[self.number] * self.random.gauss(1, 0.02) * MS
        return int(samples * each * (factor if self.number == 1 and passes > since else 1))


def train(program: Program) -> list[Rank]:
    """The ranks after their training."""
    world, store = len(program.sizes), Store()
    ranks = [Rank(number, program, store) for number in range(world)]
    times, failed = [0] * world, []
    barrier = threading.Barrier(world)

    def run(rank: Rank) -> None:
        def meet(ready: int) -> int:
            times[rank.number] = ready
            barrier.wait()
            last = max(times)
            barrier.wait()
            return last

        try:
            rank.run(meet)
        except BaseException as error:
            failed.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed.sort(key=lambda error: isinstance(error, threading.BrokenBarrierError))
    if failed:
        raise failed[0]
    return ranks


def check(program: Program, ranks: list[Rank]) -> None:
    """Each step trains on its slice of the epoch's order, with the weights of a whole batch."""
    world, whole = len(program.sizes), sum(program.sizes)
    for epoch in range(program.epochs):
        sampler = Sampler(range(program.many), 1, epoch=epoch, total_size=program.many)
        order = list(sampler)
        steps = program.many // whole if program.drop_last else -(-program.many // whole)
        assert {rank.lengths[epoch] for rank in ranks} == {steps}
        seen = [rank.seen[epoch] for rank in ranks]
        assert {len(batches) for batches in seen} == {min(steps, program.stop)}
        for step, parts in enumerate(zip(*seen, strict=True)):
            slice_ = order[step * whole : step * whole + whole]
            counted = [
                (batch, weight) for batch, weight in parts if weight > 0 or len(slice_) >= world
            ]
            assert sorted(sample for batch, _ in counted for sample in batch) == sorted(slice_)
            for batch, weight in counted:
                assert weight == len(batch) * world / len(slice_)
    # AND all go by the same changes; those that end first may not have heard of the last one
    for what in ([rank.rebalancing.changes for rank in ranks], [rank.notes for rank in ranks]):
        longest = max(what, key=len)
        assert all(shares == longest[: len(shares)] for shares in what)


PROGRAMS = st.builds(
    Program,
    sizes=st.lists(st.integers(1, 12), min_size=2, max_size=3),
    every=st.integers(1, 12),
    slow=st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=3, max_size=3),
    many=st.integers(3, 600),
    prefetch=st.lists(st.integers(0, 6), min_size=3, max_size=3),
    ahead=st.integers(0, 1),
    drop_last=st.booleans(),
    stop=st.sampled_from([1 << 30, 9, 17]),
    accumulate=st.sampled_from([1, 1, 3]),
    persistent=st.booleans(),
    again=st.booleans(),
    looks=st.tuples(st.integers(0, 2), st.integers(1, 40), st.integers(0, 9)),
)


@settings(max_examples=60, deadline=None)
@given(PROGRAMS)
def test_each_sample_is_taken_once_whatever_changes_when(program: Program) -> None:
    if program.ahead:
        program.stop = 1 << 30  # else what it has read ahead is lost, as without shares
        program.looks = (0, 0, 0)  # and what is trained on after a look has a whole batch's weight
    check(program, train(program))


def sizes_of(ranks: list[Rank]) -> list[tuple[int, ...]]:
    return [sizes for _, sizes in max((rank.rebalancing.changes for rank in ranks), key=len)]


CHANGING: dict[str, dict[str, Any]] = {
    "plain": {},
    "drawn ahead": {"prefetch": [0, 5]},
    "persistent": {"prefetch": [3, 3], "persistent": True},
    "read ahead": {"ahead": 1, "prefetch": [2, 2]},
    "dropped": {"drop_last": True, "many": 330},
    "accumulated": {"accumulate": 2},
    "short epochs": {"many": 130, "epochs": 20, "prefetch": [4, 4]},
    "left early": {"stop": 7, "epochs": 20, "prefetch": [4, 2]},
    "a loader an epoch": {"again": True, "many": 130, "epochs": 20},
}


@pytest.mark.parametrize("name", CHANGING)
def test_the_slow_rank_gets_less_and_less_until_it_holds_nobody_up(name: str) -> None:
    options = {"sizes": [16, 16], "every": 10, "slow": [1.0, 4.0], "many": 1290, **CHANGING[name]}
    program = Program(**options)
    ranks = train(program)
    check(program, ranks)
    assert sizes_of(ranks) == [(16, 16), (24, 8), (26, 6)]
    # AND all are told of each change once
    first, second = ranks[0].notes
    assert first.endswith(
        " steps shares go from 16, 16 to 24, 8: a sample takes rank 1 4.0 times as long as rank 0; "
        "a step is expected to take 50 % less"
    )
    assert " steps shares go from 24, 8 to 26, 6: " in second


def test_a_rank_that_becomes_slow_gets_less_and_keeps_it() -> None:
    program = Program([16, 16], 20, [1.0, 1.0], 1290, slower=(50, 2.0))
    ranks = train(program)
    check(program, ranks)
    assert sizes_of(ranks)[0] == (16, 16)
    assert sizes_of(ranks)[-1] in ((21, 11), (22, 10))


def program_with(**more: Any) -> Program:
    return Program(**{"sizes": [16, 16], "every": 10, "slow": [1.0, 4.0], "many": 1290, **more})


def test_waiting_for_others_is_no_part_of_what_a_rank_takes() -> None:
    ranks = train(program_with(slow=[1.0, 1.0], held=50.0))
    assert sizes_of(ranks) == [(16, 16)]


def test_the_last_steps_of_short_epochs_do_not_count() -> None:
    # GIVEN epochs of a whole step or two and a short one, in which rank 1 has what rank 0 has
    program = program_with(slow=[1.0, 4.0], many=34, epochs=60)
    ranks = train(program)
    check(program, ranks)
    # THEN there is nothing by which to judge: what comes first follows what is between epochs
    assert sizes_of(ranks) == [(16, 16)]


def answer(share: int, cost: float, **more: Any) -> dict[str, Any]:
    costs = {"share": share, "cost": cost, "error": 0.0, "slope": cost / share, "wait": 0.0}
    facts = {"at": [3, 9], "drawn": [3, 12], "why": "", "unclear": False, "costs": costs}
    return {**facts, **more}


def test_a_change_comes_after_what_any_rank_has_drawn() -> None:
    decision = decide([answer(16, 16), answer(16, 64, drawn=[3, 15])], [16, 16], [32, 32], 1)
    assert (decision["at"], decision["sizes"]) == ([3, 17], [24, 8])


@pytest.mark.parametrize(
    ("answers", "sizes"),
    [
        ([answer(16, 16), answer(16, 64)], [24, 8]),  # these are in force only now
        ([answer(16, 16), answer(16, 64, costs=None)], [16, 16]),  # not enough was measured
        ([answer(16, 16, at=None), answer(16, 64, at=None)], [16, 16]),  # of another loader
        ([answer(16, 16, drawn=[4, 2]), answer(16, 64, drawn=[4, 2])], [16, 16]),  # another began
    ],
)
def test_shares_stay_until_there_is_more_to_go_by(
    answers: list[dict[str, Any]], sizes: list[int]
) -> None:
    assert decide(answers, sizes, [32, 32], 1) == {}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"in_thread": True}, "batches are read in another thread than they are trained in"),
        ({"looks": (0, 5, 3)}, "ranks 0 and 1 do not read the same steps of the loader"),
        ({"looks": (1, 5, 200)}, "ranks 0 and 1 do not read the same steps of the loader"),
    ],
    ids=["a thread reads", "rank 0 looks", "rank 1 reads all"],
)
def test_shares_stay_where_what_is_trained_on_is_not_known(more: dict[str, Any], why: str) -> None:
    program = program_with(**more)
    ranks = train(program)
    check(program, ranks)
    assert sizes_of(ranks) == [(16, 16)]
    assert {note for rank in ranks for note in rank.notes if why in note} == {
        f"shares stay as they are from now on: {why}" + (" (on rank 0)" if "thread" in why else "")
    }
    assert not any(rank.rebalancing.on for rank in ranks)


def test_shares_stay_where_batches_are_read_several_ahead() -> None:
    ranks = train(program_with(ahead=2))
    assert sizes_of(ranks) == [(16, 16)]
    words = "shares stay as they are for now: batches are read that are not trained on (on rank 0)"
    assert set(ranks[0].notes) == {words}


def test_shares_stay_without_times() -> None:
    ranks = train(program_with(timed=False))
    assert sizes_of(ranks) == [(16, 16)]


def test_a_mistake_of_ours_on_one_rank_leaves_all_with_what_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measure = Rebalancing._measure

    def broken(self: Rebalancing, times: Any) -> Any:
        if self.rank == 1 and self.count == 15:
            raise LookupError("x")
        return measure(self, times)

    monkeypatch.setattr(Rebalancing, "_measure", broken)
    program = program_with()
    ranks = train(program)
    check(program, ranks)
    assert sizes_of(ranks) == [(16, 16), (24, 8)]
    for rank in ranks:
        over = "shares stay as they are from now on: LookupError: x (on rank 1)"
        assert rank.notes[-1] == over


def test_what_is_never_averaged_is_told_of() -> None:
    ranks = train(program_with(accumulate=10**6, epochs=4))
    words = "shares stay as they are: no averaging of gradients was seen in 123 backward passes"
    assert all(rank.notes == [words] for rank in ranks)


# A store that fails.


def alone(store: Any, program: Program, wait_s: float = 0) -> Rank:
    """Rank 0, trained with others of which it sees nothing but what the store has."""
    rank = Rank(0, program, store, wait_s)
    rank.run(lambda ready: ready)
    return rank


def test_who_cannot_know_what_others_decided_stops_before_it_matters() -> None:
    with pytest.raises(SystemExit) as stopped:
        alone(Store(), program_with(every=10, prefetch=[2, 2]))
    assert str(stopped.value) == (
        "lotus: from which step on the ranks have which shares cannot be known "
        "(none arrived within 0 s); rank 0 stops before it"
    )


@pytest.mark.parametrize("calls", range(6))
def test_a_store_that_breaks_leaves_no_guess(calls: int) -> None:
    store = Breaking(Store(), calls)
    with pytest.raises(SystemExit, match="ConnectionError: connection reset by peer"):
        alone(store, program_with(sizes=[32], slow=[1.0]))
    # AND a job that ends before it matters ends as it would
    rank = alone(Breaking(Store(), calls), program_with(sizes=[32], slow=[1.0], many=320, epochs=1))
    assert len(rank.seen[0]) == 10
