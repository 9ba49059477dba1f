"""run.json and the run directory: what is kept, how it is written, when it is overwritten."""

import json
import os
import stat
from pathlib import Path

import pytest

from lotus.common.errors import LotusError
from lotus.common.machine import host
from lotus.format import manifest, run_claim, run_directory
from lotus.format.manifest import TraceSettings
from lotus.reading.run import load
from tests.logs import RunBuilder


def _begin(environ: dict[str, str], *command: str) -> dict[str, object]:
    return manifest.begin(command or ("python", "train.py"), TraceSettings(), environ)


def test_the_command_and_the_environment_are_redacted() -> None:
    environ = {"HOME": "/home/me", "HF_TOKEN": "hf_x", "OMP_NUM_THREADS": "2", "LOTUS_RUN": "/r"}
    record = _begin(environ, "python", "train.py", "--token", "abc")
    assert record["command"] == ["python", "train.py", "--token", "***"]
    assert record["environment"] == {"LOTUS_RUN": "/r", "OMP_NUM_THREADS": "2"}


def test_ranks_come_from_the_environment_or_are_unknown() -> None:
    record = _begin({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "four"})
    assert (record["rank"], record["local_rank"], record["world_size"]) == (3, 1, None)


def test_a_written_manifest_is_private_and_read_back_whole(tmp_path: Path) -> None:
    record = _begin({}, "python", "name-\udcff.py")  # a byte that is no UTF-8
    manifest.write(tmp_path, record)
    ended = manifest.end(record, 3, None, 123)
    manifest.write(tmp_path, ended)
    path = tmp_path / "run.json"
    assert json.loads(path.read_text()) == ended
    assert (ended["state"], ended["exit_code"], ended["end_ns"]) == ("ended", 3, 123)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["run.json"]


def test_a_manifest_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    manifest.write(tmp_path, {"old": True})
    (tmp_path / f".run.json.{os.getpid()}").mkdir()
    with pytest.raises(OSError, match="directory"):
        manifest.write(tmp_path, {"new": True})
    assert json.loads((tmp_path / "run.json").read_text()) == {"old": True}


