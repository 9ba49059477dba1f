"""`lotus plan` on programs in which each cut can or cannot be kept, by construction."""

import json

import pytest

from tests.integration.conftest import LOTUS, WARM_VISION, Start

PROGRAM = """
import os, random, sys
import numpy as np
import torch
from torch.utils.data import (
    DataLoader, Dataset, IterableDataset, SequentialSampler, Subset, WeightedRandomSampler,
)

words = dict(word.split("=") for word in sys.argv[1:])
kind = words["kind"]
OWN = np.random.default_rng()

def work(value):
    for _ in range(30):
        value = value.sin()
    return value

def shift(value):
    return value + torch.rand(1)

def scale(value):
    return value * float(np.random.random())

class Count:
    calls = 0
    def __call__(self, value):
        self.calls += 1
        return value * 1

class Jitter:
    def __init__(self):
        self.own = random.Random()
    def __call__(self, value):
        return value + self.own.random() + float(OWN.random())

class Rows(Dataset):
    def __init__(self, transform=None):
        self.transform, self.count = transform, 0
        self.file = os.open(words["data"], os.O_RDONLY) if "data" in words else None

    def __len__(self):
        return 40

    def __getitem__(self, index):
        row = work(torch.arange(20_000.0) + index)
        if kind == "noise":
            row += random.random()
        if kind == "own generator":
            row += float(OWN.random())
        if kind == "counted":
            self.count += 1
        if kind == "unseen":
            row += len(os.pread(self.file, 100_000, 0))
        if kind == "writes":
            with open("log", "a") as file:
                file.write("a row")
        if kind == "many files":
            for number in range(20):
                open(f"{words['data']}{number}").close()
        if kind == "fails":
            raise RuntimeError("no such row")
        if kind == "views":
            return self.transform(row), self.transform(row)
        if self.transform is not None:
            row = self.transform(row)
        if kind == "changed after":
            row += 1
        label = index
        if kind == "label":
            label += int(torch.randint(5, (1,)))
        return row, {"label": label, "name": f"row {index}"}

class Backwards(SequentialSampler):
    def __iter__(self):
        print("asked", flush=True)
        return reversed(range(len(self.data_source)))

class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(40))

def pictures(transforms):
    from torchvision import datasets
    return datasets.ImageFolder(words["root"], transforms)

if __name__ == "__main__":
    if kind in ("v1", "v2", "subset"):
        if kind == "v2":
            from torchvision.transforms import v2 as T
            last = T.ToImage()
        else:
            from torchvision import transforms as T
            last = T.ToTensor()
        steps = [T.Resize(32), T.CenterCrop(24), T.RandomHorizontalFlip(), last]
        data = pictures(T.Compose(steps))
        data = Subset(data, range(3, 11)) if kind == "subset" else data
    elif kind == "composed":
        from torchvision import transforms as T
        data = Rows(T.Compose([work, Count(), work]))
    elif kind == "jitter":
        from torchvision import transforms as T
        data = Rows(T.Compose([work, Jitter(), torch.sin]))
    elif kind == "drawing":
        from torchvision import transforms as T
        data = Rows(T.Compose([work, scale, shift]))
    else:
        own = {"own": work, "views": work, "changed after": torch.clone, "label": work}
        data = Stream() if kind == "stream" else Rows(own.get(kind))
    sampler = None
    if words.get("sampler") == "weighted":
        sampler = WeightedRandomSampler([1.0] * 40, 60)
    elif words.get("sampler") == "own":
        sampler = Backwards(data)
    shuffle = kind != "stream" and sampler is None
    loader = DataLoader(data, batch_size=4, shuffle=shuffle, sampler=sampler,
                        num_workers=int(words.get("workers", 0)))
    try:
        for _ in loader:
            pass
    finally:
        print("finally", flush=True)
"""
CASES = {
    "none": {},
    "own": {},
    "own, 2 workers": {"kind": "own", "workers": 2},
    "weighted": {"kind": "own", "sampler": "weighted"},
    "own sampler": {"kind": "own", "sampler": "own"},
    "composed": {},
    "drawing": {},
    "jitter": {},
    "noise": {},
    "own generator": {},
    "label": {},
    "counted": {},
    "changed after": {},
    "views": {},
    "unseen": {},
    "writes": {},
    "many files": {},
    "fails": {},
    "stream": {},
    "v1": {"workers": 2},
    "v2": {},
    "subset": {},
}
OWN = "the data set's own code"
_TOGETHER = 3  # programs that run at once
PICTURES = ("v1", "v2", "subset")


