"""Changes a data set's transform and decoder: alternatives stand in for what they do."""

from __future__ import annotations

import copy
import operator
import sys

from ..cache.random_sources import NAMES, RandomSources, drawn, states
from ..cache.transform_place import NoTransformError, TransformPlace, paths
from ..common import alternative_files
from ..common.alternative_files import KnownOperation, in_turn
from ..common.guard import hook, of_the_program
from ..common.object_attributes import attributes, original_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any

CHECKED = 500  # of so many results that are to be equal bit for bit, the first one is compared
_LOOKED_AT = 8  # pictures
_DECODER = "loader"  # attribute of torchvision's folders of pictures
_FOLDERS = "torchvision.datasets.folder"


class TransformChangeError(Exception):
    """The reason why a data set's transform stays as it is, as a clause."""


class ExactStep:
    """Does by an alternative what operations do, and compares the results now and then.

    Where they differ, or where the alternative fails, the operations do it from then on, with the
    random numbers that they would have drawn: the alternative draws only from generators in
    `draws`.
    """

    def __init__(
        self,
        operations: Sequence[KnownOperation],
        steps: Sequence[Callable[[Any], Any]],
        differs: Callable[[], object],
        draws: Collection[str] = NAMES,
    ) -> None:
        self._before = [operation.run for operation in operations]
        self._steps, self._differs, self._draws = steps, differs, frozenset(draws)
        self._on, self._calls = True, 0

    def __call__(self, value: Any) -> Any:
        if not self._on:
            return in_turn(self._before, value)
        checked = self._calls % CHECKED == 0
        sources = RandomSources(NAMES if checked else self._draws)
        try:
            result = in_turn(self._steps, value)
        except Exception as error:
            if of_the_program(error):
                raise
            self._on = False
            sources.put_back()
            return in_turn(self._before, value)
        self._calls += 1
        if checked:
            left, unknown = states(), sources.drawn() - self._draws
            sources.put_back()  # so that both draw the same random numbers, and the program goes on
            expected = in_turn(self._before, value)
            if unknown or drawn(left) or not _are_equal(result, expected):
                self._on = False
                self._differs()
                return expected
        return result


hook(ExactStep.__call__)


def _are_equal(first: Any, second: Any) -> bool:
    torch: Any = sys.modules["torch"]
    if not isinstance(first, torch.Tensor) or type(first) is not type(second):
        return False
    alike = first.dtype == second.dtype and first.shape == second.shape
    try:
        if not alike or first.stride() != second.stride():
            return False
        as_bytes = (each.contiguous().reshape(-1).view(torch.uint8) for each in (first, second))
        return bool(torch.equal(*as_bytes))
    except RuntimeError as error:  # of a sparse tensor nothing is compared
        if of_the_program(error):
            raise
        return False


