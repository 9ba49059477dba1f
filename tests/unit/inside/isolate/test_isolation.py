"""The inside of the isolation on loaders that are no torch's, and what is read of it outside."""

import io
import json
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lotus.common.errors import LotusError
from lotus.inside.isolate import input_capture, isolation, op_bench
from lotus.mapping import isolated_samples

times = st.integers(1, 10**10)


@given(times, times, st.integers(1, 10**5), st.integers(1, 50), st.integers(0, 10**9), times)
def test_a_plan_keeps_to_its_budget(call, copy, needed, runs, gap, budget):
    planned, calls = op_bench.plan(call, copy, needed, runs, gap, budget)
    assert 1 <= planned <= runs
    assert calls >= 1
    spent = planned * (gap + calls * (call + copy))
    # one call in one run is always made, whatever it takes
    assert spent <= budget or (planned, calls) == (1, 1)


def test_a_plan_gives_all_that_was_asked_where_there_is_time():
    assert op_bench.plan(1_000_000, 0, 149, 20, 0, 10**12) == (20, 149)
    # a bucket is long enough for perf to look at it many times
    assert op_bench.plan(1_000, 0, 149, 20, 0, 10**12) == (20, 50_000)


def test_a_plan_saves_calls_before_runs():
    assert op_bench.plan(10**7, 0, 149, 20, 0, 22 * 10**8 + 20) == (20, 10)
    assert op_bench.plan(10**9, 0, 149, 20, 0, 4 * 10**9) == (2, 1)


def test_a_copy_shares_nothing_that_can_change():
    array = np.zeros(3)
    arguments = (([array], 1), {"x": {"y": array}})
    copied = input_capture.fresh(arguments)
    copied[0][0][0][:] = 1
    assert array.tolist() == [0, 0, 0]
    # what was one object still is
    assert copied[0][0][0] is copied[1]["x"]["y"]


def test_what_cannot_be_copied_says_so():
    with pytest.raises(input_capture.InputCopyError, match="cannot be copied: TypeError"):
        input_capture.fresh(threading.Lock())


def test_a_picture_that_is_not_decoded_stays_so(tmp_path):
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "a.png"
    image.new("RGB", (8, 8), (1, 2, 3)).save(path)
    sources = [path, io.BytesIO(path.read_bytes()), path.open("rb")]
    for source in sources:
        lazy = image.open(source)
        copied = input_capture.fresh(([lazy], {}))[0][0]
        assert copied is not lazy
        assert copied.tile
        assert lazy.tile
        assert copied.getpixel((0, 0)) == lazy.getpixel((0, 0)) == (1, 2, 3)
        assert input_capture.fresh(lazy).getpixel((7, 7)) == (1, 2, 3)  # now it is decoded
    sources[2].close()


class Add:
    def __init__(self, number):
        self.number = number

    def __call__(self, value):
        value.append(self.number)  # in its place
        return value


class Compose:
    def __init__(self, *transforms):
        self.transforms = list(transforms)

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Data:
    def __init__(self, *transforms):
        self.transform = Compose(*transforms)
        self.read = []

    def __len__(self):
        return 100

    def __getitem__(self, index):
        self.read.append(index)
        return self.transform([index])

    def __iter__(self):
        return (self[index] for index in range(7))


def loader(dataset, kind=0, size=4, many=True):
    return SimpleNamespace(
        dataset=dataset,
        _dataset_kind=kind,
        _auto_collation=many,
        batch_size=size,
        collate_fn=list,
        _index_sampler=[[n, n + 1, n + 2, n + 3] for n in range(0, 100, 4)] if many else range(100),
    )


def taken(dataset, samples=6, **kwargs):
    events = []
    catcher = input_capture.Catcher(samples, events.append)
    catcher.take(loader(dataset, **kwargs))
    return catcher, events


def given_to(catcher, name):
    return [call.arguments[0] for call in catcher.calls[name]]


