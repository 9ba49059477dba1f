"""The smallest checksums of a stream's samples: the same in whatever order."""

import contextlib
import itertools
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lotus.inside.trace.fetches import sample_digests
from lotus.inside.trace.fetches.sample_digests import KEPT, SampleDigests, watch


class Recorder:
    on, worker = True, 1

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def event(self, item: dict[str, Any]) -> None:
        self.events.append(item)


class Fetcher:
    """As torch's, of a stream of these samples."""

    def __init__(self, samples: list[Any], size: int = 4) -> None:
        self.rest, self.size = samples, size
        self.collate_fn: Any = list

    def fetch(self, index: object = None) -> Any:
        data, self.rest = self.rest[: self.size], self.rest[self.size :]
        if not data:
            raise StopIteration
        return self.collate_fn(data)


class Timed(SimpleNamespace):
    """What stands in for the fetcher."""


def watched(samples: list[Any]) -> tuple[list[Any], list[dict[str, Any]], Fetcher, Timed]:
    """(batches, logged events, fetcher, what stands in for it) of a whole pass."""
    fetcher, recorder = Fetcher(samples), Recorder()
    timed = Timed(fetch=fetcher.fetch)
    watch(timed, fetcher, recorder)  # type: ignore[arg-type]
    batches = []
    with contextlib.suppress(StopIteration):
        while True:
            batches.append(timed.fetch(None))
    return batches, recorder.events, fetcher, timed


def stream(count: int, start: int = 0) -> list[Any]:
    return [
        {"x": torch.full((9,), float(n)), "y": n, "name": f"s{n}", "z": np.arange(n, n + 3)}
        for n in range(start, start + count)
    ]


def test_the_order_does_not_matter_and_the_contents_do() -> None:
    samples = stream(300)
    shuffled = random.Random(3).sample(samples, len(samples))
    (_, (event,), _, _), (_, (again,), _, _), (_, (other,), _, _) = (
        watched(each) for each in (samples, shuffled, stream(300, start=300))
    )
    assert event["digests"] == again["digests"]
    assert event["samples"] == 300
    assert len(event["digests"]) == KEPT
    assert not set(event["digests"]) & set(other["digests"])


def test_batches_are_what_they_were_and_the_fetcher_is_left_as_it_was() -> None:
    samples = stream(10)
    batches, _, fetcher, timed = watched(samples)
    assert [sample for batch in batches for sample in batch] == samples
    assert all(a is b for a, b in zip(itertools.chain(*batches), samples, strict=True))
    assert fetcher.collate_fn is list
    assert timed.fetch == fetcher.fetch


def test_a_pass_that_would_take_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_digests, "_MOST_NS", -1)
    monkeypatch.setattr(sample_digests, "_MOST_SHARE", 0.0)
    batches, events, fetcher, timed = watched(stream(10))
    assert len(batches) == 3
    assert events == []
    assert fetcher.collate_fn is list
    assert timed.fetch == fetcher.fetch


def test_what_cannot_be_read_costs_nothing_but_the_digests() -> None:
    odd = [torch.zeros(2, 2).to_sparse(), torch.ones(3, dtype=torch.bfloat16), object(), None]
    batches, _, _, _ = watched(odd)
    assert batches[0] == odd


def test_samples_of_equal_contents_are_kept_once() -> None:
    digests = SampleDigests()
    digests.add([torch.zeros(3)] * 50)
    assert digests.samples == 50
    assert len(digests.contents.values) == 1


def labelled(labels: list[int], seed: int) -> list[tuple[torch.Tensor, int]]:
    """Samples that are changed at random, with these labels."""
    chance = torch.Generator().manual_seed(seed)
    return [(torch.rand(9, generator=chance), label) for label in labels]


def test_series_of_labels_tell_what_random_contents_do_not() -> None:
    labels = random.Random(5).choices(range(4), k=200)
    first, second, other = SampleDigests(), SampleDigests(), SampleDigests()
    first.add(labelled(labels, 1))
    for start in range(0, 200, 40):  # in batches
        second.add(labelled(labels[start : start + 40], 2 + start))
    other.add(labelled(random.Random(6).choices(range(4), k=200), 1))
    assert not set(first.contents.values) & set(second.contents.values)
    assert first.series.values == second.series.values
    second = SampleDigests()  # labels may come before what they are of
    second.add([(label, content) for content, label in labelled(labels, 9)])
    assert first.series.values == second.series.values
    assert len(set(first.series.values) & set(other.series.values)) < 5


def test_samples_without_labels_have_no_series() -> None:
    digests = SampleDigests()
    digests.add([torch.rand(9) for _ in range(20)])
    digests.add([3] * 20)  # a number that is all of a sample is its content
    assert digests.series.values == []
