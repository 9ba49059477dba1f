"""Shares of a global batch: each sample once, all ranks alike; one decision for all of them."""

import json
import random
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lotus.inside.apply.settings_applier import Applier
from lotus.inside.distributed import consensus
from lotus.inside.distributed.batch_shares import Shared, places, rest
from lotus.inside.distributed.gradient_weights import Weights
from lotus.inside.distributed.job_incarnation import NoAnswerError, Start
from lotus.inside.distributed.share_applier import ShareApplier, _note_out_of_memory

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@dataclass
class Sampler:
    """As torch's DistributedSampler; test_balance_run.py has torch's own."""

    dataset: range
    num_replicas: int
    rank: int = 0
    drop_last: bool = False
    epoch: int = 0
    num_samples: int = 0
    total_size: int = 0

    def __iter__(self) -> Iterator[int]:
        order = list(self.dataset)
        random.Random(self.epoch).shuffle(order)
        return iter(order[self.rank : self.total_size : self.num_replicas])


def split(sizes: list[int], many: int, drop: bool, epoch: int = 0) -> list[list[list[int]]]:
    """What each rank's loader gives: for each rank its batches, as torch's BatchSampler cuts."""
    batches = []
    for rank, size in enumerate(sizes):
        own = Sampler(range(many), len(sizes), rank, epoch=epoch)
        shared = Shared(own, sizes, rank, drop)
        taken = list(shared)
        assert len(taken) == len(shared)
        batches.append([taken[start : start + size] for start in range(0, len(taken), size)])
    return batches


@given(SIZES, st.integers(1, 120), st.booleans())
def test_each_sample_is_taken_once_in_equal_steps(sizes: list[int], many: int, drop: bool) -> None:
    ranks, whole = len(sizes), sum(sizes)
    order = list(Sampler(range(many), 1, total_size=many))
    batches_of_ranks = split(sizes, many, drop)
    steps = many // whole if drop else -(-many // whole)
    assert {len(batches) for batches in batches_of_ranks} == {steps}
    seen = []
    for step in range(steps):
        parts = [batches[step] for batches in batches_of_ranks]
        left = min(whole, many - step * whole)
        if left >= ranks:
            # THEN a step trains on the step-th slice of the one permutation
            together = [sample for part in parts for sample in part]
            assert sorted(together) == sorted(order[step * whole : step * whole + left])
            assert left < whole or [len(part) for part in parts] == sizes
        else:
            # AND ranks that go without where too few are left have one that counts for nothing
            counted = rest(sizes, left)
            assert [len(part) for part in parts] == [1] * ranks
            together = [part[0] for part, count in zip(parts, counted, strict=True) if count]
        seen += together
    assert sorted(seen) == sorted(order[: steps * whole])


@given(SIZES, st.data())
def test_what_is_left_is_shared_in_proportion(sizes: list[int], data: st.DataObject) -> None:
    whole = sum(sizes)
    many = data.draw(st.integers(1, max(whole - 1, 1)))
    shares = rest(sizes, many)
    assert sum(shares) == many
    if many < len(sizes):
        assert set(shares) <= {0, 1}
        return
    least = 2 if many >= 2 * len(sizes) else 1
    for share, size in zip(shares, sizes, strict=True):
        assert min(least, size) <= share <= size
    if all(many * size >= 2 * whole for size in sizes):  # nobody had to be given more
        assert all(
            abs(share - many * size / whole) < 1 for share, size in zip(shares, sizes, strict=True)
        )


def test_equal_shares_are_as_torch_takes_them() -> None:
    assert [places([4, 4, 4], rank) for rank in range(3)] == [
        [0, 3, 6, 9],
        [1, 4, 7, 10],
        [2, 5, 8, 11],
    ]
    # AND a larger share lies spread over the slice too
    assert places([6, 2], 1) == [2, 6]


def test_order_is_of_the_epoch_alone() -> None:
    assert split([5, 2], 40, False, epoch=3) == split([5, 2], 40, False, epoch=3)
    assert split([5, 2], 40, False, epoch=3) != split([5, 2], 40, False, epoch=4)


def test_a_sampler_that_drops_the_last_samples_does_so_with_shares() -> None:
    shared = [Shared(Sampler(range(11), 2, rank, True), [3, 1], rank, False) for rank in (0, 1)]
    taken = [sample for part in shared for sample in part]
    assert len(taken) == len(set(taken)) == 10  # as torch: 11 are not even


# Which step is trained on, and what a rank counts.


class Reader:
    """A loader's iterator, read by a program."""

    def __init__(self, weights: Weights, shared: Any) -> None:
        self.weights, self.shared, self.reference = weights, shared, weakref.ref(self)

    def read(self, index: int) -> None:
        self.weights.delivered(self.shared, self.reference, index)

    def end(self) -> None:
        self.weights.ended(self.reference)