def test_inputs_are_those_before_the_call():
    # GIVEN two operations that change their input in its place
    first, second = Add(-1), lambda value: [*value, -2]
    catcher, events = taken(Data(first, second))
    # THEN the input of each is kept as it was before it, for as many samples as were asked for
    assert given_to(catcher, "Add") == [([index],) for index in range(6)]
    assert given_to(catcher, "lambda") == [([index, -1],) for index in range(6)]
    # and the batch was filled
    assert given_to(catcher, "collate")[-1] == ([[n, -1, -2] for n in (4, 5, 6, 7)],)
    assert (catcher.failed, events) == ({}, [])


def test_an_operation_can_run_on_its_inputs_again_and_again():
    catcher, _ = taken(Data(Add(-1)))
    call = catcher.calls["Add"][2]
    for _ in range(3):
        function, args, kwargs = call.prepare()
        assert function(*args, **kwargs) == [2, -1]


def test_the_loader_runs_without_the_operations():
    # GIVEN a data set that reads by itself
    ran = []
    data = Data(Add(-1), lambda value: ran.append(1) or [*value, -2])
    catcher, _ = taken(data)
    del data.read[:], ran[:]
    # WHEN its own code runs again
    function, args, kwargs = catcher.calls["Loader"][3].prepare()
    # THEN the operations answer what they answered, and are not called
    assert function(*args, **kwargs) == [3, -1, -2]
    assert (data.read, ran, catcher.missed) == ([3], [], set())
    # and are themselves again afterwards
    assert data[5] == [5, -1, -2]
    assert ran == [1]


def test_an_operation_that_was_not_called_then_is_told():
    data = Data(Add(-1))
    catcher, _ = taken(data)
    call = catcher.calls["Loader"][0]
    data.transform.transforms.append(data.transform.transforms[0])
    function, args, kwargs = call.prepare()
    function(*args, **kwargs)
    assert catcher.missed == {"Add"}


def test_a_stream_is_read_from_its_beginning():
    data = Data(Add(-1))
    catcher, _ = taken(data, kind=1)
    (call,) = catcher.calls["Loader"]
    del data.read[:]
    function, args, kwargs = call.prepare()
    assert function(*args, **kwargs) == [[index, -1] for index in range(6)]
    assert call.count == 6
    assert catcher.missed == set()


def test_a_stream_with_fewer_samples():
    catcher, _ = taken(Data(Add(-1)), samples=50, kind=1)
    (call,) = catcher.calls["Loader"]
    assert call.count == 7
    assert len(catcher.calls["Add"]) == 7


def test_samples_without_batches():
    catcher, _ = taken(Data(Add(-1)), many=False)
    assert given_to(catcher, "collate") == [([index, -1],) for index in range(6)]


def test_a_failing_operation_is_blamed_and_not_what_is_around_it():
    def fails(value):
        raise ValueError("bad\nsample")

    catcher, events = taken(Data(Add(-1), fails, Add(-2)))
    assert catcher.failed["fails"] == "it raised ValueError: bad sample"
    assert {event["operation"] for event in events} == {"fails"}
    assert catcher.failed["Add[1]"] == "it was not called in 6 samples"
    assert catcher.calls["fails"] == []
    assert len(catcher.calls["Add[0]"]) == 6


def test_calls_of_a_sample():
    # GIVEN an operation that is called twice for each sample, and one for every second
    class Twice:
        def __init__(self):
            self.inner = Compose(Add(-1))

        def __call__(self, value):
            return self.inner(self.inner(value))

    class Sometimes:
        def __init__(self):
            self.inner = Compose(Add(-2))

        def __call__(self, value):
            return self.inner(value) if value[0] % 2 else value

    catcher, _ = taken(Data(Twice(), Sometimes()))
    # THEN it counts so, and collate by the batch
    assert catcher.calls_a_sample() == {
        "Loader": 1,
        "Twice": 1,
        "Twice/Add": 2,
        "Sometimes": 1,
        "Sometimes/Add": 0.5,
        "collate": 0.25,
    }


