"""Diffs of a program's code: the right place, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from lotus.advise.alternatives import code_change
from lotus.advise.alternatives.code_change import CodePlaces

SCRIPT = """\
import torch
from torchvision import datasets, transforms


def main():
    normalize = transforms.Normalize([0.5], [0.2])
    train = datasets.ImageFolder(
        "train",
        transforms.Compose([
            transforms.RandomResizedCrop(224),  # ä
            transforms.ToTensor(),
            normalize,
        ]),
    )
    val = datasets.ImageFolder(
        "val",
        transforms.Compose([transforms.Resize(256), transforms.ToTensor(), normalize]),
    )
    train_loader = torch.utils.data.DataLoader(
        train, batch_size=32, num_workers=2,
    )
    return train_loader, torch.utils.data.DataLoader(val)
"""
TRAIN = ["RandomResizedCrop", "ToTensor", "Normalize"]
VAL = ["Resize", "ToTensor", "Normalize"]


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def found(script: str, kinds: list[str], site: str | None = None) -> CodePlaces:
    places = code_change.find([script, f"{script}.gone"], kinds, site)
    assert places is not None
    return places


def changed(diff: str) -> tuple[list[str], list[str]]:
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
    return (
        [line[1:].strip() for line in lines if line.startswith("-")],
        [line[1:].strip() for line in lines if line.startswith("+") and line[1:].strip()],
    )


def test_the_list_of_the_loaders_own_operations_is_meant(script: str) -> None:
    assert found(script, TRAIN).at("ToTensor") == "train.py:11"
    assert found(script, VAL).at("ToTensor") == "train.py:17"
    assert found(script, TRAIN).at("Normalize") == "train.py:6"  # where the name gets it
    assert code_change.find([script], ["ToTensor"]) is None
    assert code_change.only_calls([script], ["Normalize", "ToTensor"]) == {
        "Normalize": "train.py:6"
    }


def test_calls_are_replaced_removed_and_get_arguments(script: str) -> None:
    code = """def normalized(samples):\n    return {Normalize}(samples)"""
    edits = [
        ["import", "import torch"],  # it is there
        ["import", "from torchvision.transforms import v2"],
        ["define", code],
        ["replace", "RandomResizedCrop", "v2.RandomResizedCrop({args}, antialias=True)"],
        ["before", "ToTensor", "v2.PILToTensor()"],
        ["remove", "Normalize"],
        ["argument", "ImageFolder", "loader=decode"],
        ["argument", "DataLoader", "collate_fn=normalized"],
    ]
    gone, come = changed(found(script, TRAIN, "train.py:19").diff(edits))
    assert come[:3] == [
        "from torchvision.transforms import v2",
        "def normalized(samples):",
        "return transforms.Normalize([0.5], [0.2])(samples)",
    ]
    assert "v2.RandomResizedCrop(224, antialias=True),  # ä" in come
    assert "v2.PILToTensor(), transforms.ToTensor()," in come
    assert "normalize," in gone
    assert "]), loader=decode," in come
    assert "train, batch_size=32, num_workers=2, collate_fn=normalized," in come


@pytest.mark.parametrize(
    "edit",
    [
        ["argument", "DataLoader", "collate_fn=f"],  # of two, and no line says which
        ["argument", "DataLoader", "num_workers=f"],
        ["replace", "Normalize", "other()"],  # the other list uses the name, too
        ["remove", "Resize"],  # it is in the other list
    ],
)
def test_where_the_place_is_not_certain_there_is_no_diff(script: str, edit: list[str]) -> None:
    assert found(script, TRAIN).diff([edit]) == ""


def test_names_of_a_function_are_not_known_above_it(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import a\ndef f(mean):\n    return [a.Normalize(mean)]\n")
    places = found(str(path), ["Normalize"])
    assert places.diff([["define", "x = {Normalize}"]]) == ""
    assert places.diff([["remove", "Normalize"]]) == ""  # nothing would be left
    path.write_text("def f(:\n")
    assert code_change.find([str(path)], ["Normalize"]) is None