@pytest.fixture(scope="module")
def results(torch, tmp_path_factory):
    """For each of `CASES`: (exit code, document, what was printed, plan.json or None)."""
    pytest.importorskip("torchvision")
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("plan")
    root = folder / "pictures"
    for number in range(12):
        path = root / f"class {number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = (400 + 20 * number, 300)
        image.effect_noise(size, 50).convert("RGB").save(path)
    (folder / "data").write_bytes(bytes(100_000))
    for number in range(20):
        (folder / f"data{number}").touch()
    script = folder / "train.py"
    script.write_text(PROGRAM)
    starts = {}
    caches = {"XDG_CACHE_HOME": str(folder / "caches")}
    for number, (name, words) in enumerate(CASES.items()):
        if number >= _TOGETHER:
            list(starts.values())[number - _TOGETHER].process.wait()
        here = folder / name
        here.mkdir()
        words = {"kind": name, **words, "root": root, "data": folder / "data"}
        command = [*LOTUS, "plan", "--json", "--samples", "4", "--ram", "100MB", "--disk", "0"]
        command += ["--budget", "0s"]
        options = [f"{key}={value}" for key, value in words.items()]
        starts[name] = Start(
            [*command, "--", WARM_VISION, str(script), *options], here, name, caches
        )
    made = {}
    for name, start in starts.items():
        done = start.end()
        text = done.out.decode()
        document = json.loads(text[text.index("{") :]) if "{" in text else None
        written = folder / name / "plan.json"
        settings = json.loads(written.read_text()) if written.exists() else None
        made[name] = (done.code, document, text + done.err.decode(), settings)
    return made


def cuts(results, name):
    """{name of a cut: (whether it can be kept, generators drawn from)}, in their order."""
    code, document, text, _ = results[name]
    assert code == 0, text
    assert "finally" not in text
    assert document["samples"] == 4
    return {each["name"]: (each["why"] is None, each["draws"]) for each in document["cuts"]}


def whys(results, name):
    return [each["why"] for each in results[name][1]["cuts"]]


KEPT, DRAWN = (True, []), (False, ["torch"])


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_can_be_kept_up_to_the_first_random_operation(results, name):
    last = "ToImage" if name == "v2" else "ToTensor"
    assert cuts(results, name) == {
        OWN: KEPT, "Resize": KEPT, "CenterCrop": KEPT, "RandomHorizontalFlip": DRAWN, last: DRAWN,
    }  # fmt: skip
    _, document, _, settings = results[name]
    assert document["path"] == (["dataset"] if name == "subset" else []) + ["transform"]
    assert document["files"]
    assert not document["unseen_files"]
    assert document["cuts"][2]["value"] == "picture RGB 24x24"
    assert document["chosen"]["cut"] == 2
    (entry,) = settings["loaders"]
    assert entry["cache"]["operations"] == ["Resize", "CenterCrop", "RandomHorizontalFlip", last]
    assert entry["cache"]["budget_bytes"] == 100_000_000
    assert entry["loader"]["call_site"].startswith("train.py:")
    assert entry["setting"]["num_workers"] == (2 if name == "v1" else 0)
    before = [each["before_ns"] for each in document["cuts"]]
    after = [each["after_ns"] for each in document["cuts"]]
    assert before == sorted(before)
    assert after == sorted(after, reverse=True)
    assert document["cuts"][0]["bytes"] > document["cuts"][2]["bytes"] > 24 * 24 * 3