def shared_out() -> Shared:
    """Steps of 6 and 2 samples, and at the end 3 of both."""
    shared = Shared(Sampler(range(22), 2), [6, 2], 0, False)
    assert [list(shared.taken(step)) for step in range(3)] == [[6, 2], [6, 2], [4, 2]]
    return shared


def test_a_rank_counts_by_its_part_of_the_samples() -> None:
    weights, shared = Weights(False), shared_out()
    assert weights.weight() == 1  # nothing was read
    reader = Reader(weights, shared)
    weights_found = []
    for step in range(3):
        reader.read(step)
        weights_found.append(weights.weight())
    assert weights_found == [6 * 2 / 8, 6 * 2 / 8, 4 * 2 / 6]


def test_a_program_that_reads_one_batch_ahead_has_the_weight_of_the_one_it_trains_on() -> None:
    weights = Weights(False)
    reader = Reader(weights, shared_out())
    reader.read(0)
    reader.read(1)
    weights_found = [weights.weight()]
    reader.read(2)
    weights_found.append(weights.weight())
    reader.end()
    weights_found.append(weights.weight())
    assert weights_found == [1.5, 1.5, 4 * 2 / 6]


def test_a_program_that_reads_ahead_has_the_weight_of_an_epochs_only_batch() -> None:
    weights = Weights(False)
    reader = Reader(weights, Shared(Sampler(range(7), 2), [6, 2], 0, False))
    reader.read(0)
    reader.end()
    assert weights.weight() == 5 * 2 / 7


def test_a_look_into_the_loader_does_not_change_which_step_is_trained_on() -> None:
    weights, shared = Weights(False), Shared(Sampler(range(11), 2), [6, 2], 0, False)
    reader = Reader(weights, shared)
    reader.read(0)
    assert weights.weight() == 6 * 2 / 8
    look = Reader(weights, shared)
    look.read(0)
    del look
    reader.read(1)
    assert weights.weight() == 2 * 2 / 3


def test_a_program_that_skips_batches_after_a_restart_has_the_weight_of_the_next() -> None:
    weights = Weights(False)
    reader = Reader(weights, shared_out())
    for step in range(3):
        reader.read(step)
    assert weights.weight() == 4 * 2 / 6


def test_what_is_trained_after_the_shared_loader_is_not_weighted() -> None:
    weights = Weights(False)
    reader = Reader(weights, shared_out())
    reader.read(0)
    weights.other_loader()  # as a validation in between
    assert weights.weight() == 1.5
    reader.end()
    assert weights.weight() == 1
    reader.read(0)
    del reader
    assert weights.weight() == 1


def test_sums_are_not_weighted_and_what_counts_for_nothing_is_left_out() -> None:
    weights = Weights(True)
    reader = Reader(weights, shared_out())
    reader.read(0)
    assert weights.weight() == 1
    for summed in (True, False):
        weights = Weights(summed)
        reader = Reader(weights, Shared(Sampler(range(9), 2, 1), [6, 2], 1, False))
        reader.read(1)
        weights.ahead = 0
        assert weights.weight() == 0  # one is left, and the other rank has it


class OutOfMemoryError(RuntimeError):
    """As torch's."""


@pytest.mark.parametrize(
    ("error", "share", "is_said"),
    [
        (OutOfMemoryError("CUDA out of memory"), 24, True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 24, True),
        (MemoryError(), 24, True),
        (OutOfMemoryError("CUDA out of memory"), 8, False),  # less than by itself
        (ValueError("shape"), 24, False),
    ],
)
def test_want_of_memory_at_a_larger_share_is_told(
    error: Exception, share: int, is_said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda *error: shown.append(error))
    applier = Applier({"LOTUS_SETTINGS": "{}"})
    monkeypatch.setattr(applier, "note", lambda text: shown.append(text))
    _note_out_of_memory(ShareApplier(applier, {"batch_sizes": [24, 8]}), lambda: share, 16)
    sys.excepthook(type(error), error, None)
    assert shown[-1] == (type(error), error, None)
    assert len(shown) == 1 + is_said
    if is_said:
        assert "at its share of 24 samples, where the program itself gives it 16" in shown[0]
    applier.uninstall()
    sys.excepthook(ValueError, ValueError(), None)
    assert len(shown) == 2 + is_said


# One decision.


@dataclass
class Store:
    """A store of torch.distributed in one process."""

    values: dict[str, bytes] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.Lock)

    def set(self, name: str, content: str) -> None:
        with self.lock:
            self.values[name] = content.encode()

    def get(self, name: str) -> bytes:
        with self.lock:
            return self.values[name]

    def multi_get(self, names: list[str]) -> list[bytes]:
        return [self.get(name) for name in names]

    def add(self, name: str, number: int) -> int:
        with self.lock:
            self.values[name] = str(int(self.values.get(name, b"0")) + number).encode()
            return int(self.values[name])


