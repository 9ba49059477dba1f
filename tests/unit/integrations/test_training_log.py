"""Values after each epoch: when the first cause is determined again."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lotus.integrations import training_log
from lotus.integrations.training_log import TrainingLog

SECOND = 1_000_000_000
KIND = "lotus/cause_share/dataset"


class Clock:
    """Seconds that pass when they are told to."""

    now_ns = SECOND

    def monotonic_ns(self) -> int:
        return self.now_ns


def test_the_cause_is_determined_again_once_that_costs_a_hundredth(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # GIVEN epochs of four seconds, and a cause that takes a tenth of a second
    clock = Clock()

    class Log(TrainingLog):
        _tail: Any
        _digest: Any

        def _start(self) -> None:
            self._path = tmp_path
            self._tail = SimpleNamespace(read=list, behind=False)
            log = SimpleNamespace(sizes={}, waited_ns=0)
            self._digest = SimpleNamespace(add=lambda read: None, logs={("", os.getpid()): log})
            self._begin_values()
            self._active = True

        def _first_cause(self) -> dict[str, float]:
            clock.now_ns += SECOND // 10
            return {KIND: 0.5}

    monkeypatch.setattr(training_log, "time", clock)
    log = Log()
    log.start()
    # WHEN they end
    told = []
    for _ in range(9):
        clock.now_ns += 4 * SECOND
        told.append(KIND in log.epoch())
    # THEN the first has it, and each whose end is ten seconds or more after the last that had it
    assert told == [True, False, False, True, False, False, True, False, False]
