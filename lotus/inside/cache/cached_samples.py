"""Takes the place of a data set in a fetcher, and gives cached samples where there are some.

A sample that is not cached yet is made by the data set, with a `Tap` in place of its transform:
what comes to the cut is cached, and the sample with a hole where the transform's result stands.
From these the sample is made again: the operations after the cut run as ever, with the random
numbers that they would have drawn, because nothing before the cut draws any.
"""

from __future__ import annotations

import hashlib
import os
import time

from ..common import alternative_files, patching
from ..common.guard import first_line, hook, of_the_program, quiet
from ..common.object_attributes import attributes
from ..common.sample_paths import path_of
from . import opened_files, random_sources
from .compression import MARK, EncodedParts, compressed, decompressed
from .entry_codec import EncodingError, encode
from .entry_decoder import decode
from .fingerprints import fingerprint, versions
from .sample_template import filled, with_hole
from .transform_place import INSPECTED, Tap, TransformPlace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from .sample_store import SampleStore

CHECKED = 500  # of so many hits, the first one is made anew and compared
_FORMAT = 1  # of entries
_HEAD = 8  # bytes of the length of an entry's first part
_INDICES = (bool, int, str, bytes)
_DEEPEST = 8


class CachePlan:
    """The cached part of a loader's samples, and its place; pickled for spawned workers."""

    def __init__(self, path: Sequence[str] | None, cut: int, key: str, folder: str) -> None:
        self.path, self.cut = path, cut
        self.key = key  # of the data set's state and code, and of the operations before the cut
        self.alternatives: tuple[str, ...] = ()  # that make the samples; `cut` is among their steps
        self.folder = folder
        self.budget_bytes = 0
        self.least_ns_per_byte = 0.0  # what saves less is not cached
        self.compression: str | None = None  # one of compression.METHODS; None: none
        self.about: Mapping[str, Any] = {}  # for people: see sample_store.py
        # The file that says, while lotus measures, whether it is used; None: it always is.
        self.switch: str | None = None


def key_of(
    dataset: Any, path: Sequence[str] | None, cut: int, alternatives: Sequence[str] = ()
) -> str:
    """Return the key under which samples of a data set are cached.

    Parts of one data set (torch's Subset) share it. Samples that alternatives make have a key of
    their own, which includes all operations: draft mode, say, decodes as a later Resize needs it.
    Unless the file of a sample has an absolute path, the working directory is a part of the key.
    Raises FingerprintError, NoTransformError, OSError.
    """
    inner, _ = inner_of(dataset, 0)
    base = [_FORMAT, versions(), None if _is_absolute(inner) else os.getcwd()]
    if path is None:
        return fingerprint(*base, inner)
    place = TransformPlace(dataset, path)
    if alternatives:
        code = alternative_files.code(alternatives)
        made = fingerprint(list(alternatives), code, place.operations())
    else:
        # On its own: a transform that is one operation is left out of the data set, and counts.
        made = fingerprint(place.operations()[:cut])
    return fingerprint(*base, cut, made, inner, without=[place.transform])


def _is_absolute(dataset: Any) -> bool:
    """Return True if the data set has a list of files, the first with an absolute path."""
    first = None
    with quiet(Exception):
        first = path_of(dataset, 0)
    return first is not None and os.path.isabs(first)


def inner_of(dataset: Any, index: Any) -> tuple[Any, Any]:
    """Return the data set of which torch's Subset is a part, and the index there."""
    for _ in range(_DEEPEST):
        kind = type(dataset)
        if (kind.__module__, kind.__name__) != ("torch.utils.data.dataset", "Subset"):
            break
        held = attributes(dataset)
        dataset, indices = held["dataset"], held["indices"]
        index = indices[index] if len(indices) else index
    return dataset, index


