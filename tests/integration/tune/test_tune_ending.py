"""A program that is ended after its trials: what it had started ends with it, unheard."""

import os
import time
from pathlib import Path

from tests.integration.conftest import LOTUS, PYTHON, Start

PROGRAM = """
import atexit, multiprocessing, os, subprocess, sys, time
from torch.utils.data import DataLoader

class Slow(list):
    def __getitem__(self, index):
        time.sleep(0.002)
        return index

if __name__ == "__main__":
    atexit.register(print, "atexit ran")
    shell = subprocess.Popen(["sh", "-c", "sleep 1000 & wait"])
    away = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    manager = multiprocessing.Manager()
    with open("started", "w") as file:
        print(shell.pid, manager._process.pid, away.pid, file=file)
    try:
        for batch in DataLoader(Slow(range(800)), batch_size=4):
            pass
    finally:
        print("finally ran")
"""


def test_what_a_program_started_ends_with_it_but_what_left_its_group(torch, tmp_path):
    script = tmp_path / "starts.py"
    script.write_text(PROGRAM)
    words = [*LOTUS, "tune", "--budget", "1s", "--", PYTHON, str(script)]
    ended = Start(words, tmp_path, "tune", {}).end()
    assert (ended.code, ended.out) == (0, b""), ended.err.decode()
    shell, manager, away = (int(pid) for pid in (tmp_path / "started").read_text().split())
    for pid in (shell, manager):
        while _runs(pid):
            time.sleep(0.01)
    assert _runs(away)
    os.kill(away, 9)


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


LOADS = """
from torch.utils.data import DataLoader

for batch in DataLoader(range(100000), batch_size=4, num_workers=2):
    pass
"""


def test_no_folder_is_left(torch, tmp_path):
    """Of sockets, through which workers send batches, and of lotus itself."""
    script, scratch = tmp_path / "loads.py", tmp_path / "t"
    script.write_text(LOADS)
    scratch.mkdir()
    words = [*LOTUS, "tune", "-f", "--budget", "1s", "--check", "0s", "--", PYTHON, str(script)]
    ended = Start(words, tmp_path, "tune", {"TMPDIR": str(scratch)}).end()
    assert ended.code == 0, ended.err.decode()
    assert [path.name for path in scratch.iterdir() if "torchinductor" not in path.name] == []
