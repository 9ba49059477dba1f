"""Benchmarks that pyperf times: a value of each run is kept, with its commit, for `compare_to`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pyperf = pytest.importorskip("pyperf")
ROOT = Path(__file__).parents[4]


def test_what_was_measured_is_kept_and_added_to(tmp_path: Path) -> None:
    kept = tmp_path / "reading.json"
    words = [sys.executable, "-m", "tools.bench.speed.reading", "--events", "2000", "--batch", "8"]
    for _ in range(2):  # as two commits take turns
        done = subprocess.run(
            [*words, "-p", "1", "--append", str(kept)],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "commit " in done.stdout
        assert "peak " in done.stdout
    (made,) = pyperf.BenchmarkSuite.load(str(kept)).get_benchmarks()
    assert made.get_name() == "2,000 events in batches of 8"
    assert made.get_nvalue() == 2
    assert min(made.get_values()) > 0
    assert made.get_metadata()["lotus_commit"]
    assert list(tmp_path.iterdir()) == [kept]  # the runs are gone
