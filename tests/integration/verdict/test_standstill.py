"""A loop in which nothing moves any more, and whose program is then interrupted."""

from pathlib import Path

import pytest

import lotus
from lotus.analysis.summary import summarise
from lotus.common.machine import py_spy_program
from tests.integration.launched import python, trace

# A thread of the program waits until both workers are at the lock, and interrupts it 25 s later.
HANGING = """
import multiprocessing, os, signal, threading, time
import torch
from torch.utils.data import DataLoader, Dataset

class Locked(Dataset):
    def __init__(self):
        self.lock, self.held = multiprocessing.Lock(), multiprocessing.Semaphore(0)
    def __len__(self):
        return 100
    def __getitem__(self, index):
        if index >= 40:
            self.held.release()
            self.lock.acquire()
        return torch.zeros(4)

def interrupt(held):
    for _ in range(2):
        held.acquire()
    time.sleep(25)
    os.kill(os.getpid(), signal.SIGINT)

data = Locked()
data.lock.acquire()
threading.Thread(target=interrupt, args=(data.held,), daemon=True).start()
for batch in DataLoader(data, batch_size=4, num_workers=2):
    time.sleep(0.01)
"""


def test_it_is_told_where_the_workers_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = trace(*python(tmp_path, HANGING))
    said = " ".join(ended.stderr.decode().split())  # lines are wrapped
    assert "KeyboardInterrupt" in said
    run = lotus.load("run")
    assert set(run.standing["worker"]) >= {0, 1}
    judged = summarise(run).verdict
    assert judged is not None
    assert judged.kind == "standstill"
    assert "workers 0 and 1 stand" in judged.summary
    assert "NOTHING MOVES" in said
    if py_spy_program.find() is not None and not run.no_stacks:
        assert "Locked.__getitem__ (program.py:14)" in said
