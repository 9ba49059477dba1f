"""py-spy is started once for a subject that takes long, and is ended with the run."""

import json
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lotus.recording.looks.look_counts import IN_NEXT, IN_OWN_CODE, LookCounts, PartLooks
from lotus.recording.stacks import py_spy_child
from lotus.recording.stacks.own_code_sampler import MAKING, TAKING, OwnCodeSampler
from lotus.recording.stacks.pause_times import PauseTimes
from tests.waiting import has_content, wait_until

FETCH = "fetch (torch/utils/data/_utils/fetch.py:54)"
STAND_IN = """#!/bin/sh
for word; do case $word in --output=*) file=${word#--output=};; esac; done
echo "$@" >> "$(dirname "$0")/calls"
printf 'f (a.py:1) 2\\nFETCH;g (a.py:2) 30\\n' > "$file"
%s
""".replace("FETCH", FETCH)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a stand-in of py-spy, which is the only one that is found."""
    monkeypatch.setattr(py_spy_child, "forbidden_by_yama", lambda user: False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return tmp_path


def stand_in(folder: Path, ending: str = "") -> None:
    path = folder / "py-spy"
    path.write_text(STAND_IN % ending)
    path.chmod(stat.S_IRWXU)


def part(own: dict[int, int], everything: int) -> PartLooks:
    looks = PartLooks()
    looks.by_process.update(own)
    looks.of = everything
    return looks


def collect(sampler: OwnCodeSampler) -> None:
    """Wait for the stand-in to end, and let the sampler read what it wrote."""
    child = sampler.sample._child
    assert child is not None

    def is_collected() -> bool:
        sampler.sample.collect()
        return sampler.sample._child is None

    wait_until(is_collected, child, pause_s=0.01)


def test_it_is_started_for_the_process_with_most_own_code(folder: Path) -> None:
    stand_in(folder)
    sampler = OwnCodeSampler(folder)
    sampler.consider(part({11: 5, 12: 15}, 40), 0.5, {11, 12})  # too few
    assert not (folder / "calls").exists()
    sampler.consider(part({11: 5, 12: 60}, 100), 0.5, {11, 12})
    collect(sampler)
    assert sampler.sample.stacks == [f"{FETCH};g (a.py:2) 30", "f (a.py:1) 2"]
    sampler.consider(part({11: 500}, 500), 0.5, {11, 12})
    calls = (folder / "calls").read_text().splitlines()
    assert len(calls) == 1
    assert "--pid=12" in calls[0]
    assert "--nonblocking" in calls[0]


def test_a_worker_that_has_ended_is_not_chosen_and_a_short_one_is_followed_by_another(
    folder: Path,
) -> None:
    # GIVEN stacks of a worker that ended soon, among them too few samples
    stand_in(folder)
    path = folder / "py-spy"
    path.write_text(path.read_text().replace(f"{FETCH};g (a.py:2) 30", f"{FETCH};g (a.py:2) 9"))
    sampler = OwnCodeSampler(folder)
    sampler.consider(part({11: 500, 12: 60}, 560), 0.5, {12})
    collect(sampler)
    # WHEN the next epoch has another worker
    sampler.consider(part({11: 500, 12: 60, 13: 3}, 563), 0.5, {13})
    collect(sampler)
    # THEN both were sampled, and the stacks are of both
    calls = (folder / "calls").read_text().splitlines()
    assert [pid in call for pid, call in zip(("--pid=12", "--pid=13"), calls, strict=True)] == [
        True,
        True,
    ]
    assert sampler.sample.stacks == [f"{FETCH};g (a.py:2) 18", "f (a.py:1) 4"]
    sampler.consider(part({11: 500}, 500), 0.5, set())
    assert sampler.sample._child is None


def test_one_that_makes_batches_is_sampled_after_one_that_takes_them(folder: Path) -> None:
    stand_in(folder)
    sampler = OwnCodeSampler(folder)
    for own, subject in (({10: 90}, TAKING), ({11: 60, 12: 5}, MAKING)):
        sampler.consider(part(own, 100), 0.5, {10, 11, 12}, subject)
        collect(sampler)
    # THEN enough is seen of both, and no process is sampled twice
    for own, subject in (({10: 90}, TAKING), ({12: 90}, MAKING), ({10: 90}, "another")):
        sampler.consider(part(own, 100), 0.5, {10, 12}, subject)
    assert sampler.sample._child is None
    calls = (folder / "calls").read_text().splitlines()
    assert [call.split("--pid=")[1][:2] for call in calls] == ["10", "11"]
    assert sampler.sample.stacks == [f"{FETCH};g (a.py:2) 60", "f (a.py:1) 4"]


def test_a_process_that_seldom_makes_batches_gives_way_to_one_that_does_now(folder: Path) -> None:
    # GIVEN a main process whose stacks, of another loader's batches, are of little else
    stand_in(folder)
    path = folder / "py-spy"
    path.write_text(path.read_text().replace(FETCH, "wait (b.py:3)"))
    looks = LookCounts()
    for _ in range(60):
        looks.add(10, -1, IN_OWN_CODE, "computing")
    sampler = OwnCodeSampler(folder)
    sampler.consider(looks.own_code, 0.5, {10, 11})
    collect(sampler)
    looks.add(10, -1, IN_NEXT, "events")
    looks.add(11, 0, IN_OWN_CODE, "computing")
    # THEN a worker is sampled after it, as too few of them were of making batches
    sampler.consider(looks.own_code, 0.5, {10, 11})
    collect(sampler)
    calls = (folder / "calls").read_text().splitlines()
    assert [call.split("--pid=")[1][:2] for call in calls] == ["10", "11"]


def test_little_own_code_starts_nothing(folder: Path) -> None:
    stand_in(folder)
    sampler = OwnCodeSampler(folder)
    sampler.consider(part({12: 60}, 1000), 0.5, {11, 12})
    sampler.sample.finish()
    assert sampler.sample.stacks == []
    assert not (folder / "calls").exists()


def started(folder: Path) -> tuple[OwnCodeSampler, subprocess.Popen[bytes]]:
    """A sampler of process 12, and its py-spy, which has written something and goes on."""
    stand_in(folder, "exec sleep 1000")
    sampler = OwnCodeSampler(folder)
    sampler.consider(part({12: 60}, 60), 0.5, {11, 12})
    child = sampler.sample._child
    assert child is not None
    wait_until(lambda: has_content(folder / "own_code.txt"), child, pause_s=0.01)
    return sampler, child


def test_one_that_still_runs_is_ended(folder: Path) -> None:
    sampler, child = started(folder)
    sampler.sample.finish()
    assert child.poll() is not None


def test_without_py_spy_nothing_happens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    sampler = OwnCodeSampler(folder)
    sampler.consider(part({12: 60}, 60), 0.5, {11, 12})
    sampler.consider(part({12: 600}, 600), 0.5, {11, 12})
    sampler.sample.finish()
    assert sampler.sample.stacks == []
    assert sampler.sample.refusal == py_spy_child.refusal_here() == "absent"


def test_a_kernel_that_forbids_it_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(folder)
    monkeypatch.setattr(py_spy_child, "forbidden_by_yama", lambda user: True)
    sampler = OwnCodeSampler(folder)
    sampler.consider(part({12: 60}, 60), 0.5, {11, 12})
    assert sampler.sample.pid == -1
    assert sampler.sample.refusal == "forbidden"


@pytest.mark.parametrize(
    ("words", "refusal"),
    [("Error: Permission denied (os error 13)", "forbidden"), ("Error: No such process", "")],
)
def test_one_that_complains_that_it_may_not_look_is_told(
    folder: Path, words: str, refusal: str
) -> None:
    stand_in(folder, f'rm "$file"; echo "{words}" >&2; exit 1')
    sampler = OwnCodeSampler(folder)
    sampler.consider(part({12: 60}, 60), 0.5, {11, 12})
    collect(sampler)
    assert sampler.sample.refusal == refusal
    assert sampler.sample.stacks == []


def test_the_programs_innermost_lines_are_read_at_once(folder: Path) -> None:
    # GIVEN a program, and a library in a folder of packages
    program, library = folder / "train.py", folder / "site-packages" / "ml.py"
    library.parent.mkdir()
    program.write_text("def main():\n    gc.collect()\n" + "x" * 500)
    library.write_text("secret")
    (folder / "stacks").write_text(
        f"main ({program}:2);run ({library}:1) 9\nmain ({program}:3) 4\n"
        f"main ({program}:40) 2\nmain ({folder}:1) 2\nmain (<string>:1) 1\n"
    )
    stand_in(folder, 'cp "$(dirname "$0")/stacks" "$file"')
    sampler = OwnCodeSampler(folder)
    sampler.consider(part({12: 60}, 60), 0.5, {11, 12})
    collect(sampler)
    assert sampler.sample.texts == {
        f"{program}:2": "gc.collect()",
        f"{program}:3": f"{'x' * 120}...",
    }


def test_one_of_a_loop_is_ended_by_its_end(folder: Path) -> None:
    # GIVEN a py-spy that looks at a training step and would go on
    sampler, child = started(folder)
    pauses = PauseTimes()
    # WHEN another process is between its loops, and then that one
    for seconds in (0.0, 1.0):
        sampler.look(13, pauses.look(13, in_pause=True, now=seconds))
        sampler.look(12, pauses.look(12, in_pause=False, now=seconds))
    # AND a pause of that one is over soon
    sampler.look(12, pauses.look(12, in_pause=True, now=2.0))
    sampler.look(12, pauses.look(12, in_pause=True, now=2.02))
    sampler.look(12, pauses.look(12, in_pause=False, now=2.04))
    sampler.look(12, pauses.look(12, in_pause=True, now=2.06))
    assert child.poll() is None
    sampler.look(12, pauses.look(12, in_pause=True, now=2.2))
    # THEN what it has seen is kept
    collect(sampler)
    assert child.returncode == -signal.SIGINT
    assert sampler.sample.stacks == [f"{FETCH};g (a.py:2) 30", "f (a.py:1) 2"]


@pytest.mark.parametrize(("reason", "started"), [("lock", True), ("computing", False)])
def test_a_step_that_is_often_at_a_lock_has_its_stacks_sampled(
    folder: Path, reason: str, started: bool
) -> None:
    # GIVEN a loop that is in its step for 60 % of the time, a quarter of all at one reason
    stand_in(folder)
    looks = LookCounts()
    for operation, found, times in ((-4, reason, 60), (-4, "sleep", 84), (-3, "events", 96)):
        for _ in range(times):
            looks.add(12, -1, operation, found)
    sampler = OwnCodeSampler(folder)
    sampler.consider(looks.locked_step, 0.2, {12})
    if started:
        collect(sampler)
    assert (folder / "calls").exists() == started


def test_a_py_spy_that_writes_no_times_is_asked_for_stacks_alone(folder: Path) -> None:
    # GIVEN a py-spy before 0.4
    words = "error: 'chrometrace' isn't a valid value for '--format <format>'"
    stand_in(folder, f'case "$*" in *=raw*) ;; *) rm "$file"; echo "{words}" >&2; exit 1;; esac')
    sampler = OwnCodeSampler(folder)
    for own in (60, 90):
        sampler.consider(part({12: own}, 100), 0.5, {12})
        collect(sampler)
    assert sampler.sample.stacks == [f"{FETCH};g (a.py:2) 30", "f (a.py:1) 2"]
    assert sampler.sample.rows_of_times(0) == []


def test_times_are_of_the_stacks_that_are_kept(folder: Path) -> None:
    # GIVEN a py-spy that writes times, of a main thread that is seen in two functions
    changes = [("B", 0, "thread (12): T", ""), ("B", 0, "f", "/a.py"), ("B", 60000, "g", "/b.py")]
    changes += [("E", 100000, name, "") for name in ("g", "f", "thread (12): T")]
    events = [
        {"ph": kind, "ts": at, "tid": 1, "name": name, "args": {"filename": file, "line": 1}}
        for kind, at, name, file in changes
    ]
    (folder / "stacks").write_text(json.dumps(events))
    stand_in(folder, 'sleep 0.2; cp "$(dirname "$0")/stacks" "$file"')
    sampler = OwnCodeSampler(folder)
    begun_ns = time.monotonic_ns()
    sampler.consider(part({12: 60}, 60), 0.5, {12})
    collect(sampler)
    assert sampler.sample.stacks == ["f (/a.py:1) 3", "f (/a.py:1);g (/b.py:1) 2"]
    rows = sampler.sample.rows_of_times(5)
    assert [(place, pid, len(times)) for place, pid, *times in rows] == [(5, 12, 3), (6, 12, 2)]
    error_ns, now_ns = sampler.sample.bound_ns, time.monotonic_ns()
    assert all(begun_ns <= at <= now_ns + error_ns for _, _, *times in rows for at in times)