def entry_name(key: str, index: Any) -> str | None:
    """Return the name of a sample's entry, by its index in the data set within all Subsets.

    None: a sample with such an index is not cached.
    """
    if type(index) not in _INDICES:
        return None
    text = f"{key} {type(index).__name__} {index!r}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class SampleCount:
    """The numbers of this process's samples from the cache and from the data set."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.kept = self.made = 0


class CachedSamples:
    """A data set whose samples are cached. It has the attributes of the own one."""

    def __init__(self, dataset: Any, maker: SampleMaker) -> None:
        self.__dict__.update(_dataset=dataset, _maker=maker)

    def __getitem__(self, index: Any) -> Any:
        maker: SampleMaker = self._maker
        if not maker.on:
            return self._dataset[index]
        try:
            return maker.sample(index)
        except BaseException as error:
            patching.hide(error)
            raise

    def __getattr__(self, name: str) -> Any:
        if name == "__getitems__":  # torch would ask the data set for a batch
            raise AttributeError(name)
        return getattr(self._dataset, name)


hook(CachedSamples.__getitem__)


class SampleMaker:
    """Makes samples of a data set from the cache, and caches the others.

    `note` gets a line for the user when it stops.
    """

    def __init__(
        self,
        dataset: Any,
        plan: CachePlan,
        store: SampleStore,
        note: Callable[[str], object],
        count: SampleCount,
    ) -> None:
        self.on = True
        self.anew = False  # whether samples that are cached are made and cached again
        self._count = count
        self._dataset, self._plan, self._store, self._note = dataset, plan, store, note
        self._place = None if plan.path is None else TransformPlace(dataset, plan.path)
        self._until_check = 1  # what no hash has seen may have changed since another run
        self._compressed = self._compressed_bytes = 0  # samples, and what they take

    def sample(self, index: Any) -> Any:
        """Return a sample; what the data set or an operation raises is raised."""
        name = self._looked_up(index)
        if name is None:
            return self._dataset[index]
        entry = None if self.anew else self._entry(name)
        if entry is None:
            self._count.made += 1
            return self._make(index, _Making(name))
        self._count.kept += 1
        self._until_check -= 1
        if self._until_check <= 0:
            self._until_check = CHECKED
            making = _Making(name)
            making.expected = entry
            return self._make(index, making)
        if self._place is None:
            return entry.template
        value = entry.value
        for operation in self._place.operations()[self._plan.cut :]:
            value = operation(value)
        return filled(entry.template, value)

    def _looked_up(self, index: Any) -> str | None:
        """Return the name of a sample's entry; None where this sample is not cached."""
        try:
            if self._place is not None and not self._place.is_current():
                self._stop("the program has replaced the data set's transform")
                return None
            _, inner = inner_of(self._dataset, index)
            return entry_name(self._plan.key, inner)
        except Exception as error:
            self._fail(error)
            return None

    def _entry(self, name: str) -> CachedSample | None:
        """Return a cached sample, if its files are as they were."""
        try:
            if self._store.dropped:
                self.on = False
                return None
            data = self._store.get(name)
            if data is None:
                return None
            try:
                entry = CachedSample(data)
            except ValueError:  # damaged
                return None
            return entry if entry.is_current() else None
        except Exception as error:
            self._fail(error)
            return None

    def _make(self, index: Any, making: _Making) -> Any:
        """Have the data set make a sample, and cache it or compare it with the cached one."""
        place = self._place
        if place is None:
            making.begin()
            try:
                sample = self._dataset[index]
            finally:
                making.end()
        else:
            last = len(place.operations())
            tap = Tap(place, [self._plan.cut, last], making.look)
            making.begin(self._plan.cut, last)
            making.tap = tap
            place.replace(tap)
            try:
                sample = self._dataset[index]
            finally:
                place.restore()
                making.end()
        try:
            self._finish(index, making, sample)
        except Exception as error:
            self._fail(error)
        return sample

    def _finish(self, index: Any, making: _Making, sample: Any) -> None:
        if making.tap is None:
            making.look(self._plan.cut, None)
            template = sample
        elif not making.tap.single:
            self._stop("the data set calls its transform more than once, or with several values")
            return
        else:
            template, holes = with_hole(sample, making.tap.result)
            if holes != 1:
                self._stop("the transform's result is not a part of the sample")
                return
            if making.tap.inspected and self._plan.cut < making.last:
                self._stop(INSPECTED)
                return
        if making.why:
            self._stop(making.why)
            return
        files = opened_files.of_sample(self._dataset, index, making.opened)
        if files is None:
            return  # so many that to look at them all costs more than it saves
        if making.expected is not None:
            self._compare(making, template)
            return
        plain = entry_parts(files, template, making.value)
        parts: Sequence[bytes | memoryview] = plain
        if self._plan.compression is not None:
            usual = self._compressed_bytes / max(self._compressed, 1)
            if not self._store.has_room(making.name, usual):
                return  # compressing what has no room would cost time in each epoch
            parts = compressed(plain, self._plan.compression)
        size = sum(len(part) for part in parts)
        if parts is not plain:
            self._compressed += 1
            self._compressed_bytes += size
        if making.took_ns >= self._plan.least_ns_per_byte * size:
            self._store.put(making.name, parts)

    def _compare(self, making: _Making, template: Any) -> None:
        kept = making.expected
        assert kept is not None
        same = b"".join(making.value) == kept.encoded_value
        if not same or encoded(template) != encoded(kept.template):
            why = "a cached sample differs from one that was made anew"
            self._store.drop(why)
            self._stop(f"{why}; `lotus cache rm` removes them")

    def _stop(self, why: str) -> None:
        self.on = False
        self._note(f"samples are not cached: {why}")

    def _fail(self, error: Exception) -> None:
        """Handle an error of ours; what the program raises into our code is raised."""
        if isinstance(error, EncodingError):
            self._stop(str(error))
        elif of_the_program(error):
            raise error
        else:
            self._stop(first_line(error))


