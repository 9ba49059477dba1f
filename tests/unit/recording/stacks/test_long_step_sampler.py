"""py-spy looks at a step that takes far longer than a batch usually does, until its end."""

import signal
import stat
import sys
from pathlib import Path

import pytest

from lotus.inside.trace.log import state_page
from lotus.recording.stacks import py_spy_child
from lotus.recording.stacks.long_step_sampler import LongStepSampler
from tests.waiting import has_content, wait_until

STAND_IN = """#!/bin/sh
for word; do case $word in --output=*) file=${word#--output=};; esac; done
printf 'f (a.py:1) 40\\n' > "$file"
exec sleep 1000
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(py_spy_child, "forbidden_by_yama", lambda user: False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    path = tmp_path / "py-spy"
    path.write_text(STAND_IN)
    path.chmod(stat.S_IRWXU)
    return tmp_path


class Watched(LongStepSampler):
    """One that is shown the steps of process 12, of which a batch takes 0.1 s."""

    def show(
        self, batch: int, since: float, now: float, phase: int = state_page.STEP, beside: int = -1
    ) -> bool:
        words = [0] * (state_page.W_BATCH + 1)
        words[state_page.W_PHASE], words[state_page.W_SINCE] = phase, round(since * 1e9)
        words[state_page.W_BATCH] = batch
        self.look(12, words, now, beside)
        return self.sample.pid == 12

    def show_usual(self, batches: int) -> None:
        for batch in range(batches):
            assert not self.show(batch, 0.1 * batch, 0.1 * batch + 0.05)


def test_one_that_lasts_is_sampled_until_its_end(folder: Path) -> None:
    sampler = Watched(folder)
    sampler.show_usual(10)
    assert not sampler.show(10, 1.0, 1.45)
    assert sampler.show(10, 1.0, 1.55)
    child = sampler.sample._child
    assert child is not None
    wait_until(lambda: has_content(folder / "long_step_code.txt"), child, pause_s=0.01)
    sampler.show(10, 1.0, 1.6)
    assert child.poll() is None
    sampler.show(11, 1.7, 1.71)
    child.wait()
    assert child.returncode == -signal.SIGINT
    sampler.sample.collect()
    assert sampler.sample.stacks == ["f (a.py:1) 40"]


def test_after_one_the_next_is_sampled_soon(folder: Path) -> None:
    sampler = Watched(folder)
    sampler.show_usual(10)
    assert not sampler.show(10, 1.0, 1.49)
    assert not sampler.show(20, 2.5, 2.9)  # a batch takes 0.125 s now
    assert sampler.show(20, 2.5, 3.05)
    sampler.sample.finish()


@pytest.mark.parametrize(
    "where",
    [
        {"phase": state_page.WAIT},
        {"phase": state_page.BETWEEN},
        {"beside": 12},  # another one looks at it already
    ],
)
def test_others_are_not(folder: Path, where: dict[str, int]) -> None:
    sampler = Watched(folder)
    sampler.show_usual(10)
    assert not sampler.show(10, 1.0, 2.0, **where)


def test_the_first_ones_and_steps_that_all_are_long_are_not(folder: Path) -> None:
    sampler = Watched(folder)
    assert not sampler.show(3, 0.0, 9.0)
    for batch in range(4, 30):
        assert not sampler.show(batch, 9.0 * batch, 9.0 * batch + 8.9)
