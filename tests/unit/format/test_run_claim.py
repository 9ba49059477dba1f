"""A run directory is ours before anything is written into it, and a foreign one is told apart."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lotus import cli
from lotus.common.errors import LotusError
from lotus.format import manifest, run_claim, run_directory
from lotus.format.manifest import TraceSettings, begin
from lotus.reading.run import load
from tests.logs import MS, START_NS
from tests.simulation import simulate
from tests.unit import perf_files

ANOTHER = 4321


def started(path: Path, force: bool = False) -> None:
    run_directory.make(path, force)
    manifest.write(path, begin(["x"], TraceSettings(), {}))


def test_what_was_recorded_here_is_ours(tmp_path: Path) -> None:
    started(tmp_path / "run")
    recorded = json.loads((tmp_path / "run/run.json").read_text())
    assert recorded["made"] == run_claim.identity(tmp_path / "run")
    assert run_claim.is_ours(tmp_path / "run", recorded)
    # A move in its file system, and what is written later, change nothing.
    (tmp_path / "run").rename(tmp_path / "moved")
    manifest.write(tmp_path / "moved", manifest.end(recorded, 0, None, 5))
    recorded = json.loads((tmp_path / "moved/run.json").read_text())
    assert run_claim.is_ours(tmp_path / "moved", recorded)


def test_a_copy_an_earlier_run_and_another_user_s_are_foreign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = simulate(tmp_path / "run", workers=1, batches=2)
    assert load(path).trusted
    shutil.copytree(path, tmp_path / "copied")
    os.utime(tmp_path / "copied" / run_claim.NAME, ns=(1, 1))
    assert not load(tmp_path / "copied").trusted
    assert load(tmp_path / "copied", trust=True).trusted
    # GIVEN what says of itself that it is another file
    recorded = json.loads((path / "run.json").read_text())
    for made in (None, {}, {"inode": 1, "ctime_ns": 1}, {**recorded["made"], "ctime_ns": 7}, 3):
        (path / "run.json").write_text(json.dumps({**recorded, "made": made}))
        assert not load(path).trusted
    (path / "run.json").write_text(json.dumps(recorded))
    assert load(path).trusted
    monkeypatch.setattr(os, "geteuid", lambda: ANOTHER)
    assert not load(path).trusted
    monkeypatch.undo()
    (path / run_claim.NAME).rename(path / "x")
    (path / run_claim.NAME).symlink_to("x")
    assert not load(path).trusted


def test_a_second_start_in_one_directory_is_refused(tmp_path: Path) -> None:
    run_directory.make(tmp_path / "run")
    for force in (False, True):
        with pytest.raises(LotusError, match=r"is recording into .*; choose another directory"):
            run_directory.make(tmp_path / "run", force)


_START = """
import sys, time
from pathlib import Path
from lotus.format import run_directory as directory, manifest
from lotus.common.errors import LotusError
sys.stdin.readline()
path = Path(sys.argv[1])
try:
    directory.make(path, sys.argv[2] == "f")
    manifest.write(path, manifest.begin(["x"], manifest.TraceSettings(), {}))
    print("begun", flush=True)
except LotusError as error:
    print(error, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("before", ["nothing", "empty", "run"])
def test_of_starts_at_one_instant_one_records(tmp_path: Path, before: str) -> None:
    path = tmp_path / "run"
    if before == "empty":
        path.mkdir()
    elif before == "run":
        simulate(path, workers=0, batches=1)
    pipe = subprocess.PIPE
    words = [sys.executable, "-c", _START, str(path), "f" if before == "run" else ""]
    starts = [subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) for _ in range(4)]
    answers = []
    for start in starts:
        assert start.stdin is not None
        start.stdin.write("\n")
        start.stdin.flush()
    for start in starts:
        assert start.stdout is not None
        answers.append(start.stdout.readline())
    for start in starts:
        start.communicate("\n")
    assert answers.count("begun\n") == 1
    assert sum("is recording into" in line for line in answers) == 3


def test_what_was_left_by_a_start_that_was_killed_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "run"
    words = [sys.executable, "-c", _START.replace("manifest.write", "sys.exit"), str(path), ""]
    subprocess.run(words, input="\n\n", text=True, check=False)
    assert os.listdir(path) == [run_claim.NAME]
    started(path)


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "it's"
    path.mkdir()
    for mode in (0o777, 0o1777, 0o757):
        path.chmod(mode)
        with pytest.raises(LotusError, match=r"type chmod go-w '.*', or choose another"):
            run_directory.make(path)
    path.chmod(0o755)
    run_directory.make(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_a_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN that all is of somebody else, who made links there that lead elsewhere
    path = tmp_path / "run"
    path.mkdir()
    (path / "events").symlink_to(tmp_path)
    (path / "run.json").symlink_to("/etc/hostname")
    real = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: ANOTHER)
    monkeypatch.setattr(run_directory, "_gets_its_owner", lambda path, owner: False)
    with pytest.raises(LotusError, match=rf"belongs to another user \(number {real}\).*with -o"):
        run_directory.make(path, force=True)
    assert sorted(os.listdir(path)) == ["events", "run.json"]
    # A new one there is made as ever.
    run_directory.make(tmp_path / "new")


def test_a_shared_disk_that_gives_all_files_one_owner_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: ANOTHER)
    run_directory.make(tmp_path / "run")
    assert os.listdir(tmp_path / "run") == [run_claim.NAME]


