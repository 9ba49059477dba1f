"""Tiny pictures in the format of CIFAR-10's binary version: read as they were written, the same
each time, and with something to be learnt in them."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torch

from lotus.workloads import cifar
from lotus.workloads import tiny_images as script


def test_files_of_the_binary_version_are_read_by_rows_and_colours(tmp_path: Path) -> None:
    record = np.zeros((2, 3073), np.uint8)
    record[:, 0] = 3, 9
    record[1, 1 + 1024 + 32 * 5 + 7] = 200  # green, row 5, column 7
    (tmp_path / "data_batch_10.bin").write_bytes(record[1].tobytes())
    (tmp_path / "data_batch_2.bin").write_bytes(record[0].tobytes())
    images = script.read_cifar(str(tmp_path))
    assert images.targets == [3, 9]
    assert images.data.shape == (2, 32, 32, 3)
    assert np.argwhere(images.data).tolist() == [[1, 5, 7, 1]]
    tensor, label = images[1]
    assert (tensor.shape, label) == ((3, 32, 32), 9)
    assert float(tensor[1, 5, 7]) == pytest.approx((200 / 255 - 0.482) / 0.243)


def test_tiny_pictures_are_the_same_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cifar, "PICTURES", 100)
    assert list(cifar.make(tmp_path / "data", 250)) == [100, 200, 250]
    files = sorted((tmp_path / "data").iterdir())
    assert [file.name for file in files] == [f"data_batch_{n}.bin" for n in (1, 2, 3)]
    assert [file.stat().st_size for file in files] == [307_300, 307_300, 153_650]
    digests = [hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files]
    assert digests == ["528e2c90ca3aa823", "c79492af326434b9", "8e272e5d1788f7e9"]
    assert len(script.read_cifar(str(tmp_path / "data"))) == 250


def test_no_sum_of_shades_is_too_large_for_a_byte() -> None:
    # A shade that begins again at 0 would be noise.
    made = cifar.records(0, 2000)
    for label in range(cifar.CLASSES):
        pixels = made[made[:, 0] == label, 1:].reshape(-1, 3, 32, 32)
        lowest = np.array(6 * label, np.uint8)
        assert pixels.min() == lowest
        assert pixels[:, label % 3].mean() > pixels[:, (label + 1) % 3].mean() + 20


def test_noise_is_another_for_each_seed() -> None:
    first, again, other = (script.noise(10, seed) for seed in (0, 0, 1))
    assert np.array_equal(first.data, again.data)
    assert first.targets == again.targets
    assert not np.array_equal(first.data, other.data)
    assert script.tiny_network()(torch.stack([first[0][0]])).shape == (1, 10)
