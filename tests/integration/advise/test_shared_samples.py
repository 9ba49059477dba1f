"""Two loaders that share operations share samples and costs: `lotus plan` counts what is known."""

import json

import pytest

from tests.integration.conftest import LOTUS, WARM_VISION, Start

PROGRAM = """
import hashlib
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T

def work(value):
    for _ in range(30):
        value = value.sin()
    return value

class Rows(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return self.transform(torch.arange(20_000.0) + index)

def flip(row):
    return row.flip(0) if torch.rand(1) < 0.5 else row

training = DataLoader(Rows(T.Compose([work, flip])), 4, shuffle=True)
validation = DataLoader(Rows(T.Compose([work, torch.sqrt])), 4)
torch.manual_seed(3)
digest = hashlib.sha256()
for loader in (training, validation):
    for rows in loader:
        digest.update(rows.numpy().tobytes())
print(digest.hexdigest())
"""


@pytest.fixture
def started(torch, tmp_path):
    """started(*words): what `lotus WORDS -- PROGRAM` prints; without words, the program alone."""
    pytest.importorskip("torchvision")
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)

    def start(*words):
        command = [*LOTUS, *words, "--"] if words else []
        command += [WARM_VISION, str(script)]
        caches = {"XDG_CACHE_HOME": str(tmp_path / "caches")}
        done = Start(command, tmp_path, words[0] if words else "plain", caches).end()
        assert done.code == 0, done.err.decode()
        return done.out.decode()

    return start


def test_a_plan_counts_what_another_loader_has_cached(started):
    def plan(line, output):
        options = ("--budget", "0s", "--ram", "0", "--samples", "4", "-o", output)
        text = started("plan", "--json", *options, "--loader", f"train.py:{line}")
        return json.loads(text[text.index("{") :])

    lines = PROGRAM.splitlines()
    first, second = (
        next(number for number, line in enumerate(lines, 1) if line.startswith(name))
        for name in ("training =", "validation =")
    )
    # GIVEN a plan for training, whose last cut before random numbers both loaders have
    document = plan(first, "first.json")
    assert document["shared"] == []
    (other,) = document["other_loaders"]
    site = other["call_site"].rpartition("/")[2]
    assert (site, other["cut"], other["overlap_share"]) == (f"train.py:{second}", 1, 1.0)
    assert document["chosen"]["cut"] == 1
    # WHEN training has filled the cache
    plain = started()
    assert started("run", "--settings", "first.json") == plain
    # THEN the plan for validation counts all its samples
    document = plan(second, "second.json")
    # and predicts the operation that it knows by the first plan
    costs = {each["name"]: each for each in document["costs"]["operations"]}
    assert (costs["work"]["plans"], costs["sqrt"]["predicted"]) == (1, None)
    assert costs["work"]["predicted"]["ns"] > 0
    assert document["costs"]["measured_ns"] >= costs["work"]["measured_ns"] > 0
    (shared,) = document["shared"]
    assert (shared["cut"], shared["samples"], shared["present_share"]) == (1, 40, 1.0)
    assert shared["program"] == "train.py"
    (offer,) = [each for each in document["offers"] if each["cut"] == 1]
    assert (offer["present_share"], offer["added_bytes"]) == (1.0, 0.0)
    # and without a measurement, all operations of it are predicted
    text = started("plan", "--known", "--json", "--loader", f"train.py:{second}")
    costs = json.loads(text[text.index("{") :])["costs"]
    assert [each["measured_ns"] for each in costs["operations"]] == [None] * 3
    assert {each["name"] for each in costs["operations"] if each["predicted"]} >= {"work", "sqrt"}
    # and together they still give the same batches
    assert started("run", "--settings", "first.json", "--settings", "second.json") == plain