def test_lotus_runs_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "lotus-runs").symlink_to("elsewhere")
    run_directory.make_default(["python", "x.py"])
    monkeypatch.setattr(run_directory, "_gets_its_owner", lambda path, owner: False)
    monkeypatch.setattr(os, "geteuid", lambda: ANOTHER)
    # Where all around is of one user, it is no trap.
    run_directory.make_default(["python", "x.py"])
    stat_of = Path.stat

    def above(self: Path, **options: bool) -> os.stat_result:
        status = stat_of(self, **options)  # type: ignore[arg-type]
        if self == tmp_path:
            return os.stat_result((*status[:4], ANOTHER, *status[5:10]))
        return status

    monkeypatch.setattr(Path, "stat", above)
    with pytest.raises(LotusError, match="belongs to another user"):
        run_directory.make_default(["python", "x.py"])


def test_force_removes_hard_links_and_writes_nothing_through_them(tmp_path: Path) -> None:
    path = simulate(tmp_path / "run", workers=0, batches=1)
    kept = tmp_path / "kept"
    for name in ("processes.jsonl", "perf.data", "perf.data.old"):
        kept.write_text("mine")
        (path / name).unlink(missing_ok=True)
        os.link(kept, path / name)
    run_directory.make(path, force=True)
    assert kept.read_text() == "mine"
    assert os.listdir(path) == [run_claim.NAME]


def test_a_run_that_is_being_recorded_is_not_overwritten(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", _START, str(path), ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as recorder:
        assert recorder.stdin is not None
        assert recorder.stdout is not None
        recorder.stdin.write("\n")
        recorder.stdin.flush()
        assert recorder.stdout.readline() == "begun\n"
        assert cli.main(["trace", "-f", "-o", str(path), "--", "true"]) == 2
        err = capfd.readouterr().err
        who = f"lotus: lotus (process {recorder.pid})"
        assert err == f"{who} is recording into {path}; choose another directory with -o\n"
        recorder.communicate("\n")
    run_directory.make(path, force=True)


_WATCHED = """
import os, sys
from lotus import cli
seen = []
sys.addaudithook(lambda event, args: seen.append((event, args)) if event in (
    "open", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork_exec") else None)
code = cli.main(sys.argv[3:])
opened = [os.fsdecode(args[0]) for event, args in seen
          if event == "open" and isinstance(args[0], (str, bytes))]
print("opened", sys.argv[2] in opened, file=sys.stderr)
print("perf", any("perf" in str(args[0]) for event, args in seen if event != "open"),
      file=sys.stderr)
sys.exit(code)
"""


def with_samples(path: Path, library: Path) -> Path:
    """A run whose samples say that they fell into a library."""
    simulate(path, workers=1, batches=4)
    load(path)
    times = range(START_NS + 20 * MS, START_NS + 80 * MS, MS)
    records = perf_files.mmap(1, 101, 0x1000, str(library))
    records += b"".join(perf_files.sample(time, 0x1500, 101, 101) for time in times)
    perf_files.write(path / "perf.data", records)
    return path


@pytest.mark.parametrize(
    "words", [["map"], ["report"], ["export", "--format", "folded"], ["map", "validate"]]
)
def test_for_a_foreign_run_nothing_outside_of_it_is_opened(
    tmp_path: Path, words: list[str]
) -> None:
    # GIVEN a run whose samples name a file of this machine, and a copy of it
    library = tmp_path / "library.so"
    shutil.copyfile(sys.executable, library)
    path = with_samples(tmp_path / "run", library)
    shutil.copytree(path, tmp_path / "copied")

    def opened(place: Path, *more: str) -> tuple[str, str]:
        target = ["-o", str(tmp_path / "out"), "-f"] if words[0] == "export" else []
        options = [*words, str(place), *target, *more]
        done = subprocess.run(
            [sys.executable, "-c", _WATCHED, "-", str(library), *options],
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "10000"},
        )
        return done.stderr, done.stdout

    # WHEN they are read, THEN the file is opened for the one, and for the other with --trust
    assert "opened True" in opened(path)[0]
    error, shown = opened(tmp_path / "copied")
    assert "opened False" in error
    assert "opened True" in opened(tmp_path / "copied", "--trust")[0]
    if words == ["map"]:
        assert "--trust opens them" in " ".join(shown.split())


def test_perf_gets_no_file_of_a_foreign_run(tmp_path: Path) -> None:
    # GIVEN samples that only perf can read
    path = simulate(tmp_path / "run", workers=1, batches=4)
    shutil.copyfile(perf_files.TRACES / "pipe.data", path / "perf.data")
    shutil.copytree(path, tmp_path / "copied")
    for place, trusted in ((path, True), (tmp_path / "copied", False)):
        done = subprocess.run(
            [sys.executable, "-c", _WATCHED, "-", "x", "map", str(place)],
            capture_output=True,
            text=True,
        )
        assert f"perf {trusted}" in done.stderr, done.stderr
        if not trusted:
            assert "lotus map --trust" in done.stderr


def test_no_program_looks_at_the_processes_that_a_foreign_run_names(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = simulate(tmp_path / "run", workers=1, batches=4)
    shutil.copytree(path, tmp_path / "copied")
    assert cli.main(["top", "--once", "--stacks", str(path)]) == 0
    assert cli.main(["top", "--once", "--stacks", str(tmp_path / "copied")]) == 2
    assert "leave out --stacks" in capfd.readouterr().err