class TransformChange:
    """The alternatives in `wanted` that a data set's `Compose` and decoder allow.

    Between `put` and `restore` the data set has a `Compose` with them. Raises
    TransformChangeError where none can be put in. `note` gets a line where a result that is to be
    equal is not.
    """

    def __init__(self, dataset: Any, wanted: Sequence[str], note: Callable[[str], object]) -> None:
        self.names: list[str] = []  # of what is put in
        self.left: list[str] = []  # of what fits nowhere
        self._note = note
        place, holder = _transform_of(dataset)
        # A trace may have put stand-ins there, for a loader without alternatives.
        owner, transforms = attributes(holder), [original_of(each) for each in place.operations()]
        decoder = original_of(owner.get(_DECODER)) if _decodes_at_once(holder) else None
        has_decoder = callable(decoder)
        held = [decoder, *transforms] if has_decoder else transforms
        operations = [KnownOperation(transform) for transform in held]
        # The own operation that each begins with, and the end; None: with a part of some.
        begins: list[int | None] = list(range(len(held) + 1))
        if has_decoder:
            operations[0].inputs = _some_paths(owner)
        self._place, self._own = place, transforms
        for name in wanted:
            self._put_in(name, operations, held, begins)
        if not self.names:
            raise TransformChangeError("no alternative fits its operations")
        after: list[Any] = [operation.transform for operation in operations]
        self._attributes: list[_ChangedAttribute] = []
        if has_decoder:
            begins = [0, *(None if each is None else each - 1 for each in begins[2:])]
            stand_in = after.pop(0)
            if stand_in is not decoder:
                self._attributes.append(_ChangedAttribute(owner, _DECODER, decoder, stand_in))
        self._steps, self._begins = after, begins
        changed = copy.copy(place.transform)
        attributes(changed)["transforms"] = after
        self._attributes += [
            _ChangedAttribute(held, name, place.transform, changed) for held, name in place.owners
        ]

    def _put_in(
        self,
        name: str,
        operations: list[KnownOperation],
        own: Sequence[Any],
        begins: list[int | None],
    ) -> None:
        """Replace operations by an alternative's steps, where it has some."""
        try:
            module = alternative_files.load(name)
            found = list(module.stand_ins(operations))
            fits = found or any(module.stand_ins([KnownOperation(each) for each in own]))
        except (ImportError, AttributeError):
            found = fits = []  # a library is missing, or it is of another version
        for first, count, steps in reversed(found):
            replaced = operations[first : first + count]
            steps = [_transform_of_step(step) for step in steps]
            if module.EXACT:
                steps = [self._checked(name, replaced, steps, module.DRAWS)]
            operations[first : first + count] = [KnownOperation(step) for step in steps]
            begins[first + 1 : first + count] = [None] * (len(steps) - 1)
        if found:
            self.names.append(name)
        elif not fits:
            self.left.append(name)

    def _checked(
        self,
        name: str,
        replaced: Sequence[KnownOperation],
        steps: Sequence[Any],
        draws: Collection[str],
    ) -> ExactStep:
        def differs() -> None:
            self._note(f"{name} is left out: its result is not equal bit for bit here")

        # A report on a traced run shows the name of the type.
        kind = type(type(steps[-1]).__name__, (ExactStep,), {})
        made: ExactStep = kind(replaced, steps, differs, draws)
        return made

    def cut(self, path: Sequence[str], number: int) -> int | None:
        """Return before which of its steps the own operation `number` begins.

        None where alternatives do together what comes before and after, or where the transform at
        `path` is not the one that is changed. The number of operations stands for the end.
        """
        if list(path) != self._place.path or number not in self._begins:
            return None
        return self._begins.index(number)

    def names_of_steps(self) -> list[str]:
        """Return the names of what the changed `Compose` calls in turn."""
        return [KnownOperation(step).name for step in self._steps]

    def put(self) -> None:
        """Put the alternatives in, where the data set still has what they stand for."""
        now = [original_of(each) for each in self._place.operations()]
        if len(now) != len(self._own) or any(map(operator.is_not, now, self._own)):
            return  # the program has changed its `Compose` meanwhile
        for attribute in self._attributes:
            attribute.put()

    def restore(self) -> None:
        """Give the data set its own transform and decoder back."""
        for attribute in self._attributes:
            attribute.restore()

    def keep(self) -> None:
        """Restore, and keep the stand-ins that a trace has put in: `put` puts these in again."""
        for attribute in self._attributes:
            attribute.keep()
            attribute.restore()


class _ChangedAttribute:
    """An attribute that has its own value, and another one while samples are made."""

    def __init__(self, held: dict[str, Any], name: str, own: Any, changed: Any) -> None:
        self._held, self._name, self._own, self._changed = held, name, own, changed
        self._before = own  # its own value, or a stand-in for it

    def put(self) -> None:
        now = self._held.get(self._name)
        if original_of(now) is self._own:
            self._before, self._held[self._name] = now, self._changed

    def keep(self) -> None:
        now = self._held.get(self._name)
        if original_of(now) is self._changed:
            self._changed = now

    def restore(self) -> None:
        if self._held.get(self._name) is self._changed:
            self._held[self._name] = self._before


def _transform_of_step(step: Any) -> Any:
    """Return the transform if a step runs one of the program's own, so that traces name it."""
    operation = getattr(step, "__self__", None)
    return operation.transform if isinstance(operation, KnownOperation) else step


def _some_paths(folder: dict[str, Any]) -> list[Any]:
    """Return the paths of some pictures of torchvision's folders, from all over them."""
    samples = folder.get("samples")
    if not isinstance(samples, list):
        return []
    step = max(1, len(samples) // _LOOKED_AT)
    return [sample[0] for sample in samples[::step][:_LOOKED_AT] if isinstance(sample, tuple)]


def _decodes_at_once(holder: Any) -> bool:
    """Return True if a data set passes its decoder's result to its transform, nowhere else."""
    method = getattr(type(holder), "__getitem__", None)
    return getattr(method, "__module__", None) == _FOLDERS


def _transform_of(dataset: Any) -> tuple[TransformPlace, Any]:
    """Return the place of a data set's `Compose`, and the object that holds it."""
    for path in paths(dataset):
        try:
            place = TransformPlace(dataset, path)
        except NoTransformError:
            continue
        if place.is_container():
            owner = dataset
            for name in path[:-1]:
                owner = attributes(owner).get(name)
            return place, owner
    raise TransformChangeError("its transform is not a Compose of torchvision")
