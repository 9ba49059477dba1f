"""A loader is shown by its name, where it was built, and where it is iterated."""

import pytest

from lotus.analysis.common.scope import scopes
from tests.integration.conftest import PYTHON, Start

TRAIN = """
import sys, copy
import torch
from torch.utils.data import DataLoader, Dataset
import builder, engine

class Rows(Dataset):
    def __init__(self, root=None):
        self.root = root
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.tensor(index)

class Mine(DataLoader):
    def __init__(self, data, **others):
        super().__init__(data, batch_size=2, **others)

class Quiet(DataLoader):
    def check_worker_number_rationality(self):
        pass

def make(split):
    loader = DataLoader(Rows(), batch_size=2)
    return loader

def main():
    train_loader = DataLoader(Rows(), batch_size=2, num_workers=1)
    data_loader = Mine(Rows("data/val"))
    data = make("test")
    again = builder.again(train_loader)
    built = builder.build(Rows())
    twin = copy.copy(data)
    quiet = Quiet(Rows(), batch_size=2)
    for one in (train_loader, data_loader, data, again, built, twin, quiet):
        engine.run(builder.bar, one)
    for _ in DataLoader(Rows(), batch_size=2):
        pass
    print(DataLoader.__init__.__qualname__, len(train_loader))

main()
"""
ENGINE = """
def run(bar, loader):
    for number, batch in enumerate(bar(loader)):
        print(number, batch.tolist())
"""
BUILDER = """
from torch.utils.data import DataLoader

def bar(loader):
    for batch in loader:
        yield batch

def again(loader):
    return type(loader)(loader.dataset, batch_size=2)

def build(data):
    inner_loader = DataLoader(data, batch_size=2)
    return [inner_loader][0]
"""


@pytest.fixture(scope="module")
def both(torch, tmp_path_factory, trace_command):
    """A program with a helper beside it, that uses a package installed outside site-packages."""
    folder = tmp_path_factory.mktemp("named")
    (folder / "train.py").write_text(TRAIN)
    (folder / "engine.py").write_text(ENGINE)
    site = folder / "vendor"
    (site / "builder-1.0.dist-info").mkdir(parents=True)
    (site / "builder.py").write_text(BUILDER)
    (site / "builder-1.0.dist-info" / "RECORD").write_text("builder.py,sha256=x,1\n")
    env = {"PYTHONPATH": str(site)}
    words = [PYTHON, str(folder / "train.py")]
    return Start(words, folder, "plain", env).end(), trace_command(*words, env=env)


def test_the_program_does_as_without(both):
    plain, traced = both
    assert plain.code == 0, plain.err.decode()
    assert (traced.code, traced.out) == (0, plain.out)


def test_names_and_places(both):
    loaders = both[1].run.loaders
    line = {text: number for number, text in enumerate(TRAIN.splitlines(), 1)}

    def at(text):
        return f"train.py:{next(line[statement] for statement in line if text in statement)}"

    places = (
        loaders[["name", "call_site", "iterated_at"]].astype(object).where(loaders.notna(), None)
    )
    used = "engine.py:3"
    assert [tuple(row) for row in places.to_numpy().tolist()] == [
        ("train_loader", at("train_loader ="), used),
        ("val", at("data_loader ="), used),  # the variable tells nothing, the data's folder does
        ("test", at("loader = DataLoader(Rows(), batch_size=2)"), used),
        ("train_loader", at("train_loader ="), used),  # a package makes the same again
        (None, at("built ="), used),  # what the package does with it is not known
        (None, used, used),  # a copy was not built, nor one whose class keeps torch from telling
        (None, used, used),
        (None, at("for _ in DataLoader"), at("for _ in DataLoader")),
    ]


def test_titles(both):
    titles = {scope.loader: scope.title for scope in scopes(both[1].run)}
    site = both[1].run.loaders["call_site"].tolist()
    assert titles[0] == f"train_loader ({site[0]}, iterated at engine.py:3)"
    assert titles[5] == "Rows at engine.py:3"
    assert titles[7] == f"Rows at {site[7]}"
