"""A traced command is waited for, whatever happens beside it."""

import os
from pathlib import Path

import pytest

from lotus.recording import blocking_sampler, launcher, traced_command


class Failing:
    """Fails as it is made, as it is entered, or as it is left."""

    def __init__(self, when: str) -> None:
        self._when = when
        self._fail("made")

    def __enter__(self) -> None:
        self._fail("entered")

    def __exit__(self, *exc: object) -> None:
        self._fail("left")

    def _fail(self, now: str) -> None:
        if now == self._when:
            raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("when", ["made", "entered", "left"])
def test_what_fails_beside_the_program_does_not_end_the_waiting(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_sampler, "BlockingSampler", lambda directory: Failing(when))
    meanwhile = traced_command._meanwhile(tmp_path, lambda directory: Failing(when))
    outcome = launcher.run(["sh", "-c", "exit 3"], os.environ, None, meanwhile)
    assert outcome.exit_code == 3
