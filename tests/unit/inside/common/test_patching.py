"""Several features that listen on one method: in one order, each taken off by itself."""

import gc
import inspect
import itertools
import sys
import traceback
import weakref
from typing import Any

import pytest

from lotus.inside.common.guard import HOOK_FILE, hook
from lotus.inside.common.patching import ORDER, hide, listen, listen_to
from lotus.inside.trace.tracer import Tracer
from lotus.inside.trace.transforms.transform_finder import wrap_named
from tests.unit.called_functions import called


class Loader:
    """Stands for a class of torch."""

    def __init__(self, size: int, *, workers: int = 0) -> None:
        self.lines = [f"{size} {workers}"]

    def read(self, number: int) -> list[str]:
        """Its own document."""
        return [*self.lines, f"read {number}"]

    @staticmethod
    def whole(number: int) -> list[str]:
        return [f"whole {number}"]


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> type:
    """A class of which nothing is replaced yet."""
    return type("Loader", (Loader,), {name: vars(Loader)[name] for name in ("read", "whole")})


def around(name: str) -> Any:
    def make(call: Any) -> Any:
        return lambda *args, **kwargs: [name, *call(*args, **kwargs)]

    return make


@pytest.mark.parametrize("begins", list(itertools.permutations(ORDER[:3])))
def test_the_order_is_that_of_the_features_whichever_listens_first(
    loader: Any, begins: Any
) -> None:
    before = vars(loader)["read"]
    ends = {name: listen(loader, "read", name, around(name)) for name in begins}
    assert loader(4).read(2) == [*ORDER[:3], "4 0", "read 2"]
    # AND each is taken off by itself, in any order
    left = list(ORDER[:3])
    for name in begins:
        ends[name]()
        left.remove(name)
        assert loader(4).read(2) == [*left, "4 0", "read 2"]
    assert vars(loader)["read"] is before
    ends[begins[0]]()  # twice is once
    assert vars(loader)["read"] is before


def test_a_feature_listens_once_with_what_it_said_last(loader: Any) -> None:
    first = listen(loader, "read", "mode", around("first"))
    second = listen(loader, "read", "mode", around("second"))
    first()
    assert loader(4).read(1) == ["second", "4 0", "read 1"]
    second()
    assert loader(4).read(1) == ["4 0", "read 1"]


def test_what_the_program_put_over_ours_stays_and_works(loader: Any) -> None:
    end = listen(loader, "read", "mode", around("mode"))
    below = loader.read
    loader.read = lambda self, number: ["program", *below(self, number)]
    theirs = loader.read
    # WHEN another feature comes, it listens above that
    ends = [end, listen(loader, "read", "settings", around("settings"))]
    assert loader(4).read(1) == ["settings", "program", "mode", "4 0", "read 1"]
    # AND all go
    for end in ends:
        end()
    # THEN the program's function is left, and what it holds on to
    assert loader.read is theirs
    assert loader(4).read(1) == ["program", "mode", "4 0", "read 1"]
    # AND where the program takes its own off again, the next to leave leaves torch's own
    loader.read = below
    listen(loader, "read", "settings", around("settings"))()
    assert loader(4).read(1) == ["mode", "4 0", "read 1"]


def test_what_stands_for_a_method_looks_like_it(loader: Any) -> None:
    loader.__init__ = Loader.__init__
    for name in ("__init__", "read", "whole"):
        listen(loader, name, "settings", around(name) if name != "__init__" else lambda call: call)
    assert str(inspect.signature(loader.__init__)) == str(inspect.signature(Loader.__init__))
    assert (loader.read.__name__, loader.read.__doc__) == ("read", "Its own document.")
    assert loader.whole(3) == loader(1).whole(3) == ["whole", "whole 3"]
    assert isinstance(vars(loader)["whole"], staticmethod)
    with pytest.raises(KeyError):
        listen(loader, "said", "mode", around("mode"))


def hides(call: Any) -> Any:
    def read(*args: Any) -> Any:
        try:
            return call(*args)
        except BaseException as error:
            hide(error)
            raise

    return hook(read)


def test_errors_come_through_as_they_are(loader: Any) -> None:
    for feature in ("mode", "balance", "settings"):
        listen(loader, "read", feature, hides)
    before = sys.excepthook
    try:
        with pytest.raises(TypeError, match="missing 1 required positional") as raised:
            loader(1).read()
        # THEN of our frames only the outermost is left, until the program ends by it
        files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(raised.tb)]
        assert sum(name == HOOK_FILE for name in files) == 1
        assert sys.excepthook is not before
    finally:
        sys.excepthook = before


