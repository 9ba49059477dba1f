"""`lotus plan` trains a program with the cache that it plans, without it, and filling it."""

import json
import re
import signal

import pytest

from tests.integration.conftest import LOTUS, PYTHON, WARM_VISION, Start
from tests.waiting import wait_until

SEEN = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

class Scaled:
    def __call__(self, row):
        for _ in range(200):
            row = row.sin().add(row)
        return row

class Noisy:
    def __call__(self, row):
        return torch.stack([row[:1], torch.rand(1)])

class Rows(Dataset):
    def __init__(self):
        self.transform = transforms.Compose([Scaled(), Noisy()])

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return index, self.transform(torch.full((1000,), float(index)))

if __name__ == "__main__":
    for epoch in range(3):
        for indices, rows in DataLoader(Rows(), 2, shuffle=True, num_workers=int(sys.argv[1])):
            with open("seen", "a") as file:
                for index, (value, drawn) in zip(indices.tolist(), rows[:, :, 0].tolist()):
                    print(index, value, drawn, file=file)
"""
TIMED = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(float(sys.argv[2]))
        return torch.full((100,), float(index))

if __name__ == "__main__":
    try:
        for epoch in range(3):
            for batch in DataLoader(Rows(), batch_size=4, num_workers=int(sys.argv[1])):
                batch.sum()
    finally:
        print("finally")
"""


def planned_in_blocks(folder, program):
    """(document, what was printed) of a plan with a budget in which a round of blocks fits."""
    command = [*LOTUS, "plan", "-f", "--json", "--samples", "4", "--ram", "100MB", "--disk", "0"]
    for budget_s in (15, 60, 240):
        done = Start(
            [*command, "--budget", f"{budget_s}s", "--", *program], folder, "plan", {}
        ).end()
        text = done.out.decode()
        assert done.code == 0, text + done.err.decode()
        document = json.loads(text[text.index("{") :])
        if document["timing"]["rounds"]:
            break
    return document, text


@pytest.mark.parametrize("workers", [0, 2])
def test_the_program_trains_with_what_is_planned_and_without(torch, tmp_path, workers):
    # GIVEN samples that take a while to make, and a cache in which they are found at once
    script = tmp_path / "train.py"
    script.write_text(TIMED)
    document, text = planned_in_blocks(tmp_path, [WARM_VISION, str(script), str(workers), "0.03"])
    timing = document["timing"]
    # THEN blocks were measured, also where other programs made them too uneven for a prediction
    assert timing["epoch_batches"] == 16
    assert timing["rounds"], timing
    assert timing["batches"] >= 3 * 4 * len(timing["rounds"])
    assert timing["why"] is None or "blocks" in timing["why"] or "--budget" in timing["why"]
    # AND samples from the cache need not be waited for
    seconds = [(each["plain_s"], each["cached_s"]) for each in timing["rounds"]]
    assert min(cached for _, cached in seconds) < min(plain for plain, _ in seconds), timing
    assert timing["waiting_share"] > 0.1
    if timing["why"] is None:
        assert timing["times"]["low"] < timing["times"]["mean"] < timing["times"]["high"]
    assert "finally" not in text


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_are_equal_in_all_blocks_and_nothing_stays(torch, tmp_path, workers):
    # GIVEN a program that writes down what it trains on, with a random operation after the cut
    script = tmp_path / "train.py"
    script.write_text(SEEN)
    document, _ = planned_in_blocks(tmp_path, [WARM_VISION, str(script), str(workers)])
    assert document["timing"]["rounds"], document["timing"]
    assert document["cuts"][2]["why"] is not None
    lines = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    # THEN each sample is the same up to the random numbers, which go on
    values, random = {}, set()
    for index, value, drawn in lines:
        values.setdefault(index, set()).add(value)
        random.add(drawn)
    assert len(lines) > 3 * len(values)  # they came again, also from the cache
    assert all(len(each) == 1 for each in values.values())
    assert len(random) > len(values)
    # AND making one takes long enough to tell that they came from the cache
    seconds = [(each["plain_s"], each["cached_s"]) for each in document["timing"]["rounds"]]
    assert min(cached for _, cached in seconds) < min(plain for plain, _ in seconds)


def test_ctrl_c_ends_the_timing_and_leaves_nothing(torch, tmp_path):
    # GIVEN a plan that is about to measure blocks for two minutes
    script = tmp_path / "train.py"
    script.write_text(TIMED)
    cache = tmp_path / "cache"
    command = [*LOTUS, "plan", "--samples", "4", "--ram", "0", "--disk", "100MB"]
    command += ["--budget", "120s", "--folder", str(cache), "--", PYTHON, str(script), "2", "0.1"]
    started = Start(command, tmp_path, "interrupted", {})
    wait_until(lambda: list(cache.glob(".plan-*/*/??/*")), started.process)
    started.process.send_signal(signal.SIGINT)
    done = started.end()
    text = " ".join(done.out.decode().split())
    # THEN it says what is not known and why, plans nothing, and nothing remains
    assert done.code == 130, text + done.err.decode()
    assert "It is not known whether it pays to cache what comes from" in text
    assert "it was interrupted" in text
    assert "lotus run" not in text
    assert not (tmp_path / "plan.json").exists()
    assert not cache.exists()


ENDS = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.full((100,), float(index))

if __name__ == "__main__":
    for number, batch in enumerate(DataLoader(Rows(), batch_size=4)):
        if number == 2:
            sys.exit(3)
"""


def test_reasons_name_no_options_of_other_verbs(torch, tmp_path):
    # GIVEN a program that ends before blocks can be measured
    script = tmp_path / "train.py"
    script.write_text(ENDS)
    command = [*LOTUS, "plan", "--samples", "4", "--ram", "100MB", "--disk", "0"]
    done = Start([*command, "--", WARM_VISION, str(script)], tmp_path, "ends", {}).end()
    text = " ".join(done.out.decode().split())
    assert done.code == 0, text + done.err.decode()
    assert "the program ended (exit code 3) before enough batches" in text
    assert not re.search("--(watch|budget)", text), text
