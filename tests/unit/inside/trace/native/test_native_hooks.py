"""The hooks in C do what those in Python do: same results, errors and records."""

import copy
import gc
import inspect
import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lotus.inside.trace.native import native_hooks
from lotus.inside.trace.native.native_hooks import PYTHON
from lotus.inside.trace.operation_stand_ins import stand_in
from lotus.inside.trace.recorder import Recorder
from tests.unit.fetches import Add, Compose, Fetcher, Fetches

BOTH = pytest.mark.parametrize("hooks", [PYTHON, "c"])
ROOT = Path(__file__).resolve().parents[5]


class Odd(Exception):
    """What a transform of the program raises."""


class Picky:
    """A transform with arguments of all kinds, which counts what it was given."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def __call__(self, value: int, *more: int, by: int = 1, **rest: int) -> int:
        self.given.append((value, more, by, rest))
        return value * by + sum(more) + sum(rest.values())


class Failing:
    def __call__(self, value: int) -> int:
        if value % 5 == 0:
            raise Odd(value)
        return value


class Generator:
    def __call__(self, value: int) -> Iterator[int]:
        yield value
        yield value + 1


class Data:
    """Samples by nested operations, keyword arguments, generators, and errors that are caught."""

    def __init__(self) -> None:
        self.picky, self.failing = Picky(), Failing()
        self.transform = Compose([Add(1), Compose([Add(2), self.failing]), Generator()])
        self.target_transform = self.picky
        self.loader = len

    def __getitem__(self, index: int) -> Any:
        try:
            value = list(self.transform(index))
        except Odd as error:
            value = [str(error)]
        target: Any = self.target_transform
        return value, target(index), target(index, 2, 3, by=4, other=5), self.loader("four")

    def __len__(self) -> int:
        return 100


class Many(Data):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class ManyFetcher(Fetcher):
    def fetch(self, indices: Any) -> Any:
        return self.collate_fn(self.dataset.__getitems__(indices))


def recorded(path: Path, hooks: str) -> tuple[list[Any], dict[str, Any]]:
    """(batches, all of the record that does not tell times) of three loaders."""
    fetches = Fetches(path, hooks=hooks, every="3")
    batches: list[Any] = []
    data = Data()
    kinds = ((data, Fetcher), (Many(), ManyFetcher), (data, Fetcher))
    for loader, (dataset, fetcher) in enumerate(kinds):
        fetch = fetches.fetcher(dataset, loader=loader, fetcher=fetcher)
        for batch in range(7):
            batches.append(fetch(batch, list(range(4 * batch, 4 * batch + 4))))
            fetches.recorder.flush_batch(1)
    batches.append(data.picky.given)
    run = fetches.end()
    times = ["start_ns", "duration_ns", "end_ns", "cpu_ns", "wait_ns", "pid", "file", "host"]
    tables = {}
    for name in ("batches", "samples", "ops"):
        table = getattr(run, name)
        drop = [column for column in table if column.endswith(("_ns", "_bytes")) or column in times]
        changing = ["minor_faults", "major_faults", "voluntary_switches", "involuntary_switches"]
        table = table.drop(columns=[*drop, *(set(changing) & set(table))])
        tables[name] = table.astype(str).to_dict("list")
    tables["ends"] = (run.ops["start_ns"] <= run.ops["end_ns"]).all() if "end_ns" in run.ops else 1
    return batches, tables


def test_both_record_the_same(tmp_path: Path) -> None:
    assert recorded(tmp_path / "P", PYTHON) == recorded(tmp_path / "C", "c")


def timed(fetches: Fetches, original: Any) -> Any:
    return stand_in(original, fetches.recorder.definitions.define("it"), fetches.recorder)


@BOTH
def test_errors_and_recursion_are_those_of_the_program(tmp_path: Path, hooks: str) -> None:
    fetches = Fetches(tmp_path / "R", hooks=hooks)
    failing, picky = timed(fetches, Failing()), timed(fetches, Picky())
    with pytest.raises(Odd, match=r"^5$") as caught:
        failing(5)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    ours = [] if hooks == "c" else ["call_unary"]
    assert names == ["test_errors_and_recursion_are_those_of_the_program", *ours, "__call__"]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'value'"):
        picky()
    with pytest.raises(TypeError, match="multiple values for argument 'value'"):
        picky(1, value=2)

    def deeper(value: int) -> int:
        return int(again(value + 1))

    again = timed(fetches, deeper)
    with pytest.raises(RecursionError):
        again(0)
    assert fetches.recorder.on


def test_a_program_recurses_as_deep_as_without_it(tmp_path: Path) -> None:
    fetches = Fetches(tmp_path / "R", hooks="c")
    recorder = fetches.recorder
    recorder.gate.owner = threading.get_ident()

    def double(value: int) -> int:
        return 2 * value

    def deepest(ask: Callable[[Any], object], thing: Any) -> int:
        def down(levels: int) -> object:
            return down(levels - 1) if levels else ask(thing)

        levels = 0
        with suppress(RecursionError):
            for levels in range(sys.getrecursionlimit()):
                down(levels)
        return levels

    for ask, plain, hooked in (
        (lambda call: call(4), double, timed(fetches, double)),
        (lambda data: data["key"], {"key": 1}, recorder.timers.Samples({"key": 1})),
    ):
        assert deepest(ask, hooked) == deepest(ask, plain)
    assert recorder.on


@BOTH
def test_a_handler_that_raises_keeps_its_context(
    tmp_path: Path, hooks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler(*_: object) -> None:
        try:
            raise Odd("first")
        except Odd:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(Recorder, "add_loose", handler)
    fails = timed(Fetches(tmp_path / "R", hooks=hooks), int)
    with pytest.raises(KeyboardInterrupt) as caught:
        fails("x")
    chain, error = [], caught.value.__context__
    while error is not None:
        chain.append(type(error))
        error = error.__context__
    assert chain == [Odd, ValueError]


@BOTH
def test_a_stand_in_is_as_its_original(tmp_path: Path, hooks: str) -> None:
    fetches = Fetches(tmp_path / "R", hooks=hooks)
    add = timed(fetches, Add(2))
    assert isinstance(add, Add)
    assert callable(add)
    assert (add(1), add.__call__(1), add.number) == (3, 3, 2)
    assert str(inspect.signature(add)).startswith("(value")
    assert type(pickle.loads(pickle.dumps(add))) is type(copy.deepcopy(add)) is Add
    assert type(copy.copy(add)) is Add
    assert len(fetches.recorder.loose) == 2


@BOTH
def test_a_finalizer_of_the_program_calls_a_stand_in_of_its_cycle(
    tmp_path: Path, hooks: str
) -> None:
    results: list[Any] = []

    class Owner:
        transform: Any

        def __del__(self) -> None:
            results.append(self.transform(3))

    class Owned(Add):
        owner: Owner

    owned = Owned(2)
    add = timed(Fetches(tmp_path / "R", hooks=hooks), owned)  # older, so that it ends first
    owned.owner = Owner()
    owned.owner.transform = add
    del owned, add
    gc.collect()
    assert results == [5]


@BOTH
def test_threads_have_their_own_operations(tmp_path: Path, hooks: str) -> None:
    fetches = Fetches(tmp_path / "R", hooks=hooks)
    add, before = timed(fetches, Add(1)), sys.getswitchinterval()
    total, sums = 2000, []

    class Helped:
        """A data set whose samples are made by the fetching thread and by another one."""

        def __getitem__(self, index: int) -> int:
            return int(add(index))

    def work() -> None:
        sums.append(sum(add(value) for value in range(total)))

    fetch = fetches.fetcher(Helped(), loader=0)
    threads = [threading.Thread(target=work) for _ in range(3)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        batch = fetch(0, list(range(total)))
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    fetches.recorder.flush_batch(1)
    assert batch == tuple(range(1, total + 1))
    assert sums == [total * (total + 1) // 2] * 3
    run = fetches.end()
    assert not len(run.lost)
    by_thread = run.ops.groupby("tid").size()
    assert by_thread[os.getpid()] == total
    assert by_thread.sum() == 4 * total


@BOTH
def test_an_operation_that_forks(tmp_path: Path, hooks: str) -> None:
    fetches = Fetches(tmp_path / "R", hooks=hooks)
    ended: list[int] = []

    class Forking:
        def __call__(self, value: int) -> int:
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    fetches.recorder.after_fork()
                    code = 7 if add(1) == 3 else 2
                finally:
                    os._exit(code)
            ended.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            return value

    class Numbers:
        def __init__(self) -> None:
            self.transform = Compose([Forking(), Add(1)])

        def __getitem__(self, index: int) -> Any:
            return self.transform(index)

    add = timed(fetches, Add(2))
    assert fetches.fetcher(Numbers(), loader=0)(0, [1, 2]) == (2, 3)
    fetches.recorder.flush_batch(1)
    assert ended == [7, 7]
    run = fetches.end()
    assert run.ops["operation"].tolist()[-4:] == ["Forking", "Add"] * 2


def test_a_stream_that_ends_and_what_is_no_iterator(tmp_path: Path) -> None:
    ends = {}
    for hooks in (PYTHON, "c"):
        fetches = Fetches(tmp_path / hooks, hooks=hooks)
        timers = fetches.recorder.timers
        fetches.recorder.gate.owner = threading.get_ident()
        iterator = timers.Iterator(iter([1, 2]))
        seen: list[Any] = list(iterator)
        for wrong in (timers.Iterator([1]), timers.Samples(3), timers.Items([1])):
            for use in (next, lambda it: it[0], lambda it: it.__getitems__([0])):
                try:
                    use(wrong)  # type: ignore[operator]
                except (TypeError, AttributeError, StopIteration) as error:
                    seen.append(type(error))
        rows = fetches.recorder.samples
        ends[hooks] = seen, len(rows)
    assert ends["c"] == ends[PYTHON]


def counts(function: Callable[[], object]) -> int:
    """How many blocks of memory are in use after it; rather, how many more than before."""
    gc.collect()
    before = sys.getallocatedblocks()
    function()
    gc.collect()
    return sys.getallocatedblocks() - before


def test_a_million_calls_leak_nothing(tmp_path: Path) -> None:
    fetches = Fetches(tmp_path / "R", hooks="c")
    recorder = fetches.recorder
    data = Data()
    fetch = fetches.fetcher(data, loader=0)
    fails = timed(fetches, Failing())

    def work(batches: int) -> None:
        for _ in range(batches):
            fetch(0, list(range(512)))
            recorder.here.hand.pending = None
            for value in range(512):
                with suppress(Odd):
                    fails(value)
            recorder.flush_loose()
            del data.picky.given[:]

    work(3)
    first = counts(lambda: work(5))
    second = counts(lambda: work(160))  # 10 calls a sample and those that fail
    assert second <= first + 50
    stand_ins = counts(lambda: [timed(fetches, Add(1))(1) for _ in range(200)])
    more = counts(lambda: [timed(fetches, Add(1))(1) for _ in range(2000)])
    recorder.flush_loose()
    assert more - stand_ins < 200 * 10


def test_the_variable_leaves_it_alone(tmp_path: Path) -> None:
    code = "from lotus.inside.trace.native import native_hooks as hooks; print(hooks.MODULE)"
    environ = {**os.environ, native_hooks.VARIABLE: PYTHON, "PYTHONPATH": str(ROOT)}
    out = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert (out.stdout, out.stderr) == ("None\n", "")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="ctypes is refused there already")
def test_a_subinterpreter_has_the_hooks_in_python() -> None:
    if native_hooks.MODULE is None:
        pytest.skip("the hooks in C are not built for this Python")
    code = """
import sys
import _xxsubinterpreters as interpreters
show = "from lotus.inside.trace.native.native_hooks import MODULE; print(not MODULE, flush=True)"
exec(show)
made = interpreters.create()
interpreters.run_string(made, f"import sys; sys.path[:] = {sys.path!r}; {show}")
interpreters.destroy(made)
"""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    out = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert (out.stdout, out.stderr) == ("False\nTrue\n", "")


def test_one_that_does_otherwise_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    module = native_hooks.MODULE
    if module is None:
        pytest.skip("the hooks in C are not built for this Python")
    assert native_hooks._works(module)
    monkeypatch.setattr(native_hooks, "VERSION", module.VERSION + 1)
    assert native_hooks._load() is None
    monkeypatch.undo()

    def later() -> int:
        return 1 << 60

    monkeypatch.setattr(native_hooks, "clock", later)  # of another clock
    assert native_hooks._load() is None
