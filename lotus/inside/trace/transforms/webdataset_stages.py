"""Times the stages of WebDataset's pipelines: each is an iterator over the samples of another.

A stage that calls a function per sample gets stand-ins for its functions. The work of any other
stage on a sample lasts from when its source returns a sample until the stage returns one; for a
stage that reads, such as that of tar files, it begins with the stage's own `next`.
"""

from __future__ import annotations

from ...common.guard import hook
from ...common.object_attributes import attributes, original_of
from ..operation_stand_ins import is_stand_in, label, numbered, stand_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Protocol

    from ..recorder import Recorder

    class Placing(Protocol):
        """The parts of a Finder that stages need: places stand-ins, and examines functions."""

        recorder: Recorder

        def enter(self, thing: object, depth: int) -> bool: ...
        def set_attribute(self, owner: object, name: str, value: object) -> None: ...
        def give_back_later(self, owner: object, name: str) -> None: ...
        def inside(self, plain: object, made: object, path: str, depth: int) -> None: ...


# Stages that call functions: the prefix of the functions' names.
_CALLING = {
    "map": "", "select": "", "associate": "", "map_dict": "map_dict:", "map_tuple": "map_tuple:",
}  # fmt: skip
# Stages that pass on samples or names of shards.
_UNTIMED = frozenset("shuffle slice islice info log_keys rsample group_by_keys".split())
_UNTIMED_MODULES = ("webdataset.shardlists", "webdataset.compat")


def instrument(finder: Placing, owner: object, stages: list[Any], depth: int) -> None:
    """Time the work of the stages of a pipeline on each sample."""
    slots = [
        (place, key, thing, text)
        for place, stage in enumerate(stages)
        for key, thing, text in _operations(original_of(stage))
    ]
    names = numbered([text for _, _, _, text in slots])
    for index, ((place, key, thing, _), name) in enumerate(zip(slots, names, strict=True)):
        if is_stand_in(thing) or is_stand_in(stages[place]):
            continue
        recorder = finder.recorder
        if key is None and not hasattr(recorder.timers, "span"):
            continue  # inputs of calls are captured, and it is no call
        number = recorder.definitions.define(name, 0, index)
        if key is not None:
            replacement = stand_in(thing, number, recorder)
            _set_argument(finder, stages[place], key, replacement)
        else:
            call = _timed(thing, number, recorder, gathers=_curried(thing) == "batched")
            stages[place] = replacement = stand_in(thing, number, recorder, call=call)
            finder.give_back_later(owner, "pipeline")
        finder.inside(thing, replacement, name, depth)


def _operations(stage: Any) -> Iterator[tuple[int | str | None, Any, str]]:
    """Yield (key of its argument, function, name) of a stage's functions, or the stage with key
    None.
    """
    kind = type(stage)
    if hasattr(kind, "run") or hasattr(kind, "__iter__") or not callable(stage):
        return  # it is given its source in another way, or is one
    name = _curried(stage)
    if name in _CALLING:
        own = attributes(stage)
        for key, value in (*enumerate(own["args"]), *own["kw"].items()):
            if callable(value) and key != "handler":
                yield key, value, _CALLING[name] + _name(value)
    elif name not in _UNTIMED and _module(stage) not in _UNTIMED_MODULES:
        yield None, stage, name or label(stage)


def _curried(stage: Any) -> str:
    """Return the name of a stage of the library, such as "map"; "" for the program's own."""
    own = attributes(stage)
    if type(stage).__name__ != "FilterFunction" or "f" not in own:
        return ""
    return str(getattr(own["f"], "__name__", "")).lstrip("_")


def _name(function: Any) -> str:
    function = original_of(function)
    return "decode" if _module(function) == "webdataset.autodecode" else label(function)


def _module(thing: Any) -> str:
    return str(getattr(thing, "__module__", ""))


def _set_argument(finder: Placing, stage: Any, key: int | str, made: Any) -> None:
    own = attributes(stage)
    if isinstance(key, str):
        finder.set_attribute(stage, "kw", {**own["kw"], key: made})
    else:
        args = own["args"]
        finder.set_attribute(stage, "args", (*args[:key], made, *args[key + 1 :]))


def _timed(stage: Any, number: int, recorder: Recorder, gathers: bool) -> Callable[..., Any]:
    """Return a function (self, source) that returns the timed iterator of a stage."""

    def __call__(self: object, /, *args: Any, **kwargs: Any) -> Any:
        interval = _StageInterval(number, recorder)
        if args and hasattr(type(args[0]), "__next__"):
            args = (_StageSource(args[0], interval, gathers), *args[1:])
        samples = stage(*args, **kwargs)
        return _StageOutput(samples, interval) if hasattr(type(samples), "__next__") else samples

    return hook(__call__)


class _StageInterval:
    """The work on one sample, from `begin` to `end`; `taken`: its source returned a sample."""

    __slots__ = ("_close", "_gate", "_number", "_span", "taken")

    def __init__(self, number: int, recorder: Recorder) -> None:
        self._number, self._gate, self._span = number, recorder.gate, recorder.timers.span
        self._close: Callable[[], None] | None = None
        self.taken = False

    def begin(self) -> None:
        self._close = None if self._gate.shut else self._span(self._number)

    def end(self) -> None:
        close, self._close = self._close, None
        if close is not None:
            close()


class _StageIterator:
    """Base of both iterators; they share an interval, without a reference cycle."""

    __slots__ = ("_interval", "_items")

    def __init__(self, items: Any, interval: _StageInterval) -> None:
        self._items, self._interval = items, interval

    def __getattr__(self, name: str) -> Any:
        return getattr(self._items, name)  # such as `close` of a generator

    def __iter__(self) -> Any:
        return self


class _StageSource(_StageIterator):
    """The source of a stage."""

    __slots__ = ("_gathers",)

    def __init__(self, items: Any, interval: _StageInterval, gathers: bool) -> None:
        super().__init__(items, interval)
        self._gathers = gathers

    def __next__(self) -> Any:
        interval = self._interval
        if interval.taken and not self._gathers:
            interval.end()  # the stage dropped the sample that it had
        interval.taken = False
        try:
            sample = next(self._items)
        except StopIteration:
            interval.begin()  # it may hand over what it gathered
            raise
        interval.begin()
        interval.taken = True
        return sample


class _StageOutput(_StageIterator):
    """The output of a stage."""

    __slots__ = ()

    def __next__(self) -> Any:
        interval = self._interval
        interval.taken = False
        interval.begin()
        sample = next(self._items)
        interval.end()
        return sample


for _method in (_StageSource.__next__, _StageOutput.__next__, _StageIterator.__getattr__):
    hook(_method)
