"""py-spy looks at a pause between two loops once that is long, and no longer than it lasts."""

import signal
import stat
import sys
from pathlib import Path

import pytest

from lotus.recording.stacks import py_spy_child
from lotus.recording.stacks.pause_sampler import PauseSampler
from lotus.recording.stacks.pause_times import PauseTimes
from tests.waiting import has_content, wait_until

STAND_IN = """#!/bin/sh
for word; do case $word in --output=*) file=${word#--output=};; esac; done
printf 'f (a.py:1) %s\\n' > "$file"
exec sleep 1000
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(py_spy_child, "forbidden_by_yama", lambda user: False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return tmp_path


def stand_in(folder: Path, count: int) -> None:
    path = folder / "py-spy"
    path.write_text(STAND_IN % count)
    path.chmod(stat.S_IRWXU)


class Watched(PauseSampler):
    """One that is shown the pauses of process 12."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._times = PauseTimes()

    def show(self, in_pause: bool, now: float) -> None:
        self.look(12, self._times.look(12, in_pause, now))


def sampled_pause(sampler: Watched, output: Path, begin: float) -> None:
    """A pause that lasts until the stand-in has written something."""
    sampler.show(True, begin)
    sampler.show(True, begin + 0.6)
    child = sampler.sample._child
    assert child is not None
    wait_until(lambda: has_content(output), child, pause_s=0.01)
    sampler.show(False, begin + 0.7)
    child.wait()
    assert child.returncode == -signal.SIGINT
    sampler.sample.collect()


def test_a_short_pause_is_not_sampled(folder: Path) -> None:
    stand_in(folder, 40)
    sampler = Watched(folder)
    for begin in range(5):
        sampler.show(True, begin)
        sampler.show(True, begin + 0.1)
        sampler.show(False, begin + 0.2)
    assert sampler.sample._child is None


def test_after_one_of_some_length_the_next_is_sampled_soon(folder: Path) -> None:
    stand_in(folder, 40)
    sampler = Watched(folder)
    for begin, took in ((0.0, 0.4), (10.0, 0.01)):  # before a validation, and after it
        sampler.show(True, begin)
        sampler.show(False, begin + took)
    assert sampler.sample._child is None
    sampler.show(True, 20.0)
    sampler.show(True, 20.1)
    assert sampler.sample._child is not None
    sampler.sample.finish()


def test_a_long_pause_is_sampled_until_its_end(folder: Path) -> None:
    stand_in(folder, 40)
    sampler = Watched(folder)
    sampled_pause(sampler, folder / "pause_code.txt", 10.0)
    assert sampler.sample.stacks == ["f (a.py:1) 40"]
    sampler.show(True, 20.0)
    sampler.show(True, 30.0)
    assert sampler.sample._child is None  # it has seen enough


def test_pauses_of_few_stacks_are_sampled_again(folder: Path) -> None:
    sampler = Watched(folder)
    for place, count in enumerate((2, 7, 5)):
        stand_in(folder, count)
        sampled_pause(sampler, folder / "pause_code.txt", 10.0 * place)
    assert sampler.sample.stacks == ["f (a.py:1) 14"]
    sampler.show(True, 50.0)
    sampler.show(True, 60.0)
    assert sampler.sample._child is None