@pytest.mark.parametrize("name", ["own", "own, 2 workers"])
def test_an_own_transform_is_one_operation(results, name):
    assert cuts(results, name) == {OWN: KEPT, "work": KEPT}
    _, document, _, settings = results[name]
    assert document["chosen"]["cut"] == 1
    assert settings["loaders"][0]["cache"]["path"] == ["transform"]
    assert document["setting"]["num_workers"] == (2 if "2" in name else 0)


def test_without_a_transform_whole_samples_are_kept(results):
    assert cuts(results, "none") == {OWN: KEPT}
    cache = results["none"][3]["loaders"][0]["cache"]
    assert (cache["path"], cache["cut"], cache["operations"]) == (None, 0, [])


def test_a_transform_that_is_called_twice_leaves_whole_samples(results):
    assert cuts(results, "views") == {OWN: KEPT}
    assert results["views"][1]["path"] is None


def test_an_operation_with_a_state_ends_what_can_be_kept(results):
    document = results["composed"][1]
    kept = [each["why"] is None for each in document["cuts"]]
    assert [each["name"] for each in document["cuts"]] == [OWN, "work", "Count", "work"]
    assert kept == [True, True, False, False]
    assert "the state of Count changes when a sample is made" in document["cuts"][2]["why"]


def test_generators_are_named_where_they_are_drawn_from(results):
    assert cuts(results, "drawing") == {
        OWN: KEPT, "work": KEPT, "scale": (False, ["numpy"]), "shift": (False, ["numpy", "torch"]),
    }  # fmt: skip
    assert cuts(results, "noise") == {OWN: (False, ["python"])}


def test_what_comes_before_a_generator_of_an_operation_is_kept(results):
    kept = [why is None for why in whys(results, "jitter")]
    assert kept == [True, True, False, False]
    assert results["jitter"][1]["chosen"]["cut"] == 1


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("own generator", "it differs when it is made again"),
        ("counted", "the data set's state changes when a sample is made"),
        ("label", "the data set's own code draws random numbers after its transform"),
        ("writes", "the data set writes to files while it makes a sample"),
        ("many files", "a sample is made from more than 16 files"),
        ("changed after", "a sample that is made from it differs from the data set's own"),
    ],
)
def test_what_cannot_be_kept_has_its_reason(results, name, why):
    code, document, text, settings = results[name]
    assert code == 0, text
    assert set(whys(results, name)) == {why}
    assert (document["chosen"], document["output"], settings) == (None, None, None)
    assert document["sentence"].startswith("Do not cache samples: no cut can be cached")


def test_files_that_no_one_sees_are_told(results):
    assert results["unseen"][1]["unseen_files"]
    for name in ("own", *PICTURES):
        assert not results[name][1]["unseen_files"], name


def test_streams_and_data_sets_that_fail_are_refused(results):
    for name, why in (
        ("stream", "its data set is iterable: a sample has no index by which it could be known"),
        ("fails", "a sample cannot be made in the main process: RuntimeError: no such row"),
    ):
        code, document, text, settings = results[name]
        assert (code, settings) == (1, None), text
        assert document["refused"] == why
        assert document["cuts"] == []


def test_hits_are_computed_from_the_sampler(results):
    document = results["weighted"][1]
    assert document["accesses"]["not_followed"] is None
    assert document["accesses"]["epochs"][0]["accesses"] == 60
    assert document["accesses"]["samples"] <= 40
    first, second, *_, last = document["chosen"]["hit_shares"]
    # 60 draws of 40 samples ask for some of them again in epoch 1 already.
    assert 0.2 < first < second <= last
    assert last > 0.9
    assert document["chosen"]["kept_share"] == 1
    shuffled = results["own"][1]
    assert shuffled["accesses"]["not_followed"] is None
    assert shuffled["chosen"]["hit_shares"] == [0, 1]


def test_a_sampler_of_the_program_is_not_asked_for_more_than_the_first_batch(results):
    _, document, text, _ = results["own sampler"]
    assert document["accesses"]["not_followed"] == "it is not torch's own"
    assert document["chosen"]["hit_shares"] == [0, 1]
    assert text.count("asked") <= 1
