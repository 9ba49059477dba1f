"""The run directory is removed, closed or full while the program runs: it goes on as without us."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.conftest import PROGRAMS, SPEAKING, UNDISTURBED, execute
from tests.launching import LOTUS, PYTHON, SMALL_TORCH


@pytest.fixture
def each(traced, tmp_path):
    """each(command, **folders): meanwhile.py by start method, each with its run in a folder; the
    command may name {run}."""

    def run(command, prefix=(), **folders):
        def trace_one(item):
            method, folder = item
            path = folder / "R"
            words = method, command.format(run=path)
            return traced("meanwhile.py", *words, path=path, prefix=prefix, env=SMALL_TORCH)

        with ThreadPoolExecutor(2) as pool:
            for method, ended in zip(folders, pool.map(trace_one, folders.items()), strict=True):
                assert (ended.code, ended.out) == (0, UNDISTURBED), method
                yield method, ended

    return run


def test_a_run_directory_that_is_removed_costs_one_line(each, tmp_path):
    folders = {name: tmp_path / name for name in ("none", "fork", "spawn")}
    for method, ended in each("rm -r {run}", **folders):
        assert len(ended.messages) == 1, method
        assert "stopped: OSError: the run directory was removed" in ended.messages[0]
        assert ended.err.splitlines() == ended.messages
        assert not ended.path.exists()


def test_a_run_directory_that_becomes_read_only_costs_one_line(each, tmp_path):
    prefix = []
    if os.geteuid() == 0:  # whom permissions do not stop
        if not shutil.which("setpriv"):
            pytest.skip("setpriv is not installed")
        prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    for method, ended in each("chmod -R a-w {run}", prefix, fork=tmp_path):
        subprocess.run(["chmod", "-R", "u+w", ended.path], check=True)
        assert len(ended.messages) == 1, method
        assert "stopped: PermissionError" in ended.messages[0]
        run = ended.run  # what was recorded before is there
        assert len(run.waits) >= 5
        assert run.manifest["state"] == "running"  # its end could not be written


@pytest.fixture
def small_disks(tmp_path):
    """small_disks(*names): a small file system of its own for each."""
    mounted = []

    def mount(*names):
        if os.geteuid() != 0:
            pytest.skip("only root can mount a small file system")
        for name in names:
            folder = tmp_path / name
            folder.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                pytest.skip("mounting is not allowed here")
            mounted.append(folder)
        return dict(zip(names, mounted, strict=True))

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_costs_one_line_and_what_came_before_is_kept(each, small_disks):
    fill = "cat /dev/zero > {run}/fill 2>/dev/null || :"
    for method, ended in each(fill, **small_disks("fork", "spawn")):
        assert len(ended.messages) == 1, method
        assert "No space left" in ended.messages[0]
        run = ended.run
        assert len(run.waits) >= 5
        assert run.lost["what"].str.contains("tracer fault|truncated tail|cut short").any()


# It is to die of a file that grows too large, as a program that is no Python would.
LIMITED = """
import resource, signal, sys
from torch.utils.data import DataLoader
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
for epoch in range(60):
    print(epoch, list(DataLoader(list(range(64)), batch_size=4, collate_fn=sum)))
"""


@pytest.mark.parametrize("limit", [1000, 30_000])
def test_a_limit_on_the_size_of_files_is_not_passed_and_is_named(tmp_path, limit):
    program = [PYTHON, "-c", LIMITED, limit]
    plain = execute(program, tmp_path, tmp_path, env=SMALL_TORCH)
    path = tmp_path / "R"
    words = [*LOTUS, "trace", "-q", "-o", path, "--", *SPEAKING, *program]
    traced = execute(words, tmp_path, path, env=SMALL_TORCH)
    assert (plain.code, plain.err) == (0, "")
    assert (traced.code, traced.out) == (0, plain.out)
    assert len(traced.messages) == 1
    assert f"may not grow past {limit:,} bytes (ulimit -f)" in traced.messages[0]
    logs = list(path.glob("events/*.ltr"))
    assert all(log.stat().st_size <= limit for log in logs)
    if limit > 10_000:
        run = traced.run
        assert len(run.waits) > 40
        assert not run.lost["what"].str.contains("truncated|cut").any()  # no frame is half there


def test_quiet_is_quiet_about_what_stops_it_too(tmp_path):
    path = tmp_path / "R"
    program = [PYTHON, PROGRAMS / "meanwhile.py", "none", f"rm -r {path}/events"]
    words = [*LOTUS, "trace", "-q", "-o", path, "--", *program]
    traced = execute(words, tmp_path, path, env=SMALL_TORCH)
    assert (traced.code, traced.out, traced.err) == (0, UNDISTURBED, "")
    assert traced.run.lost["what"].str.startswith("tracer fault").any()  # it is not hidden
