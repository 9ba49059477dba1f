"""`lotus attach` on processes of another user: a verdict marked as limited, or one line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.attach.attaching import children, running, sleeping
from tests.integration.launched import LOTUS
from tests.waiting import wait_until

NOBODY = 65534
# Files of root may be read, as this Python's may have to be, but no processes.
AS_NOBODY = [
    "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
    "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
]  # fmt: skip
HIDDEN = ["unshare", "--mount", "sh", "-c"]
HIDDEN += ['mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh"]
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="another user's process needs root"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of nobody; those around it may be searched by root only."""
    os.chown(tmp_path, NOBODY, NOBODY)
    return tmp_path


def as_nobody(
    folder: Path, pid: int, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    words = [*before, *AS_NOBODY, *LOTUS, "attach", str(pid), "--seconds", "4"]
    return subprocess.run(words, capture_output=True, text=True, cwd=folder)


def test_where_stacks_are_refused_the_verdict_is_marked_and_the_way_to_more_is_told(
    folder: Path,
) -> None:
    with running(*sleeping(1_000_000)) as program:
        wait_until(lambda: len(children(program.pid)) == 2, program)
        done = as_nobody(folder, program.pid)
        assert program.poll() is None
    said = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stderr
    assert "(sampled)" in said
    assert "No Python stack could be read" in said
    assert f"Process {program.pid} belongs to root: the kernel refuses its stacks" in said
    # The script beside this Python, if it is there.
    ways = (f"{os.path.dirname(sys.executable)}/lotus", f"{sys.executable} -m lotus")
    assert any(f"sudo {way} attach {program.pid}," in said for way in ways)
    assert "--cap-add SYS_PTRACE" in said


def test_where_too_little_can_be_read_it_is_one_line(folder: Path) -> None:
    with running(sys.executable, "-c", "import time; time.sleep(1000)") as alone:
        done = as_nobody(folder, alone.pid)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert f"too little could be read of process {alone.pid} for a verdict" in done.stderr
        assert f" attach {alone.pid}, in a container" in done.stderr
        hidden = as_nobody(folder, alone.pid, tuple(HIDDEN))
    if "mount" not in hidden.stderr:  # it may be forbidden here
        assert (hidden.returncode, hidden.stderr.count("\n")) == (2, 1), hidden.stderr
        assert "belongs to another user, and nothing of it may be read; try: sudo" in hidden.stderr
    with running("sleep", "1000") as other:
        done = as_nobody(folder, other.pid)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "belongs to root, and what trains there may not be read; try: sudo" in done.stderr
