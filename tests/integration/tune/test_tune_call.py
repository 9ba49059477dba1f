"""`lotus.tune(loader)` in a program of its own: found, confirmed, and nothing left behind."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

# Batches are lists of numbers: for a tensor each process would import what sharing it takes, and
# the main process would wait several times for its worker, which is long on a busy machine.
PROGRAM = """
import json
import multiprocessing
import os
import random
import sys
import threading
import time
import lotus

assert "torch" not in sys.modules
import lotus.settings.space  # the package stays one when it is imported as such
from lotus import tune
assert callable(tune) and tune is lotus.tune

import torch
from concurrent.futures import ThreadPoolExecutor
from torch.utils.data import DataLoader, Dataset

class Waits(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.002)
        return float(index)

def main():
    torch.manual_seed(7)
    loader = DataLoader(Waits(), batch_size=8, shuffle=True, num_workers=1, collate_fn=list)
    before = dict(vars(loader))
    pool = ThreadPoolExecutor(1)
    pool.submit(bool).result()  # its thread is there before
    descriptors, children = len(os.listdir("/proc/self/fd")), threading.active_count()
    start = time.monotonic()
    next(iter(loader))  # torch's threads close what it opened a moment later
    opening = time.monotonic() - start  # a busy machine needs more than six seconds for its trials
    state = torch.get_rng_state(), random.getstate()
    called, refused = [], []

    def step(batch):
        if not called:  # in another thread, as of a notebook
            refused.append(pool.submit(lotus.tune, loader).exception())
        called.append(len(batch))
        time.sleep(0.001)

    result = lotus.tune(loader, step, budget=5 + 20 * opening, strategy="random", seed=1)

    assert dict(vars(loader)) == before
    assert torch.equal(torch.get_rng_state(), state[0]) and random.getstate() == state[1]
    while multiprocessing.active_children():  # torch waits five seconds for a worker, then no more
        time.sleep(0.01)
    with open("/proc/self/task/%d/children" % os.getpid()) as file:
        assert not file.read().split()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert threading.active_count() == children

    assert "another lotus.tune() is running" in str(refused[0])

    new = result.loader()
    assert new is not loader and new.dataset is loader.dataset
    batch = next(iter(new))
    without = lotus.tune(loader, budget=1.5, strategy="random")
    print(json.dumps({
        "result": result.as_json(),
        "told": result.explain(),
        "called": len(called),
        "workers": [loader.num_workers, new.num_workers],
        "batch": len(batch),
        "without": without.as_json(),
    }))

if __name__ == "__main__":
    main()
"""


def test_a_loader_is_tuned_in_its_own_process(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    for _ in range(3):  # where the machine stands still for a while nothing is shown to be faster
        run = subprocess.run(
            [sys.executable, script],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        )
        assert run.returncode == 0, run.stderr
        facts = json.loads(run.stdout)
        result = facts["result"]
        if result["benefit"] and not any(trial["failed"] for trial in result["trials"]):
            break
    assert result["own"]["num_workers"] == 1
    # What was opened to see the step was not opened again.
    assert result["trials"][0]["first_batch_s"] == result["watched"]["startup_s"]
    # 17 ms a batch of waiting, 1 ms of step: workers wait together, whatever the machine.
    assert result["benefit"]
    assert result["best"]["num_workers"] >= 2
    assert result["speedup"]["low"] > 1
    assert facts["workers"] == [1, result["best"]["num_workers"]]
    assert facts["batch"] == 8
    assert "DataLoader(..., num_workers=" in facts["told"]
    assert result["watched"]["loader"]["dataset"] == "Waits"
    assert result["watched"]["batches"] == 500
    # The step was really called, while it was watched and in the trials.
    assert facts["called"] > len(result["trials"])
    assert 0.0005 < sorted(result["watched"]["steps_s"])[4] < 0.5
    assert not any(trial["failed"] for trial in result["trials"])
    # The trials were traced: 17 ms a batch of waiting are no CPU time, however much the rest takes.
    own = [row for row in result["operations"] if row["workers"] == 1]
    assert 0 < own[0]["cpu_ms"] < own[0]["time_ms"] - 15
    assert "a worker's time goes to" in facts["told"]
    assert facts["without"]["objective"] == "throughput"
    assert facts["without"]["watched"]["steps_s"] == []


INTERRUPTED = """
import os, signal, threading, time
import lotus
import torch
from torch.utils.data import DataLoader

class Waits(list):
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((8,), float(index))

def main():
    loader = DataLoader(Waits(range(4000)), batch_size=8)
    lotus.tune(loader, budget=0.2)  # all is imported
    threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
    result = lotus.tune(loader, budget=60, strategy="grid")
    print("interrupted", result.interrupted)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

if __name__ == "__main__":
    main()
"""


def test_an_interrupt_gives_what_was_found(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(INTERRUPTED)
    run = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert (run.returncode, run.stdout) == (0, "interrupted True\n"), run.stderr
    assert "Traceback" not in run.stderr
    assert "ignored" not in run.stderr
