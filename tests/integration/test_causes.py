"""On scripts with a planted cause, the report names the planted one first."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent / "causes"


def report(tmp_path: Path, script: str, *arguments: str) -> tuple[dict[str, Any], str, str]:
    """Trace a script; return the report as JSON and as text, and what the script printed."""
    run = tmp_path / "run"
    lotus = [sys.executable, "-m", "lotus"]
    command = [sys.executable, "-W", "ignore", str(SCRIPTS / f"{script}.py"), *arguments]
    traced = subprocess.run(
        [*lotus, "trace", "-q", "-o", str(run), "--", *command], capture_output=True, text=True
    )
    assert (traced.returncode, traced.stderr) == (0, "")
    asked = subprocess.run(
        [*lotus, "report", str(run), "--json"], capture_output=True, text=True, check=True
    )
    shown = subprocess.run([*lotus, "report", str(run)], capture_output=True, text=True, check=True)
    return json.loads(asked.stdout), shown.stdout, traced.stdout


@pytest.mark.parametrize(
    ("script", "verdict", "cause", "word"),
    [
        ("slow_operation", "input-bound", "operation", "Heavy"),
        ("slow_sample", "input-bound", "slow-samples", "slow sample"),
        ("slow_consumer", "consumer-bound", "consumer", "consumer"),
        ("start_up", "start-up-bound", "start-up", "start-up"),
        ("slow_worker", "input-bound", "slow-worker", "worker 2"),
        ("big_collate", "input-bound", "collate", "collat"),
        ("big_send", "input-bound", "send", "send"),
    ],
)
def test_planted_cause_comes_first(
    tmp_path: Path, script: str, verdict: str, cause: str, word: str
) -> None:
    # WHEN a script with a planted cause is traced
    found, text, _ = report(tmp_path, script)
    # THEN the verdict is right and the planted cause is the first one, in words too
    judged = found["loaders"][0]["verdict"]
    first = judged["causes"][0]
    assert (judged["kind"], first["kind"]) == (verdict, cause), judged["causes"]
    assert word in first["title"]
    assert word in text


def test_slow_samples_are_named(tmp_path: Path) -> None:
    # GIVEN a run in which samples 150, 301 and 452 were slow
    found, _, _ = report(tmp_path, "slow_sample")
    # THEN they lead the list of the slowest
    slowest = [row["sample"] for row in found["loaders"][0]["slowest_samples"][:3]]
    assert sorted(slowest) == [150, 301, 452]


def test_cold_files_come_first(tmp_path: Path) -> None:
    # GIVEN files that are in no page cache
    found, text, printed = report(tmp_path, "cold_files", str(tmp_path))
    if int(printed) < 1 << 20:
        pytest.skip(f"the kernel counted {int(printed)} bytes for a read of 16 MB from storage")
    # THEN reading them is named, with the operation that reads
    judged = found["loaders"][0]["verdict"]
    first = judged["causes"][0]
    assert (judged["kind"], first["kind"]) == ("input-bound", "cold-files"), judged["causes"]
    assert "Loader" in first["title"]
    assert "storage" in text
