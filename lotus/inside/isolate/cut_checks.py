"""Finds the cuts of a pipeline at which samples may be cached.

At such a cut, the value is the same when a sample is made twice with different random states, and
the sample that is made from the value equals that of the data set.
"""

from __future__ import annotations

import contextlib

from ..cache import random_sources
from ..cache.entry_codec import HOLE, EncodingError, encode
from ..cache.entry_decoder import decode
from ..cache.fingerprints import FingerprintError, fingerprint
from ..cache.sample_template import filled, with_hole
from ..cache.transform_place import INSPECTED, NoTransformError, Tap, TransformPlace, paths
from .input_capture import describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ..cache.random_sources import RandomSources

OWN_CODE = "the data set's own code"
_FIRST, _SECOND = 1, 2  # seeds


def encoded(value: Any) -> bytes:
    """Return a value as bytes. Raises EncodingError."""
    return b"".join(encode(value))


class CheckedCut:
    """A cut and the results of its checks. `why`: why it cannot be cached."""

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name
        self.why: str | None = None
        self.draws: set[str] = set()  # generators that were drawn from before it
        self.same = True  # whether it was always the same when it was made again

    def refuse(self, why: str) -> None:
        if self.why is None:
            self.why = why


class SamplePath:
    """The way in which a data set makes a sample: its own code, then a transform, if any.

    If no transform is called exactly once per sample with a result at a fixed place in it, the only
    cut is at the whole sample.
    """

    def __init__(self, dataset: Any, index: int) -> None:
        self.dataset = dataset
        self.path: list[str] | None = None
        self.place: TransformPlace | None = None
        self.inspected = False  # whether the data set's code asked for the transform's attributes
        for path in paths(dataset):
            try:
                place = TransformPlace(dataset, path)
            except NoTransformError:
                continue
            tap = Tap(place, [], _ignore)
            sample = self._tapped(place, tap, index)
            if tap.single and with_hole(sample, tap.result)[1] == 1:
                self.path, self.place = path, place
                break

    def operations(self) -> list[Callable[[Any], Any]]:
        return [] if self.place is None else self.place.operations()

    def names(self) -> list[str]:
        return [] if self.place is None else self.place.names()

    def make(self, index: int, look: Callable[[int, Any], object]) -> tuple[Any, Any, Any]:
        """Make a sample; return (sample, what the transform returned, the rest with a HOLE).

        `look` is called with the number and the value of each cut. Raises what the data set
        raises, and ValueError if the transform was not called as before.
        """
        if self.place is None:
            sample = self.dataset[index]
            look(0, sample)
            return sample, sample, HOLE
        tap = Tap(self.place, range(len(self.operations()) + 1), look)
        sample = self._tapped(self.place, tap, index)
        self.inspected |= tap.inspected
        template, holes = with_hole(sample, tap.result) if tap.single else (None, 0)
        if holes != 1:
            raise ValueError("the transform is not called in the same way for all samples")
        return sample, tap.result, template

    def _tapped(self, place: TransformPlace, tap: Tap, index: int) -> Any:
        place.replace(tap)
        try:
            return self.dataset[index]
        finally:
            place.restore()

    def states(self) -> list[str]:
        """Return hashes of the data set without its transform, and of each operation.

        The text is empty for an operation without a hash. Raises FingerprintError for the data set.
        """
        without = [] if self.place is None else [self.place.transform]
        return [fingerprint(self.dataset, without=without), *map(_state_of, self.operations())]


def _ignore(cut: int, value: object) -> None:
    pass


def _state_of(operation: object) -> str:
    try:
        return fingerprint(operation)
    except FingerprintError:
        return ""


class _EncodedSample:
    """The values of one making of a sample; None if a value cannot be encoded."""

    def __init__(self) -> None:
        self.values: dict[int, bytes | None] = {}  # by cut
        self.drawn: dict[int, set[str]] = {}  # by cut: generators drawn from before
        self.whys: dict[int, str] = {}
        self.sample: bytes | None = None
        self.template: bytes | None = None
        self.drawn_after: set[str] = set()  # by the data set's code after its transform


