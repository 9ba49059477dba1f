"""tools/bench/measurements.py and provenance.py: what is measured is kept, and of what it is."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.benches import bench

measurements = bench("measurements")
provenance = bench("provenance")


@dataclass
class Row:
    round: int
    text: str = ""
    took_s: float | None = None
    commit: str = ""
    at: str = ""


@pytest.fixture
def kept(tmp_path: Path):
    return measurements.Measurements(tmp_path, "measured", Row)


def test_what_was_stopped_while_it_wrote_goes_on_with_whole_rows(kept) -> None:
    kept.write([])
    rows = [Row(0, 'a "b", c', 0.1), Row(1, "x\ny")]
    kept.append(rows[0])
    kept.append(rows[1])
    with kept.csv.open("a") as file:
        file.write("2,cut")
    # WHEN it is begun again
    kept.write(kept.read())
    more = [Row(3), Row(4, took_s=2.5)]
    kept.append(*more)
    # THEN only the row that was cut off is not there
    assert kept.read() == [*rows, *more]


def test_rows_that_were_measured_otherwise_are_not_gone_on_with(kept) -> None:
    kept.know({"facts": {"cpus": 2}})
    kept.must_be_of(kept.known()["facts"], {"cpus": 2})
    with pytest.raises(SystemExit, match=r"measured otherwise .*--fresh throws it away"):
        kept.must_be_of(kept.known()["facts"], {"cpus": 4})
    kept.write([Row(0)])
    kept.throw_away()
    assert not kept.json.exists()
    assert kept.read() == []


def test_tables_are_printed_and_kept(kept, capsys: pytest.CaptureFixture[str]) -> None:
    kept.show("a table", "| a |", drawn=False)
    assert (kept.folder / "measured.txt").read_text() == "a table"
    assert (kept.folder / "measured.md").read_text() == "| a |"
    assert capsys.readouterr().out == (
        f"a table\nin {kept.folder}: measured.csv, .json, .txt, .md; no matplotlib\n"
    )


def test_all_commits_and_the_first_and_the_last_day_are_told() -> None:
    words = measurements.commits_and_days
    assert words([Row(0, commit="abc", at="2026-01-02 03:04"), Row(1)]) == "commit abc; 2026-01-02"
    rows = [Row(0, commit="b", at="2026-01-04 00:00"), Row(1, commit="a", at="2026-01-02 00:00")]
    assert words([*rows, Row(2, at="2026-01-03 00:00")]) == "commit a, b; 2026-01-02 to 2026-01-04"


def test_being_stopped_is_one_line() -> None:
    with pytest.raises(SystemExit, match="the same command goes on"), measurements.stoppable():
        raise KeyboardInterrupt


def test_a_commit_is_called_dirty_where_the_code_is_not_as_it_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    # No repository, also where the temporary folder is in one
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.commit() == "unknown"

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(
            ["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    for path in (
        "lotus/reading/run.py",
        "native_map/estimate/interval_join.py",
        "tools/bench/speed/join.py",
        "tools/bench/a.csv",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "All")
    head = git("rev-parse", "--short", "HEAD")
    # Results change while they are measured
    (tmp_path / "tools/bench/a.csv").write_text("1\n")
    assert provenance.commit() == head
    (tmp_path / "tools/bench/speed/join.py").write_text("pass\n")
    assert provenance.commit() == f"{head}-dirty"


def test_a_header_says_the_machine_what_is_used_and_the_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = {"cpu": "a CPU", "cpus": 2, "kernel": "6.1"}
    monkeypatch.setattr(provenance, "machine", lambda: here)
    monkeypatch.setattr(provenance, "commit", lambda: "abc1234")
    first, second = provenance.header(pytest, "; of much").splitlines()
    assert first.startswith("machine  a CPU, 2 CPUs, kernel 6.1; Python 3.")
    assert first.endswith(f", pytest {pytest.__version__}")
    assert second.startswith("commit   abc1234, 20")
    assert second.endswith("; of much")