def test_a_quick_operation_weighs_no_more_than_a_slow_one():
    # GIVEN a function that two operations call for the same time, one of them in more calls
    rows = [("slow", 0, "lib", "f", 10, 10_000), ("quick", 0, "lib", "f", 10, 10_000)]
    columns = ["operation", "run", "module", "function", "samples", "cpu_ns"]
    intervals = pd.DataFrame(
        [("slow", 0, 4), ("slow", 0, 1), ("quick", 0, 50)], columns=["operation", "run", "calls"]
    )
    operations = pd.DataFrame({"operation": ["slow", "quick"], "calls_a_sample": [1.0, 2.0]})
    functions = pd.DataFrame(rows, columns=columns)
    per_sample = isolated_samples.Isolation(functions, intervals, operations).a_sample()
    assert per_sample["cpu_ns"].tolist() == [2000, 400]
    assert per_sample.columns.tolist() == columns


def test_samples_that_fail_cost_no_others():
    def fails(value):
        if value[0] % 2:
            raise ValueError
        return value

    catcher, _ = taken(Data(fails))
    assert given_to(catcher, "fails") == [([index],) for index in (0, 2, 4, 6, 8, 10)]


def test_buckets_hold_the_calls_that_they_say():
    # GIVEN an operation that counts its calls
    calls = []
    settings = SimpleNamespace(budget_ns=3 * 10**8, needed=10, runs=3, gap_ns=10**6)
    events = []
    measuring = op_bench.Bench(settings, events.append)
    measuring.measure(
        "op", [input_capture.Call(calls.append, ((number,), {}), 2) for number in range(5)]
    )
    bursts = [burst for run in events for burst in run["intervals"]]
    # THEN its runs are numbered, its bursts in order, and every call in a burst was made
    assert [run["run"] for run in events] == list(range(len(events)))
    assert all(start <= end for start, end, _ in bursts)
    edges = [edge for burst in bursts for edge in burst[:2]]
    assert edges == sorted(edges)
    # all inputs came, each stands for two calls, and some were to warm up
    assert set(calls) == set(range(5))
    assert len(bursts) <= sum(count for *_, count in bursts) // 2 < len(calls)


def samples_table(rows):
    table = pd.DataFrame(rows, columns=["time_ns", "tid"])
    table["pid"] = 1
    table["event"] = 0
    table["ip"] = 64
    table["period"] = 1000
    table["cpu_mode"] = 2
    kinds = {"pid": "int32", "tid": "int32", "ip": "uint64", "period": "uint64"}
    return table.astype({**kinds, "event": "int16", "cpu_mode": "int8", "time_ns": "int64"})


def test_samples_go_to_the_bucket_they_fell_in(monkeypatch):
    # GIVEN the buckets of two operations on thread 1, and samples of it, of a thread of a pool (7)
    # and of a thread of the program's own (9)
    columns = ["operation", "run", "pid", "tid", "start_ns", "end_ns", "calls"]
    intervals = pd.DataFrame(
        [("a", 0, 1, 1, 100, 200, 1), ("a", 1, 1, 1, 300, 400, 1), ("b", 0, 1, 1, 500, 600, 1)],
        columns=columns,
    )
    samples = samples_table(
        [(99, 1), (100, 1), (150, 1), (150, 7), (150, 9), (200, 1), (399, 1), (450, 7), (500, 7)]
    )

    class Symbols:
        def resolve(self, mappings, samples, forks, comms):
            names = {"library": "lib", "function": "f"}
            return pd.DataFrame(names, index=samples.index, dtype="category")

    monkeypatch.setattr(isolated_samples, "Symbols", Symbols)
    recording = SimpleNamespace(samples=samples, mappings=None, forks=None, comms=None)
    table, interval_ns = isolated_samples._functions(recording, intervals, {1, 9})
    # THEN a bucket has its own and the pool's; a gap's and the program's belong to none
    assert table.to_numpy().tolist() == [
        ["a", 0, "lib", "f", 3, 3000],
        ["a", 1, "lib", "f", 1, 1000],
        ["b", 0, "lib", "f", 1, 1000],
    ]
    assert interval_ns == 1000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