@dataclass
class Breaking:
    """What one rank has of a store that goes away after some calls."""

    store: Store
    calls: int

    def __getattr__(self, name: str) -> Any:
        if self.calls == 0:
            raise ConnectionError("connection reset by peer\nmore")
        self.calls -= 1
        return getattr(self.store, name)


def ask(stores: list[Any], answers: list[Any]) -> list[Any]:
    """What each rank hears, where all ask at once."""
    heard: list[Any] = [None] * len(answers)

    def agree(rank: int) -> None:
        heard[rank] = consensus.agree(stores[rank], rank, len(answers), answers[rank], 600)

    threads = [threading.Thread(target=agree, args=(rank,)) for rank in range(len(answers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return heard


def test_a_start_of_the_job_is_told_from_the_one_before_in_the_same_store() -> None:
    # GIVEN a store in which an earlier start of the job has left all that it said
    store, names = Store(), [list[str](), list[str]()]
    for names_heard in names:
        first, met = Start(), threading.Event()

        def rank_1(names_heard: list[str] = names_heard, met: threading.Event = met) -> None:
            names_heard.append(Start().named(store, 1, 600))
            met.set()

        # WHEN the second rank looks there before the first one has come again
        thread = threading.Thread(target=rank_1)
        thread.start()
        assert not met.wait(0.05)
        names_heard.append(first.named(store, 0, 600))
        while not met.is_set():
            first.admit(store)
        thread.join()
    # THEN both ranks know the new start by one name, and not by the old one
    assert names[0][0] == names[0][1] != names[1][0] == names[1][1]
    # AND nobody lets in who comes where rank 0 does not
    with pytest.raises(NoAnswerError):
        Start().named(store, 1, 0)


def yes(**facts: object) -> dict[str, Any]:
    return {"of": "it", "refused": "", "facts": facts}


def no(reason: str) -> dict[str, Any]:
    return {"of": "it", "refused": reason, "facts": {}}


@pytest.mark.parametrize(
    ("answers", "decision"),
    [
        ([yes(seed=0), yes(seed=0), yes(seed=0)], ""),
        ([yes(), no("its sampler is Own"), yes()], "it: its sampler is Own (on rank 1)"),
        ([no("x"), yes(), no("x")], "it: x (on ranks 0 and 2)"),
        ([no("for 4 ranks")] * 3, "it: for 4 ranks"),
        (
            [yes(seed=0), yes(seed=0), yes(seed=1)],
            "it: seed is 0 on rank 0 and 1 on rank 2",
        ),
    ],
)
def test_all_ranks_hear_the_same(answers: list[Any], decision: str) -> None:
    store = Store()
    assert ask([store] * 3, answers) == [decision] * 3


def test_a_rank_that_does_not_answer_is_named_and_one_that_is_late_hears_the_same() -> None:
    store = Store()
    store.set("answer2", json.dumps(yes()))
    for name in ("answered2", "answered"):
        store.add(name, 1)
    heard = consensus.agree(store, 0, 4, yes(), 0)
    assert heard.startswith("it: ranks 1 and 3 did not answer within 0 s; all must be started by")
    # AND it is no use that all have answered by then
    assert [consensus.agree(store, rank, 4, yes(), 600) for rank in (1, 3)] == [heard] * 2


def test_a_store_that_takes_no_answer_leaves_the_program_as_it_is() -> None:
    store = Store()
    with pytest.raises(
        consensus.UnsentAnswerError, match=r"^ConnectionError: connection reset by peer$"
    ):
        consensus.agree(Breaking(store, 0), 1, 2, yes(), 600)
    assert consensus.agree(store, 0, 2, yes(), 0).startswith("it: rank 1 did not answer")


@pytest.mark.parametrize("calls", range(1, 8))
def test_a_store_that_breaks_once_the_answer_is_given_leaves_no_guess(calls: int) -> None:
    with pytest.raises(consensus.UnknownDecisionError):
        consensus.agree(Breaking(Store(), calls), 0, 1, yes(), 600)


def test_one_who_decides_and_is_gone_leaves_no_guess() -> None:
    store = Store()
    store.add("decided", 1)
    with pytest.raises(consensus.UnknownDecisionError, match="none arrived within 0 s"):
        consensus.agree(store, 0, 2, yes(), 0)


def test_ranks_are_named() -> None:
    assert consensus.ranks([3]) == "rank 3"
    assert consensus.ranks([0, 1, 5]) == "ranks 0, 1 and 5"
    assert consensus.ranks(list(range(64))) == "ranks 0, 1, 2 and 61 more"
