"""Hashes of transforms, by which libraries find what they cached, are those of the originals."""

import io
import pickle
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from lotus.inside.trace import cache_keys
from lotus.inside.trace.operation_stand_ins import stand_in


def double(value: int) -> int:
    return 2 * value


class Compose:
    def __init__(self, *transforms: Any) -> None:
        self.transforms = list(transforms)


class Recorder:
    on = True

    def __init__(self, iterations: int = 0) -> None:
        self.iterations = iterations
        self.events: list[Any] = []
        self.timers = SimpleNamespace(
            operation=lambda original, number: original, time_calls=lambda *args: None
        )

    def event(self, event: Any) -> None:
        self.events.append(event)

    def fault(self, error: BaseException) -> None:
        raise error


def timed() -> Any:
    recorder: Any = Recorder()
    return stand_in(double, 1, recorder)


def bytes_of(thing: Any) -> bytes:
    pickler: Any = pickle._Pickler
    hooked = type("Pickler", (pickler,), {"save": cache_keys.save(pickler.save)})
    file = io.BytesIO()
    hooked(file).dump(thing)
    return file.getvalue()


def test_a_stand_in_is_pickled_as_its_original() -> None:
    plain = Compose(double, double)
    made = timed()
    assert bytes_of(Compose(made, made)) == bytes_of(plain)
    assert bytes_of([made, double]) == bytes_of([double, double])


def test_a_timed_module_is_pickled_without_what_times_it() -> None:
    plain, module = Compose(double), Compose(double)
    module.__dict__["forward"] = timed()
    assert bytes_of(module) == bytes_of(plain)
    # and a forward of the program's own stays
    plain.__dict__["forward"] = double
    assert bytes_of(plain) != bytes_of(module)


@pytest.mark.parametrize("iterations", [0, 1])
def test_stand_ins_are_given_back_before_transforms_are_hashed(iterations: int) -> None:
    recorder: Any = Recorder(iterations)
    compose = Compose(timed())
    stand_ins: Any = {(id(compose), "transforms"): weakref.ref(compose)}
    hashed = cache_keys.set_transform_hash(lambda owner: owner.transforms[0], recorder, stand_ins)
    assert hashed(compose) is double
    assert stand_ins == {}
    # What is lost of an epoch that runs is named.
    assert len(recorder.events) == iterations
