"""Reading py-spy's times and stacks, from files as it writes them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from native_map.errors import UnusableError
from native_map.recording import py_spy
from native_map.recording.py_spy import PySpyStacks
from native_map.recording.python_frame import Frame

PERIOD_US = 10_000
START_NS = 5_000_000_000_000
MAIN = 140_000_000_000_000  # the pthread that forked main threads share

Thread = tuple[int, int, int]  # key, pid, tid


class Writer:
    """Writes what changed between the samples of a thread, as py-spy does."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._before: dict[int, tuple[Thread, list[Frame]]] = {}

    def sample(self, at_us: int, thread: Thread, *frames: Frame) -> None:
        key, pid, tid = thread
        stack = [Frame(f'process {pid}:"python"', "", 0), Frame(f"thread ({tid}): T{tid}", "", 0)]
        stack += frames
        _, before = self._before.get(key, (thread, []))
        same = 0
        while same < min(len(before), len(stack)) and before[same] == stack[same]:
            same += 1
        for frame in before[same:][::-1]:
            self._add("E", at_us, key, pid, frame)
        for frame in stack[same:]:
            self._add("B", at_us, key, pid, frame)
        self._before[key] = (thread, stack)

    def _add(self, kind: str, at_us: int, key: int, pid: int, frame: Frame) -> None:
        args = {"filename": frame.file, "line": frame.line}
        event = {"args": args, "cat": "py-spy", "name": frame.function, "ph": kind, "pid": pid}
        self.events.append({**event, "tid": key, "ts": at_us})

    def write(self, path: Path, end_us: int) -> Path:
        for key, ((_, pid, _), stack) in self._before.items():
            for frame in stack[::-1]:
                self._add("E", end_us, key, pid, frame)
        path.write_text(json.dumps(self.events, separators=(",", ":")) + "\n")
        return path


def read(path: Path, **kwargs: Any) -> PySpyStacks:
    """Read with an origin of START_NS, known exactly."""
    return py_spy.read(path, START_NS, START_NS, 10**15, PERIOD_US * 1000, **kwargs)


