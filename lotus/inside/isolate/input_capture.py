"""Captures the real inputs of each operation, for isolation.py, by fetching samples like a worker.

Inputs are copied before the call. An operation whose inputs cannot be copied is not isolated.
"""

from __future__ import annotations

import copy
import functools
import io
import itertools
import operator
import sys
import threading

from ..cache import opened_files
from ..common.guard import hook
from ..trace.transforms.transform_finder import Finder
from . import side_effects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

LOADER, COLLATE = "Loader", "collate"
_OFF, _TAKE, _REPLAY = range(3)
_LONGEST = 300  # characters of an error


class InputCopyError(Exception):
    """An input cannot be copied."""


def fresh(thing: Any) -> Any:
    """Return a copy of an input that shares nothing that an operation may change.

    An image that Pillow has not decoded yet is opened again, because decoding it is part of the
    operation. Raises InputCopyError.
    """
    memo: dict[int, Any] = {}
    try:
        for image in _undecoded(thing):
            memo[id(image)] = _open_anew(image)
        return copy.deepcopy(thing, memo)
    except Exception as error:
        raise InputCopyError(f"its input cannot be copied: {describe(error)}") from error


def _undecoded(thing: Any, depth: int = 4) -> Iterator[Any]:
    kind = type(thing)
    if str(kind.__module__).startswith("PIL.") and getattr(thing, "tile", None):
        yield thing
    elif depth and kind in (tuple, list):
        for item in thing:
            yield from _undecoded(item, depth - 1)
    elif depth and kind is dict:
        yield from _undecoded(list(thing.values()), depth - 1)


def _open_anew(image: Any) -> Any:
    opened = image.fp
    path = image.filename or getattr(opened, "name", "")
    if isinstance(opened, io.BytesIO):
        again: Any = io.BytesIO(opened.getvalue())
    elif path and not isinstance(path, int):
        again = path
    else:
        raise ValueError("an image that is not decoded yet, from an unknown file")
    return sys.modules["PIL.Image"].open(again)


