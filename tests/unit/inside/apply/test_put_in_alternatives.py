"""Draft mode and early crops in place of a data set's own operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lotus.inside.apply.transform_change import TransformChange, TransformChangeError


def folder(place: Path, width: int, height: int, steps: list[Any]) -> Any:
    """A folder of two smooth JPEGs of this size."""
    image = pytest.importorskip("PIL.Image")
    datasets = pytest.importorskip("torchvision.datasets")
    transforms = pytest.importorskip("torchvision.transforms")
    for number in range(2):
        (place / str(number)).mkdir(parents=True)
        small = image.frombytes("RGB", (4, 3), bytes(range(number, 36 + number)))
        small.resize((width, height)).save(place / str(number) / "0.jpg")
    return datasets.ImageFolder(str(place), transforms.Compose(steps))


def made(dataset: Any, names: list[str], said: list[str]) -> Any:
    """The first picture with alternatives, with the random numbers of a seed."""
    import torch

    change = TransformChange(dataset, names, said.append)
    assert change.names == names
    change.put()
    try:
        torch.manual_seed(1)
        return dataset[0][0]
    finally:
        change.restore()


def test_large_pictures_are_decoded_smaller_together_with_tensors_of_uint8(tmp_path: Path) -> None:
    transforms = pytest.importorskip("torchvision.transforms")
    steps = [transforms.Resize((32, 32)), transforms.ToTensor()]
    large = folder(tmp_path / "large", 800, 600, steps)
    decoder, transform = large.loader, large.transform
    plain, said = large[0][0], list[str]()
    for names in (["draft_decode"], ["draft_decode", "uint8_tensors"]):
        values = made(large, names, said)
        assert values.shape == plain.shape
        assert float((values - plain).abs().max()) < 8 / 255
    assert (large.loader, large.transform, said) == (decoder, transform, [])
    small = folder(tmp_path / "small", 80, 60, steps)
    with pytest.raises(TransformChangeError):
        TransformChange(small, ["draft_decode"], said.append)


def test_crops_come_before_to_tensor_and_nothing_changes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transforms = pytest.importorskip("torchvision.transforms")
    flip = transforms.RandomHorizontalFlip()
    normalize = transforms.Normalize([0.4] * 3, [0.2] * 3)
    for crop in (transforms.RandomCrop((20, 24)), transforms.CenterCrop(100)):
        steps = [transforms.ToTensor(), crop, flip, normalize]
        dataset = folder(tmp_path / type(crop).__name__, 80, 60, steps)
        torch.manual_seed(1)
        plain, said = dataset[0][0], list[str]()
        values = made(dataset, ["early_crop"], said)
        assert torch.equal(values, plain)
        assert (values.stride(), said) == (plain.stride(), [])
    padded = [transforms.ToTensor(), transforms.RandomCrop(20, padding=4), normalize]
    with pytest.raises(TransformChangeError):
        TransformChange(folder(tmp_path / "padded", 80, 60, padded), ["early_crop"], said.append)
