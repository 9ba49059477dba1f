"""What is said at the end of a sweep that was stopped, or of which runs failed."""

from pathlib import Path

import pytest

from lotus.reporters.sweep import sweep_progress
from lotus.sweep import sweep_plan, sweep_record
from lotus.sweep.sweep_plan import SweepPlan, combined
from lotus.sweep.sweep_runner import Swept

PLAN = SweepPlan(combined({"num_workers": (1, 2)}), ("num_workers",), 2, counters=None)


def ended(path: Path, *outcomes: dict[str, object]) -> Swept:
    """A sweep whose first runs ended so, the others well."""
    manifest = sweep_record.load(sweep_plan.begin(path, ["true"], PLAN, 1)).manifest
    for number, run in enumerate(manifest["runs"]):
        run.update({"state": "done"} if number >= len(outcomes) else outcomes[number])
    sweep_record.write(path, manifest)
    return Swept(sweep_record.load(path))


def test_runs_that_failed_are_counted_apart_from_those_that_cannot_succeed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    failed = {"state": "failed", "problem": "exit code 1", "exit_code": 1}
    swept = ended(tmp_path / "a sweep", failed, {"refused": True, **failed})
    assert (swept.failed, swept.refused) == (1, 1)
    sweep_progress.list_failures(swept)
    failure, refusal = capfd.readouterr().err.splitlines()
    again = f"lotus sweep --resume '{tmp_path}/a sweep'"
    assert failure == f"lotus: 1 of 4 runs failed; repeat them with: {again}"
    assert refusal.startswith("lotus: 1 of 4 runs cannot succeed")


def test_nothing_is_said_of_runs_that_succeeded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sweep_progress.list_failures(ended(tmp_path / "S"))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("in_a_run", "message"),
    [
        (False, "lotus: stopped; continue with: lotus sweep --resume S\n"),
        (True, "lotus: stopped, the unfinished run does not count; continue with: lotus sweep "
               "--resume S\n"),
    ],
)  # fmt: skip
def test_a_stopped_sweep_is_continued(
    in_a_run: bool, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    sweep_progress.stopped(Path("S"), in_a_run)
    assert capfd.readouterr().err == message