def describe(error: BaseException) -> str:
    """Return one line about an error of the program, whose `__str__` may fail."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    return " ".join(text.split())[:_LONGEST]


class Call:
    """A call of an operation with its captured input; it represents `count` calls."""

    def __init__(self, function: Callable[..., Any], arguments: Any, count: int = 1) -> None:
        self.function = function
        self.arguments = arguments  # (args, kwargs)
        self.count = count

    def prepare(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        args, kwargs = fresh(self.arguments)
        return self.function, args, kwargs


class Catcher:
    """Replaces the recorder in `Finder`: captures inputs of operations instead of their times."""

    def __init__(self, samples: int, say: Callable[[Mapping[str, object]], None]) -> None:
        self.samples = samples
        self.say = say
        # Of which only `operation`, `define` and `name_function` are used.
        self.timers = self.definitions = self
        self.mode = _OFF
        self.names: list[str] = []  # the number of an operation is its index here plus one
        self.calls: dict[str, list[Call]] = {}
        self.failed: dict[str, str] = {}  # by operation: why it cannot be isolated
        self.loads: set[str] = set()  # operations that read a sample
        self.called: dict[str, int] = {}  # number of calls in `sampled` samples
        self.sampled = 0
        self.batch = 1  # samples in a batch
        self._called_now: list[str] = []
        self.missed: set[str] = set()
        self.answers: dict[int, list[Any]] = {}  # results for the current sample, by operation
        self.effects: dict[str, str] = {}  # by operation: what it does besides its result
        self.opened: list[list[str]] = []  # files that were opened for each sample
        self.unanswered = ""
        self._error: BaseException | None = None
        self._here = threading.local()

    def define(self, name: str, parent: int = 0, index: int = 0, kind: str = "transform") -> int:
        if kind == "loader":
            self.loads.add(name)
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name) + 1

    def name_function(self, number: int, function: str) -> None:
        """The recorder keeps it for reports; nothing is reported here."""

    def event(self, event: Mapping[str, object]) -> None:
        self.say(event)

    def finish(self) -> None:
        pass

    def operation(self, original: Callable[..., Any], number: int) -> Callable[..., Any]:
        def __call__(self_: object, /, *args: Any, **kwargs: Any) -> Any:
            if self.mode == _OFF:
                return original(*args, **kwargs)
            if self.mode == _TAKE:
                return self._take(original, number, args, kwargs)
            return self._replay(original, number, args, kwargs)

        return hook(__call__)

    def time_calls(self, stand_in: object, original: Any, number: int) -> None:
        """Do nothing: `__call__` sees all calls."""

    def _take(
        self,
        original: Callable[..., Any],
        number: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        name = self.names[number - 1]
        self._called_now.append(name)
        call = self._keep(name, original, args, kwargs)
        depth = getattr(self._here, "depth", 0)
        self._here.depth = depth + 1
        side_effects.begin()
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            if call is not None:
                self.calls[name].remove(call)
            self._blame(name, error)
            raise
        finally:
            self._here.depth = depth
            self._note_effects(name, depth)
        if depth == 0 and not self.unanswered:
            try:
                self.answers.setdefault(number, []).append(fresh(result))
            except InputCopyError as error:
                self.unanswered = f"what {name} returns: {error}"
        return result

    def _note_effects(self, name: str, depth: int) -> None:
        seen = side_effects.end()
        if seen:
            self.effects.setdefault(name, seen[0])
        if depth:
            side_effects.pass_on(seen)

    def _keep(
        self, name: str, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Call | None:
        calls = self.calls.setdefault(name, [])
        if len(calls) >= self.samples:
            return None
        try:
            call = Call(original, fresh((args, kwargs)))
        except InputCopyError as error:
            self.failed.setdefault(name, str(error))
            return None
        calls.append(call)
        return call

    def _blame(self, name: str, error: BaseException) -> None:
        """Note that an operation failed: the innermost one that an exception has left."""
        if self._error is not error:
            self._error = error
            self.say({"event": "raised", "operation": name, "error": describe(error)})
            self.failed.setdefault(name, f"it raised {describe(error)}")

    def _replay(
        self,
        original: Callable[..., Any],
        number: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        answers = self.answers.get(number)
        if answers:
            return answers.pop()
        self.missed.add(self.names[number - 1])
        return original(*args, **kwargs)

    # -- the data set ----------------------------------------------------------------------

    def sample(self, fetch: Callable[..., Any], *args: Any, count: int = 1) -> tuple[bool, Any]:
        """Fetch a sample and capture the inputs of its operations; return (success, sample)."""
        self.mode, self.answers, self.unanswered, self._called_now = _TAKE, {}, "", []
        side_effects.begin()
        opened_files.start()
        try:
            data = fetch(*args)
        except Exception as error:
            self._blame(LOADER, error)
            return False, None
        finally:
            self.mode = _OFF
            files, _ = opened_files.stop()
            if count == 1:
                self.opened.append(files)
            self._note_effects(LOADER, 0)
        self.sampled += count
        for name in self._called_now:
            self.called[name] = self.called.get(name, 0) + 1
        if self.unanswered:
            self.failed.setdefault(LOADER, self.unanswered)
        else:
            answers = {number: values[::-1] for number, values in self.answers.items()}
            arguments: Any = ((args, answers), {})
            self.calls.setdefault("", []).append(
                Call(functools.partial(self._replayed, fetch), arguments, count)
            )
        return True, data

    def _replayed(self, fetch: Callable[..., Any], args: Any, answers: dict[int, Any]) -> Any:
        """Run the data set's own code; operations only return their earlier results."""
        self.answers, self.mode = answers, _REPLAY
        try:
            return fetch(*args)
        finally:
            self.mode = _OFF

    def collated(self, collate: Callable[..., Any], data: Any, size: int) -> None:
        """Capture the input of `collate`: a batch of `size` samples."""
        self.batch = max(size, self.batch)
        if len(self.calls.setdefault(COLLATE, [])) < self.samples and COLLATE not in self.failed:
            try:
                self.calls[COLLATE].append(Call(collate, fresh(((data,), {}))))
            except InputCopyError as error:
                self.failed[COLLATE] = str(error)

    def in_order(self) -> list[str]:
        """Return the operations that were captured, as the latest sample called them."""
        names = dict.fromkeys((*self._called_now, *self.names))
        return [name for name in names if self.calls.get(name)]

    def calls_a_sample(self) -> dict[str, float]:
        """Return the average number of calls of each operation per sample."""
        averages = {name: count / max(1, self.sampled) for name, count in self.called.items()}
        return {LOADER: 1.0, **averages, COLLATE: 1 / self.batch}

    def take(self, loader: Any) -> None:
        """Fetch at least `samples` samples and a batch of a loader, like its workers."""
        dataset = loader.dataset
        Finder(self, {}).data_set(dataset)  # type: ignore[arg-type]
        if loader._dataset_kind == 1:
            self._take_stream(loader, dataset)
        else:
            self._take_items(loader, dataset)
        own = self.calls.pop("", [])
        for name, what in self.effects.items():
            if self.calls.pop(name, None):
                self.failed[name] = f"{what}, so it is not run again"
        if LOADER in self.effects and LOADER not in self.names:
            own = []
            self.failed[LOADER] = f"{self.effects[LOADER]}, so it is not run again"
        if not any(self.calls.get(name) for name in self.loads):
            self.calls[LOADER] = own
            if not own:
                self.failed.setdefault(LOADER, "no sample came")
        if not self.calls.get(COLLATE):
            self.failed.setdefault(COLLATE, "no batch came")
        for name in self.names:
            if not self.calls.get(name):
                self.failed.setdefault(name, f"it was not called in {self.samples} samples")

    def _take_items(self, loader: Any, dataset: Any) -> None:
        get_item = functools.partial(operator.getitem, dataset)
        many = loader._auto_collation and getattr(dataset, "__getitems__", None)
        taken = lost = 0
        for index in loader._index_sampler:
            batch: Any = []
            if many or not loader._auto_collation:
                size = len(index) if many else 1
                came, batch = self.sample(many or get_item, index, count=size)
                taken, lost = taken + came * size, lost + (not came)
            else:
                for item in index:
                    # After `samples` samples, only fill the batch.
                    came, data = (
                        self.sample(get_item, item)
                        if taken < self.samples
                        else _plain(get_item, item)
                    )
                    taken, lost = taken + came, lost + (not came)
                    if came:
                        batch.append(data)
                    elif lost >= self.samples:
                        break
                came = bool(batch)
            if came:
                batch_size = len(batch) if loader._auto_collation and not many else size
                self.collated(loader.collate_fn, batch, batch_size)
            if taken >= self.samples or lost >= self.samples:
                break

    def _take_stream(self, loader: Any, dataset: Any) -> None:
        came, data = self.sample(_first, dataset, self.samples, count=self.samples)
        if self.calls.get(""):
            # The data set is not copied, and it may have fewer samples.
            call = self.calls[""][0]
            answers = call.arguments[0][1]
            count = max(1, len(data))
            fetch = functools.partial(_first, dataset, count)
            call.function = functools.partial(self._replayed, fetch)
            call.arguments, call.count = (((), answers), {}), count
        self.sampled = len(data or ())
        if not came or not data:
            if came:
                self.failed.setdefault(LOADER, "it gives no sample")
                self.calls.pop("", None)
            return
        if not loader._auto_collation:
            for item in data:
                self.collated(loader.collate_fn, item, 1)
            return
        size = loader.batch_size or len(data)
        if len(data) < size:
            came, exhausted = _plain(_first, dataset, size)
            data = exhausted if came else data
        for start in range(0, len(data), size):
            self.collated(loader.collate_fn, data[start : start + size], size)


def _plain(function: Callable[..., Any], *args: Any) -> tuple[bool, Any]:
    try:
        return True, function(*args)
    except Exception:
        return False, None


def _first(dataset: Iterable[Any], count: int) -> list[Any]:
    return list(itertools.islice(iter(dataset), count))