def test_a_new_run_directory_is_private(tmp_path: Path) -> None:
    run_directory.make(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


def test_a_directory_with_something_else_in_it_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.ltr").write_text("not a run: no run.json")
    for force in (False, True):
        with pytest.raises(LotusError, match="holds no lotus run"):
            run_directory.make(tmp_path, force)
    (tmp_path / "run.json").write_text("")
    with pytest.raises(LotusError, match=r"run\.json is half written or damaged; .*rm -r"):
        run_directory.make(tmp_path, force=True)
    (tmp_path / "run.json").write_text('{"name": "somebody else\'s run.json"}')
    with pytest.raises(LotusError, match="holds no lotus run"):
        run_directory.make(tmp_path, force=True)
    assert sorted(os.listdir(tmp_path)) == ["events", "run.json", "thesis.tex"]
    assert os.listdir(tmp_path / "events") == ["1.ltr"]


def test_an_earlier_run_is_overwritten_only_by_force(tmp_path: Path) -> None:
    manifest.write(tmp_path, _begin({}))
    for name in ("events/1.ltr", "state/1.state", "processes.jsonl", "report.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    with pytest.raises(LotusError, match="-f overwrites it"):
        run_directory.make(tmp_path)
    assert (tmp_path / "events/1.ltr").exists()
    run_directory.make(tmp_path, force=True)
    assert sorted(os.listdir(tmp_path)) == [run_claim.NAME, "report.html"]  # the user's own


def test_force_follows_no_link_out_of_the_run(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "1.ltr").write_text("x")
    run = tmp_path / "run"
    run.mkdir()
    manifest.write(run, _begin({}))
    (run / "events").symlink_to(elsewhere)
    run_directory.make(run, force=True)
    assert (elsewhere / "1.ltr").exists()
    assert os.listdir(run) == [run_claim.NAME]


def test_a_run_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(LotusError) as caught:
            run_directory.make(path)
        assert "\n" not in str(caught.value)


def test_two_runs_of_one_second_get_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "20260101-000000")
    paths = [run_directory.make_default(["python", "src/train it.py"]) for _ in range(3)]
    assert [path.name for path in paths] == [
        "train-it-20260101-000000",
        "train-it-20260101-000000-2",
        "train-it-20260101-000000-3",
    ]
    plain = run_directory.make_plain(["python", "src/train it.py"])
    assert plain.name.startswith("train-it-")
    assert plain not in paths
    assert (plain.stat().st_mode & 0o777, os.listdir(plain)) == (0o700, [])
    assert run_directory.make_default(["torchrun", "-m", "a.b"]).name.startswith("a.b-")
    assert run_directory.make_default(["./../my tool", "x"]).name.startswith("my-tool-")


def _machine(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1_MOUNT = "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"


def test_the_tightest_quota_of_the_cgroups_above_counts(tmp_path: Path) -> None:
    root = _machine(
        tmp_path,
        {
            "proc/self/cgroup": "0::/slice/job/step\n",
            "proc/self/mountinfo": V2_MOUNT,
            "sys/fs/cgroup/slice/cpu.max": "400000 100000\n",
            "sys/fs/cgroup/slice/job/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/slice/job/step/cpu.max": "max 100000\n",
        },
    )
    assert host.cpu_quota(root) == 1.5


def test_a_quota_of_cgroup_v1_counts(tmp_path: Path) -> None:
    root = _machine(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/m\n3:cpu,cpuacct:/job\n0::/\n",
            "proc/self/mountinfo": V1_MOUNT,
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
        },
    )
    assert host.cpu_quota(root) == 0.5


def test_a_container_sees_its_own_quota(tmp_path: Path) -> None:
    root = _machine(
        tmp_path,
        {
            "proc/self/cgroup": "3:cpu:/docker/abc\n",
            "proc/self/mountinfo": V1_MOUNT.replace(" / /sys", " /docker/abc /sys"),
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    assert host.cpu_quota(root) == 2.0


def test_a_machine_that_tells_nothing_is_described_all_the_same(tmp_path: Path) -> None:
    facts = host.facts(tmp_path)
    assert facts["cpu"]["quota"] is None
    assert facts["memory_bytes"] is None
    assert host.shared_memory(tmp_path) is None
    assert facts["boot_id"] is None
    json.dumps(facts)


def test_this_machine_is_described() -> None:
    facts = host.facts()
    assert facts["cpu"]["affinity"] == len(os.sched_getaffinity(0))
    assert facts["memory_bytes"] > 2**28
    assert (host.shared_memory() or 1) > 0
    assert facts["boot_id"]


def test_a_run_that_another_host_records_is_spared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a folder that two hosts share, in which one of them is recording
    run = RunBuilder(tmp_path / "job", host="alpha")
    run.process(100)
    run.save()
    monkeypatch.setattr(run_directory.socket, "gethostname", lambda: "beta")
    # WHEN the other one would record there too, THEN it is told what to do, and nothing is lost
    for force in (False, True):
        with pytest.raises(LotusError, match=r"host alpha is recording in .*job-\$\(hostname\)"):
            run_directory.make(run.path, force)
    assert list(run.path.glob("events/*.ltr"))
    # AND a run whose host has written nothing for a while can be overwritten, as can an own one
    monkeypatch.setattr(run_directory.socket, "gethostname", lambda: "alpha")
    with pytest.raises(LotusError, match="-f overwrites it"):
        run_directory.make(run.path)
    monkeypatch.setattr(run_directory.socket, "gethostname", lambda: "beta")
    for path in (run.path / "run.json", *run.path.glob("*/*")):
        os.utime(path, (0, 0))
    run_directory.make(run.path, force=True)
    assert not list(run.path.glob("events/*.ltr"))


def test_a_folder_of_runs_names_the_newest(tmp_path: Path) -> None:
    for name, seconds in (("alpha", 2), ("beta", 1)):
        RunBuilder(tmp_path / name).end()
        os.utime(tmp_path / name, (seconds, seconds))
    with pytest.raises(LotusError, match=r"holds 2 runs; type: lotus report .*alpha$"):
        load(tmp_path)
    for rank, name in enumerate(("alpha", "beta")):
        path = tmp_path / name / "run.json"
        ranks = [{"rank": rank, "world_size": 2}]
        path.write_text(json.dumps(json.loads(path.read_text()) | {"ranks": ranks}))
    with pytest.raises(LotusError, match=r"lotus report .*alpha; lotus merge makes one run"):
        load(tmp_path)