hook(SampleMaker.sample)
hook(SampleMaker._make)


class CachedSample:
    """A cached sample. Raises ValueError where its bytes are not one."""

    def __init__(self, data: memoryview) -> None:
        if data[: len(MARK)] == MARK:
            data = decompressed(data)
        size = int.from_bytes(data[:_HEAD], "little")
        if not 0 < size <= len(data) - _HEAD:
            raise ValueError("no entry of a sample")
        self.files, self.template = decode(data[_HEAD : _HEAD + size])
        self.encoded_value = data[_HEAD + size :]
        self.value = decode(self.encoded_value)

    def is_current(self) -> bool:
        """Return True if the files of the sample are as they were when it was made."""
        return all(
            opened_files.status_of(path) == (size, time_ns) for path, size, time_ns in self.files
        )


def entry_parts(files: Any, template: Any, value: EncodedParts) -> EncodedParts:
    """Return the parts of an entry; `value` is encoded already. Raises EncodingError."""
    head = encode((files, template))
    parts = EncodedParts([sum(map(len, head)).to_bytes(_HEAD, "little")])
    parts.add(head)
    parts.add(value)
    return parts


class _Making:
    """A sample that is made by the data set."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.expected: CachedSample | None = None
        self.tap: Tap | None = None
        self.value = EncodedParts()  # what came to the cut, encoded
        self.took_ns = 0  # CPU time up to the cut
        self.opened: list[str] = []
        self.why = ""
        self._began_ns = 0
        self._states: dict[str, Any] = {}  # of random generators, before
        self._left: dict[str, Any] = {}  # and after the transform
        self._cut = self.last = 0

    def begin(self, cut: int = 0, last: int = 0) -> None:
        self._cut, self.last = cut, last
        self._states = random_sources.states()
        opened_files.start()
        self._began_ns = time.thread_time_ns()

    def end(self) -> None:
        self.opened, writes = opened_files.stop()
        if self._left and random_sources.drawn(self._left):
            self.why = "random numbers are drawn after the transform"
        if writes:
            self.why = "the data set writes to files while it makes a sample"

    def look(self, cut: int, value: Any) -> None:
        """Copy what comes to the cut; note the random states that the last operation has left."""
        try:
            if cut == self.last and self.tap is not None:
                self._left = random_sources.states()
            if cut != self._cut:
                return
            self.took_ns = time.thread_time_ns() - self._began_ns
            if random_sources.drawn(self._states):
                self.why = "random numbers are drawn before the cut"
            else:
                self.value = encode(value)
        except EncodingError as error:
            self.why = str(error)
        except Exception as error:
            if of_the_program(error):
                raise
            self.why = first_line(error)


def encoded(value: Any) -> bytes:
    """Return a value as bytes. Raises EncodingError."""
    return b"".join(encode(value))
