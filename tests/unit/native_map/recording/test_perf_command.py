"""The `perf record` command line, and what is read from perf's words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from native_map.errors import UnusableError
from native_map.recording import perf_command
from native_map.recording.perf_command import Sampling


def test_the_whole_command_line() -> None:
    sampling = Sampling(("cpu-clock", "cpu/event=0x1a0,umask=0x01/"), 499)
    assert perf_command.command("/bin/perf", 7, "r/perf.data", sampling, (3, 4)) == [
        "/bin/perf",
        "record",
        "--pid=7",
        "--output=r/perf.data",
        "--clockid=CLOCK_MONOTONIC",
        "--freq=499",
        "--no-buildid-cache",
        "--event=cpu-clock:u",
        "--event=cpu/event=0x1a0,umask=0x01/u",
        "--no-bpf-event",
        "--control=fd:3,4",
    ]


def test_without_control_and_with_the_kernel() -> None:
    words = perf_command.command("perf", 7, "f", Sampling(("cycles",), 99, kernel=True))
    assert words[-1] == "--event=cycles"
    # A perf that is too old for one of them may know neither.
    assert not any("control" in word or "bpf" in word for word in words)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("cycles", "cycles:u"),
        ("cycles:u", "cycles:u"),
        ("cycles:k", "cycles:k"),
        ("cycles:p", "cycles:pu"),
        ("cycles:ppk", "cycles:ppk"),
        ("r1a0", "r1a0:u"),
        ("cpu/event=0xc0/", "cpu/event=0xc0/u"),
        ("cpu/event=0xc0/k", "cpu/event=0xc0/k"),
        ("cpu/event=0xc0/p", "cpu/event=0xc0/pu"),
        ("cpu/event=0xc0/:k", "cpu/event=0xc0/:k"),
        ("{cycles,instructions}", "{cycles,instructions}:u"),
        ("{cycles,instructions}:k", "{cycles,instructions}:k"),
        ("sched:sched_switch", "sched:sched_switch"),
        ("L1-dcache-load-misses", "L1-dcache-load-misses:u"),
    ],
)
def test_events_are_counted_in_user_space_unless_they_say_otherwise(
    event: str, expected: str
) -> None:
    assert perf_command.user_space(event) == expected


def test_a_list_of_events_is_split_outside_slashes_and_braces() -> None:
    text = "cycles, cpu/event=0x1a0,umask=0x01/u,{a,b}:u,r1a0"
    assert perf_command.split(text) == ("cycles", "cpu/event=0x1a0,umask=0x01/u", "{a,b}:u", "r1a0")


@pytest.mark.parametrize("text", ["", ",", "cycles,", "cpu/event=1", "{a,b", "a,,b"])
def test_what_is_no_list_of_events_is_refused(text: str) -> None:
    with pytest.raises(UnusableError, match="perf list"):
        perf_command.split(text)


@pytest.mark.parametrize("event", ["{a,b}:S", "{a,b}:uS", "cycles:S"])
def test_group_sampling_is_refused_as_it_loses_the_workers(event: str) -> None:
    with pytest.raises(UnusableError, match="worker"):
        perf_command.split(event)
    with pytest.raises(UnusableError, match="worker"):
        perf_command.command("perf", 1, "f", Sampling((event,)))


def test_what_perf_counted_lost_and_warned_of() -> None:
    text = (
        "Events enabled\n"
        "warning: Maximum frequency rate (1000 Hz) exceeded, throttling from 997 Hz to 500 Hz.\n"
        "[ perf record: Woken up 2 times to write data ]\n"
        "Processed 99 events and lost 3 chunks!\n\nCheck IO/CPU overload!\n"
        "[ perf record: Captured and wrote 0.087 MB perf.data (1664 samples) ]\n"
    )
    counts = perf_command.counts(text)
    assert (counts["samples"], counts["lost"]) == (1664, 3)
    assert [line.split()[0] for line in counts["warnings"]] == ["warning:", "Processed", "Check"]
    assert perf_command.finished(text)
    assert not perf_command.finished("Events enabled\n")
    assert perf_command.counts("[ perf record: Woken up 1 times to write data ]") == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Error:\nAccess to performance monitoring and observability operations is limited.\n"
            "perf_event_paranoid setting is 4:\n",
            "perf_event_paranoid is 4",
        ),
        ("Error:\nYou may not have permission to collect stats.\n", "sysctl"),
        (
            "Permission error mapping pages.\nConsider increasing "
            "/proc/sys/kernel/perf_event_mlock_kb,\n",
            "perf_event_mlock_kb=2048",
        ),
        ("failed to write perf data, error: No space left on device", "the disk is full"),
        ("event syntax error: 'nosuch:u'\n   \\___ parser error", "no event of this name: a,b"),
        ("Error:\nThe a event is not supported.", "cannot sample a,b"),
        ("Couldn't create thread/CPU maps: No such process", "already ended"),
        ("Error:\nsomething new\nmore", "'something new'"),
        ("Events enabled\n", "without a message"),
        ("", "without a message"),
    ],
)
def test_the_reason_is_a_line(text: str, expected: str) -> None:
    reason = perf_command.reason(text, ("a", "b"))
    assert expected in reason
    assert "\n" not in reason


@pytest.mark.parametrize(("level", "needed"), [(4, 2), (3, 2), (2, 1), (1, -1)])
def test_the_level_that_is_asked_for_is_lower_than_the_one_there_is(
    level: int, needed: int
) -> None:
    reason = perf_command.reason(f"perf_event_paranoid setting is {level}:\n", ["a"])
    assert reason.endswith(f"perf_event_paranoid={needed}")


def test_bare_events_have_no_modifiers() -> None:
    events = ["cycles:pp", "cpu/event=0xc0/u", "cycles", "sched:sched_switch"]
    bare = ["cycles", "cpu/event=0xc0/", "cycles", "sched:sched_switch"]
    assert [perf_command.bare(event) for event in events] == bare


def test_an_old_perf_is_known_by_its_words() -> None:
    assert perf_command.knows_no_control("  Error: unknown option `control=fd:3,4'\n")
    assert not perf_command.knows_no_control("Error: unknown option `clockid'")


@given(st.text(), st.lists(st.text(), max_size=3))
def test_any_words_of_perf_give_one_line(text: str, events: list[str]) -> None:
    assert perf_command.reason(text, ["cycles"]).count("\n") == 0
    perf_command.counts(text)
    perf_command.user_space(text)