number = st.integers(-3, 2**63)
bursts = st.lists(st.lists(number, min_size=2, max_size=4) | json_values, max_size=3)
a_run = {"event": st.just("run"), "operation": st.just("a"), "intervals": bursts}
fields = (
    "operation",
    "run",
    "pid",
    "tid",
    "intervals",
    "inputs",
    "calls_a_sample",
    "threads",
    "why",
    "text",
)


@given(
    st.lists(
        st.builds(
            lambda kind, values: {**values, "event": kind},
            st.sampled_from(["run", "taken", "skipped", "raised", "note", "fault", "unseen"])
            | json_values,
            st.dictionaries(st.sampled_from(fields), json_values),
        )
        | st.fixed_dictionaries({**a_run, "run": number, "pid": number, "tid": number})
        | json_values,
        max_size=5,
    ),
    st.binary(),
)
def test_any_bytes_are_read(tmp_path_factory, events, noise):
    folder = tmp_path_factory.mktemp("hostile")
    lines = [json.dumps(event).encode() for event in events]
    (folder / isolation.NAME).write_bytes(b"\n".join([*lines, noise]))
    rows, notes, threads, described = isolated_samples._read(folder)
    for name in ("inputs", "calls_a_sample"):
        int(isolated_samples._number(described, name, ""))
    assert all(type(number) is int for row in rows for number in row[1:])
    pd.DataFrame(rows, columns=list(isolated_samples._INTERVALS)).astype(
        isolated_samples._INTERVALS
    )
    assert all(isinstance(note, str) for note in notes)
    assert all(type(number) is int for number in threads)
    with pytest.raises(LotusError):  # there is no perf.data
        isolated_samples.load(folder)


def test_an_operation_that_failed_late_leaves_no_rows(tmp_path):
    run = {"event": "run", "run": 0, "pid": 1, "tid": 1, "intervals": [[1, 2, 3]]}
    events = [
        {**run, "operation": "good"},
        {**run, "operation": "bad"},
        {"event": "skipped", "operation": "bad", "why": "it raised"},
    ]
    (tmp_path / isolation.NAME).write_text("\n".join(map(json.dumps, events)))
    rows, notes, _, _ = isolated_samples._read(tmp_path)
    assert rows == [("good", 0, 1, 1, 1, 2, 3)]
    assert notes == ["bad was not isolated: it raised"]


@pytest.mark.parametrize("module", [op_bench, input_capture, isolation])
def test_the_inside_needs_nothing_but_the_standard_library(module):
    source = Path(module.__file__).read_text()
    imported = {line.split()[1] for line in source.splitlines() if line.startswith("import ")}
    assert imported <= sys.stdlib_module_names


def test_hooks_of_the_trace_that_need_a_recorder_are_left_out():
    """RandAugment's module, which torchvision.transforms imports, has a hook of its own."""
    from lotus.inside.trace.transforms import augment_hooks

    class Bare(isolation.Isolator):
        def __init__(self):
            self.catcher = input_capture.Catcher(1, lambda event: None)
            self.undo = []

    name = next(iter(augment_hooks.FUNCTIONS))
    kind, function, _ = augment_hooks.FUNCTIONS[name]
    holder = SimpleNamespace(**{function: print})
    module = SimpleNamespace(__name__=name, **({kind: holder} if kind else {function: print}))
    bare = Bare()
    bare._hook_augmenting(module)
    assert bare.undo == []