class CutChecks:
    """Checks all cuts on one sample after the other."""

    def __init__(self, path: SamplePath, sources: RandomSources) -> None:
        self._path, self._sources = path, sources
        names = [OWN_CODE, *path.names()]
        self.cuts = [CheckedCut(number, name) for number, name in enumerate(names)]

    def check(self, index: int) -> tuple[list[bytes | None], bytes | None]:
        """Make a sample twice; return the encoded values at the cuts, and the rest of the sample.

        Raises what the data set raises.
        """
        first, second = self._made(index, _FIRST), self._made(index, _SECOND)
        for cut in self.cuts:
            self._compare(cut, first, second)
        for cut in self.cuts:
            if cut.why is None and not self._replayed(cut, first, second):
                # This fails if operations have their own generators, which no seed affects.
                if self._made(index, _SECOND).sample != second.sample:
                    break
                cut.refuse("a sample that is made from it differs from the data set's own")
        return [first.values.get(cut.number) for cut in self.cuts], first.template

    def _made(self, index: int, seed: int) -> _EncodedSample:
        encoded_sample, last = _EncodedSample(), len(self.cuts) - 1
        begun = self._sources.seed(seed)
        remaining: dict[str, Any] = {}

        def look(cut: int, value: Any) -> None:
            encoded_sample.drawn[cut] = random_sources.drawn(begun)
            try:
                encoded_sample.values[cut] = encoded(value)
            except EncodingError as error:
                encoded_sample.values[cut], encoded_sample.whys[cut] = None, str(error)
            if cut == last:
                remaining.update(random_sources.states())

        sample, _, template = self._path.make(index, look)
        if self._path.inspected:
            for cut in self.cuts[:-1]:
                cut.refuse(INSPECTED)
        encoded_sample.drawn_after = random_sources.drawn(remaining)
        try:
            encoded_sample.template = encoded(template)
        except EncodingError as error:
            encoded_sample.whys[-1] = str(error)
        with contextlib.suppress(EncodingError):
            encoded_sample.sample = encoded(sample)
        return encoded_sample

    def _compare(self, cut: CheckedCut, first: _EncodedSample, second: _EncodedSample) -> None:
        cut.draws |= first.drawn[cut.number] | second.drawn[cut.number]
        values = first.values[cut.number], second.values[cut.number]
        if values[0] != values[1] or None in values:
            cut.same = False  # as far as is known
        if cut.draws:
            cut.refuse("random numbers are drawn before it")
        elif None in values:
            cut.refuse(first.whys.get(cut.number) or second.whys[cut.number])
        elif not cut.same:
            cut.refuse("it differs when it is made again")
        elif first.drawn_after or second.drawn_after:
            cut.refuse("the data set's own code draws random numbers after its transform")
        elif first.template is None or second.template is None:
            cut.refuse(f"the rest of the sample: {first.whys.get(-1) or second.whys[-1]}")
        elif first.template != second.template:
            cut.refuse("the rest of the sample differs when it is made again")

    def _replayed(self, cut: CheckedCut, first: _EncodedSample, second: _EncodedSample) -> bool:
        """Return whether the second sample can be made from the first value at the cut."""
        value, template = first.values[cut.number], first.template
        if value is None or template is None or second.sample is None:
            return True  # it has objects that cannot be compared
        self._sources.seed(_SECOND)
        operations = self._path.operations()[cut.number :]
        try:
            return encoded(made_from(operations, value, template)) == second.sample
        except Exception as error:  # of the program's operations
            cut.refuse(f"what follows it raised {describe(error)}")
            return True

    def compare_states(self, before: Sequence[str], after: Sequence[str]) -> None:
        """Refuse cuts after an operation that changed or has no hash."""
        for cut in self.cuts:
            if before[0] != after[0]:
                cut.refuse("the data set's state changes when a sample is made")
            for number, name in enumerate(self._path.names()[: cut.number], 1):
                if not before[number]:
                    cut.refuse(f"{name} has no hash by which cached samples could be known")
                elif before[number] != after[number]:
                    cut.refuse(f"the state of {name} changes when a sample is made")


def made_from(operations: Sequence[Callable[[Any], Any]], value: bytes, template: bytes) -> Any:
    """Make a sample from the value at a cut, as a later epoch does."""
    result = decode(memoryview(value))
    for operation in operations:
        result = operation(result)
    return filled(decode(memoryview(template)), result)