def test_features_listen_together_on_one_object_and_keep_it_not_alive(loader: Any) -> None:
    first, other = loader(4), loader(5)
    listen_to(first, "read", "balance", around("balance"))
    listen_to(first, "read", "mode", around("mode"))
    end = listen(loader, "read", "settings", around("settings"))
    assert first.read(1) == ["mode", "balance", "settings", "4 0", "read 1"]
    assert other.read(1) == ["settings", "5 0", "read 1"]
    end()
    # AND below what the program has put on it, and on what it had put there before
    below = first.read
    first.read = lambda number: ["program", *below(number)]
    vars(first.read).update(vars(below))  # as functools.wraps does
    listen_to(first, "read", "mode", around("again"))
    assert first.read(1) == ["again", "program", "mode", "balance", "4 0", "read 1"]
    gc.disable()
    try:
        reference = weakref.ref(first)
        del first
        assert reference() is None
    finally:
        gc.enable()


def quick(call: Any) -> Any:
    def quick(*args: Any) -> Any:
        return call(*args)

    return quick


def test_a_listener_costs_one_call(loader: Any) -> None:
    thing = loader(4)
    assert called(thing.read, 1) == ["read"]
    # WHEN one feature listens, its function is the method, and two are one in the other
    end = listen(loader, "read", "trace", quick)
    assert called(thing.read, 1) == ["quick", "read"]
    end_mode = listen(loader, "read", "mode", quick)
    assert called(thing.read, 1) == ["quick", "quick", "read"]
    # AND one that has left costs nothing
    end_mode()
    assert called(thing.read, 1) == ["quick", "read"]
    end()
    assert called(thing.read, 1) == ["read"]
    # AND on one object there is the call that finds the method of its class
    listen_to(thing, "read", "mode", quick)
    assert called(thing.read, 1) == ["quick", "method", "read"]


def test_what_is_inherited_is_left_to_be_inherited(loader: Any) -> None:
    other = type("Other", (loader,), {})
    with pytest.raises(KeyError):
        listen(other, "read", "trace", around("trace"))
    ends = [
        listen(other, name, "trace", around("trace"), inherited=True) for name in ("read", "whole")
    ]
    assert other(4).read(1) == ["trace", "4 0", "read 1"]
    assert other.whole(1) == other(4).whole(1) == ["trace", "whole 1"]
    assert loader(4).read(1) == ["4 0", "read 1"]
    for end in ends:
        end()
    assert not {"read", "whole"} & set(vars(other))


def test_named_operations_are_outermost_and_each_is_timed_once(loader: Any) -> None:
    class Recorder:
        class timers:
            @staticmethod
            def operation(function: Any, number: int) -> Any:
                return lambda _, *args: [f"operation {number}", *function(*args)]

    recorder: Any = Recorder
    ends = [wrap_named(loader, "read", number, recorder) for number in (1, 2, 2)]
    ends.append(listen(loader, "read", "trace", around("trace")))
    assert sorted(loader(4).read(1)[:2]) == ["operation 1", "operation 2"]
    assert loader(4).read(1)[2:] == ["trace", "4 0", "read 1"]
    assert loader.read.__name__ == "read"
    for end in ends:
        end()
    assert loader(4).read(1) == ["4 0", "read 1"]
    for name, why in (("Loader", "is a class"), ("number", "is not callable")):
        module = type("module", (), {"Loader": Loader, "number": 3})
        with pytest.raises(TypeError, match=why):
            wrap_named(module, name, 1, recorder)
        assert vars(module)[name] in (Loader, 3)


def test_a_trace_listens_over_what_acts_whichever_came_first(loader: Any) -> None:
    before = vars(loader)["read"]
    tracer = Tracer({})
    tracer.listen(loader, "read", around("gradients"), "gradients")
    tracer.listen(loader, "read", around("trace"))
    end = listen(loader, "read", "balance", around("balance"))
    assert loader(4).read(1) == ["trace", "balance", "gradients", "4 0", "read 1"]
    # WHEN the trace is over, as in `with lotus.trace(...)`, shares still are
    tracer.uninstall()
    assert loader(4).read(1) == ["balance", "4 0", "read 1"]
    end()
    assert vars(loader)["read"] is before