def seen(stacks: PySpyStacks, tid: int) -> list[tuple[int, list[str]]]:
    """Return (microseconds, functions) of each sample of a thread."""
    table = stacks.samples[stacks.samples["tid"] == tid]
    return [
        ((time - START_NS) // 1000, [frame.function for frame in stacks.frames(node)])
        for time, node in zip(table["time_ns"], table["node"], strict=True)
    ]


F, G, H = Frame("f", "/a.py", 3), Frame("g", "/a.py", 7), Frame("h", "/b.py", 9)


def test_each_sample_of_an_unchanged_stack_is_counted(tmp_path: Path) -> None:
    writer, thread = Writer(), (MAIN, 10, 10)
    for number in range(5):
        writer.sample(number * PERIOD_US, thread, F, G)
    writer.sample(5 * PERIOD_US, thread, F, H)
    stacks = read(writer.write(tmp_path / "0.json", 7 * PERIOD_US))
    expected = [(number * PERIOD_US, ["f", "g"]) for number in range(5)]
    expected += [(number * PERIOD_US, ["f", "h"]) for number in (5, 6)]
    assert seen(stacks, 10) == expected
    assert stacks.samples["weight_ns"].sum() == 7 * PERIOD_US * 1000
    assert stacks.frames(int(stacks.samples["node"].iloc[0])) == [F, G]
    assert stacks.threads.to_dict("records") == [{"pid": 10, "tid": 10, "name": "T10"}]


def test_forked_processes_that_share_a_pthread_are_told_apart(tmp_path: Path) -> None:
    writer = Writer()
    for number in range(4):
        at = number * PERIOD_US
        writer.sample(at, (MAIN, 10, 10), F)
        writer.sample(at + 20, (MAIN, 11, 11), G)
        writer.sample(at + 40, (MAIN, 12, 12), G, H)
    stacks = read(writer.write(tmp_path / "0.json", 4 * PERIOD_US))
    for tid, offset, functions in ((10, 0, ["f"]), (11, 20, ["g"]), (12, 40, ["g", "h"])):
        assert seen(stacks, tid) == [(n * PERIOD_US + offset, functions) for n in range(4)]
        assert set(stacks.samples.loc[stacks.samples["tid"] == tid, "pid"]) == {tid}


def test_a_forked_process_that_ended_is_not_counted_to_the_end(tmp_path: Path) -> None:
    writer = Writer()
    for number in range(100):
        writer.sample(number * PERIOD_US, (MAIN, 10, 10), F)
        if number < 3:
            writer.sample(number * PERIOD_US + 20, (MAIN, 11, 11), G)
    stacks = read(writer.write(tmp_path / "0.json", 100 * PERIOD_US))
    assert len(seen(stacks, 10)) == 100
    assert len(seen(stacks, 11)) == 3


def test_threads_that_ended_are_cut_where_the_end_of_their_process_is_known(tmp_path: Path) -> None:
    writer = Writer()
    for thread in ((1, 10, 77), (2, 10, 78), (3, 11, 79)):
        writer.sample(0, thread, F)
    path = writer.write(tmp_path / "0.json", 100 * PERIOD_US)
    assert len(seen(read(path), 77)) == 100
    stacks = read(path, ends={77: START_NS + 30_000_000, 5: 1})
    assert [len(seen(stacks, tid)) for tid in (77, 78, 79)] == [3, 3, 100]


def test_a_thread_outside_python_is_kept_without_a_stack(tmp_path: Path) -> None:
    writer = Writer()
    writer.sample(0, (1, 10, 10), F)
    writer.sample(PERIOD_US, (1, 10, 10))
    stacks = read(writer.write(tmp_path / "0.json", 2 * PERIOD_US))
    assert stacks.samples["node"].tolist() == [0, -1]
    assert stacks.frames(-1) == []


def test_the_clock_lies_between_what_its_starter_saw(tmp_path: Path) -> None:
    writer = Writer()
    writer.sample(1000, (1, 10, 10), F)
    path = writer.write(tmp_path / "0.json", 50_000)

    def first(start: int, line: int, end: int) -> tuple[int, int]:
        stacks = py_spy.read(path, start, line, end, PERIOD_US * 1000)
        return int(stacks.samples["time_ns"].iloc[0]), stacks.bound_ns

    # Bounded by its first line, 4 ms after its start; then by its end, 53 ms after it.
    assert first(START_NS, START_NS + 4_000_000, 10**15) == (START_NS + 3_000_000, 2_000_000)
    end = START_NS + 53_000_000
    assert first(START_NS, START_NS + 40_000_000, end) == (START_NS + 2_500_000, 1_500_000)
    with pytest.raises(UnusableError, match="do not fit"):
        first(START_NS, START_NS + 4_000_000, START_NS + 20_000_000)


FRAMES = st.lists(st.sampled_from([F, G, H]), max_size=4)


@given(rounds=st.lists(st.tuples(FRAMES, FRAMES, FRAMES), min_size=1, max_size=20))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_sampled_is_what_is_read(
    rounds: list[tuple[list[Frame], ...]], tmp_path: Path
) -> None:
    threads = [(MAIN, 10, 10), (MAIN, 11, 11), (5, 11, 12)]
    writer = Writer()
    for number, stacks in enumerate(rounds):
        for offset, (thread, frames) in enumerate(zip(threads, stacks, strict=True)):
            writer.sample(number * PERIOD_US + offset, thread, *frames)
    recording = read(writer.write(tmp_path / "0.json", len(rounds) * PERIOD_US))
    for offset, (_, _, tid) in enumerate(threads):
        read_back = seen(recording, tid)
        functions = [[frame.function for frame in stacks[offset]] for stacks in rounds]
        assert [names for _, names in read_back] == functions
        # Of unchanged stacks the first time is known; the others are spread until the change.
        for number, (time_us, _) in enumerate(read_back):
            assert abs(time_us - (number * PERIOD_US + offset)) <= 5


def test_a_python_that_does_not_know_the_numbers_of_its_threads(tmp_path: Path) -> None:
    events = []
    for at_us, pid, name in ((0, 10, "MainThread"), (10, 11, "MainThread"), (20, 11, "Feeder")):
        key = MAIN + (name == "Feeder")
        for kind in "BE":
            frames = [f'process {pid}:"python"', f"thread (0x{key:X}): {name}", "f"]
            for place, function in list(enumerate(frames))[:: 1 if kind == "B" else -1]:
                args = {"filename": "/a.py" if place == 2 else "", "line": 3 * (place == 2)}
                event = {"args": args, "name": function, "ph": kind, "pid": pid, "tid": key}
                events.append({**event, "ts": at_us + PERIOD_US * (kind == "E")})
    path = tmp_path / "0.json"
    path.write_text(json.dumps(sorted(events, key=lambda event: event["ts"])))
    threads = read(path).threads
    assert threads[["pid", "tid"]].to_numpy().tolist() == [[10, 10], [11, 11], [11, 1 << 30]]
    assert threads["name"].tolist() == ["MainThread", "MainThread", "Feeder"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[",
        "[1]",
        '[{"ph":"B"}]',
        '[{"ph":"E","tid":1,"ts":2,"name":"f","args":{}}]',
        '[{"ph":"B","tid":1,"ts":2,"name":"f","args":{}}',
        '[{"ph":"B","tid":1,"ts":2,"name":"f","args":{}}]',  # names no threads
        '[{"ph":"B","tid":1,"ts":1e400,"name":"f","args":{}}]',
        '[{"ph":"B","tid":1,"ts":-1,"name":"f","args":{}}]',
        "[" * 100_000,
        "[" + "1" * 10_000 + "]",
    ],
)
def test_what_is_no_such_file_is_a_line(content: str, tmp_path: Path) -> None:
    path = tmp_path / "0.json"
    path.write_text(content)
    with pytest.raises(UnusableError, match="lotus trace --py-spy"):
        read(path)


def test_a_file_cut_anywhere_is_a_line(tmp_path: Path) -> None:
    writer = Writer()
    for number in range(4):
        writer.sample(number * PERIOD_US, (MAIN, 10, 10), F, *([G] if number % 2 else [H]))
    whole = writer.write(tmp_path / "0.json", 4 * PERIOD_US).read_text().rstrip()
    for cut in range(len(whole)):
        (tmp_path / "cut").write_text(whole[:cut])
        with pytest.raises(UnusableError):
            read(tmp_path / "cut")


def test_events_longer_than_a_part_that_is_read_are_joined(tmp_path: Path) -> None:
    writer = Writer()
    long = Frame("x" * 300_000, "/long.py", 1)
    for number in range(10):
        writer.sample(number * PERIOD_US, (MAIN, 10, 10), *([long] if number % 2 else [F]))
    stacks = read(writer.write(tmp_path / "0.json", 10 * PERIOD_US))
    assert [len(functions[0]) for _, functions in seen(stacks, 10)] == [1, 300_000] * 5


@given(junk=st.binary(max_size=300), at=st.integers(0, 400))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_a_line_or_a_table(junk: bytes, at: int, tmp_path: Path) -> None:
    writer = Writer()
    writer.sample(0, (MAIN, 10, 10), F)
    writer.sample(PERIOD_US, (MAIN, 10, 10), G)
    path = writer.write(tmp_path / "0.json", 2 * PERIOD_US)
    data = path.read_bytes()
    path.write_bytes(data[:at] + junk + data[at + len(junk) :])
    try:
        stacks = read(path)
    except UnusableError:
        return
    assert stacks.samples["node"].between(-1, len(stacks.nodes) - 1).all()


def test_names_that_are_no_unicode_become_escapes(tmp_path: Path) -> None:
    writer = Writer()
    writer.sample(0, (MAIN, 7, 7), Frame("\ud800f", "a\udfff.py", 3))
    stacks = read(writer.write(tmp_path / "stacks.json", 10 * PERIOD_US))
    assert stacks.nodes["function"].tolist() == ["\\ud800f"]
    assert stacks.nodes["file"].tolist() == ["a\\udfff.py"]
