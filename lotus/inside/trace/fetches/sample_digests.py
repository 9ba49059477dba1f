"""Keeps the smallest checksums of the samples of a worker's stream, and of their series.

If each worker of an iterable data set reads all of the data, in any order, the smallest checksums
of their samples are equal. Samples that are changed at random differ, but not their labels: those
of several samples in a row are a series. Only a worker's first pass over its data is observed, and
not to the end if that takes too long; of workers that are forked anew for each epoch, only that of
the first epoch.
"""

from __future__ import annotations

import bisect
import itertools
import sys
import weakref
import zlib

from ...common.clocks import clock, cpu_clock
from ...common.guard import ask, edge, hook
from .first_batches import watched_by_modes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..recorder import Recorder

KEPT = 64
_MOST_NS, _MOST_SHARE = 100_000_000, 0.02  # of a worker's time; a sample takes some 10 us
_MOST_ITEMS, _DEPTH = 16, 2
_ELEMENTS = 64  # of an array, spread over it
_IN_SERIES = 12  # samples
# Whether the loader had epochs before that which begins; workers that are forked for it inherit it.
has_earlier_epochs = False
_LABEL_BYTES = 16  # numbers and short texts have fewer


class Smallest:
    """The smallest distinct checksums, sorted."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def add(self, content: bytes) -> None:
        """Add the checksum of this content."""
        digest, values = zlib.crc32(content), self.values
        if len(values) < KEPT or digest < values[-1]:
            place = bisect.bisect_left(values, digest)
            if values[place : place + 1] != [digest]:
                values.insert(place, digest)
                del values[KEPT:]


class SampleDigests:
    """The smallest distinct checksums of some samples, and of the labels of series of them."""

    def __init__(self) -> None:
        self.begun = clock()
        self.spent_ns = 0  # of CPU time
        self.samples = 0
        self.contents, self.series = Smallest(), Smallest()
        self._labels: list[bytes] = []  # of the last samples
        self.is_over = False

    @property
    def is_too_slow(self) -> bool:
        """Return whether they have taken more time than allowed."""
        return self.spent_ns > _MOST_NS + _MOST_SHARE * (clock() - self.begun)

    def add(self, samples: list[Any]) -> None:
        """Add the samples of a batch."""
        start = cpu_clock()
        self.samples += len(samples)
        for sample in samples:
            parts = list(itertools.islice(_parts(sample, _DEPTH), _MOST_ITEMS))
            self.contents.add(b"\0".join(parts))
            label = b"\0".join([part for part in parts if len(part) < _LABEL_BYTES])
            if label and len(parts) > 1:  # what is all of a sample is its content
                self._labels = [*self._labels[1 - _IN_SERIES :], label]
                if len(self._labels) == _IN_SERIES:
                    self.series.add(b"\1".join(self._labels))
        self.spent_ns += cpu_clock() - start


def watch(timed: Any, fetcher: Any, recorder: Recorder) -> None:
    """Log the digests of an iterable data set's first pass, then restore the fetchers.

    No reference cycle: `fetch` holds the fetcher, so that `collated`, which the fetcher holds, must
    not hold it. The data set, and an iteration of it that is left early, end as without lotus.
    """
    collate, fetch, digests = fetcher.collate_fn, timed.__dict__["fetch"], SampleDigests()
    outer, inner = weakref.ref(timed), weakref.ref(fetcher)

    def leave() -> None:
        digests.is_over, of_torch = True, inner()
        if of_torch is not None:
            of_torch.collate_fn = collate

    def collated(data: Any) -> Any:
        if type(data) is list and not ask(watched_by_modes, default=True):
            edge(recorder, ask, digests.add, data)
            if digests.is_too_slow:
                digests.samples = 0
                leave()
        return collate(data)

    def fetched(index: Any) -> Any:
        try:
            return fetch(index)
        except StopIteration:
            leave()
            edge(recorder, _log, recorder, digests)
            raise
        finally:
            of_lotus = outer() if digests.is_over else None
            if of_lotus is not None:
                of_lotus.__dict__["fetch"] = fetch

    fetcher.collate_fn, timed.__dict__["fetch"] = hook(collated), hook(fetched)


def _log(recorder: Recorder, digests: SampleDigests) -> None:
    if digests.samples:
        recorder.event(
            {
                "event": "sample_digests",
                "worker": recorder.worker,
                "samples": digests.samples,
                "digests": digests.contents.values,
                "series": digests.series.values,
            }
        )


def _parts(value: Any, depth: int) -> Iterator[bytes]:
    """Yield some of the contents of arrays, texts and numbers; nothing of other objects."""
    kind = type(value)
    if kind.__module__ == "torch" and kind.__name__ == "Tensor":
        # Arrays that are not contiguous would be copied entirely.
        strided = value.layout is sys.modules["torch"].strided
        if not value.is_cuda and strided and value.is_contiguous():
            yield _spread(value.detach().reshape(-1))
    elif kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        if value.dtype.kind in "biufcSUmM" and value.flags.c_contiguous:
            yield _spread(value.ravel())
    elif kind is str:
        yield value[:_ELEMENTS].encode("utf-8", "replace")
    elif kind is bytes:
        yield value[:_ELEMENTS]
    elif kind in (int, float):
        yield repr(value).encode()
    elif depth:
        if kind is dict:
            value = list(value.values())
        if type(value) in (list, tuple):
            for item in value[:_MOST_ITEMS]:
                yield from _parts(item, depth - 1)


def _spread(flat: Any) -> bytes:
    """Return evenly spread elements of a one-dimensional array or tensor."""
    few = flat[:: max(1, len(flat) // _ELEMENTS)]
    if type(few).__module__ == "torch":
        few = few.numpy()
    return bytes(few.tobytes())
