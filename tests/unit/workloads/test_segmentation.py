"""Operations on scans and masks: a mask moves with its scan, crops have foreground as often as
they should, and the made scans are the same each time."""

import hashlib
import random
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torch

from lotus.workloads import segmentation as script
from lotus.workloads import volumes


def numbered(*shape: int) -> script.Sample:
    """A scan whose every voxel is another number, with a mask that says the same of each."""
    image = np.arange(np.prod(shape), dtype=np.float32).reshape(1, *shape)
    return {"image": image, "label": (image % 3).astype(np.uint8)}


def one_voxel(at: tuple[int, int, int], label: int = 2) -> script.Sample:
    mask = np.zeros((1, 20, 20, 20), np.uint8)
    mask[(0, *at)] = label
    return {"image": mask.astype(np.float32), "label": mask}


def test_the_mask_is_cut_where_the_scan_is() -> None:
    random.seed(1)
    whole = numbered(9, 10, 11)
    for oversampling in (0.0, 1.0):
        crop = script.RandBalancedCrop(8, oversampling)
        for _ in range(20):
            cut = crop(dict(whole))
            assert cut["image"].shape == cut["label"].shape == (1, 8, 8, 8)
            assert np.array_equal(cut["label"], cut["image"] % 3)


@pytest.mark.parametrize(
    ("at", "possible"),
    [((0, 0, 0), 1), ((19, 19, 19), 1), ((0, 19, 7), 6), ((1, 18, 7), 24), ((10, 10, 10), 216)],
)
def test_a_balanced_crop_has_the_foreground_anywhere_in_it(
    at: tuple[int, int, int], possible: int
) -> None:
    crop = script.RandBalancedCrop(6, oversampling=1.0)
    places = set()
    for seed in range(8 * possible):
        random.seed(seed)
        cut = crop(one_voxel(at))["label"]
        assert cut.shape == (1, 6, 6, 6)
        assert cut.max() == 2
        places.add(int(np.flatnonzero(cut)[0]))
    assert len(places) == possible


def test_crops_have_foreground_as_often_as_they_should() -> None:
    random.seed(5)
    sample, crop = one_voxel((3, 3, 3)), script.RandBalancedCrop(4, oversampling=0.4)
    share = sum(bool(crop(sample)["label"].any()) for _ in range(2000)) / 2000
    # Of the others one in (17/4)^3 has it by chance; four standard deviations to either side.
    expected = 0.4 + 0.6 * (4 / 17) ** 3
    assert abs(share - expected) < 4 * (0.25 / 2000) ** 0.5


def test_each_class_is_cut_around_as_often_however_large_it_is() -> None:
    random.seed(2)
    mask = np.zeros((1, 20, 20, 20), np.uint8)
    mask[0, :, :, 12:] = 1
    mask[0, 2, 2, 2] = 2
    crop = script.RandBalancedCrop(4, oversampling=1.0)
    sample = {"image": mask.astype(np.float32), "label": mask}
    tumours = sum(crop(sample)["label"].max() == 2 for _ in range(400))
    assert 160 < tumours < 240


def test_without_foreground_any_crop_will_do() -> None:
    random.seed(0)
    empty = {name: array * 0 for name, array in numbered(6, 6, 6).items()}
    assert script.RandBalancedCrop(6, 1.0)(empty)["label"].shape == (1, 6, 6, 6)


def test_the_mask_is_flipped_as_the_scan_is() -> None:
    flip, seen = script.RandFlip(), set()
    whole = numbered(2, 3, 4)
    for seed in range(200):
        random.seed(seed)
        flipped = flip(dict(whole))
        assert np.array_equal(flipped["label"], flipped["image"] % 3)
        assert np.array_equal(np.sort(flipped["image"].ravel()), whole["image"].ravel())
        seen.add(int(flipped["image"][0, 0, 0, 0]))
    assert seen == {0, 3, 8, 11, 12, 15, 20, 23}  # each corner came to the front


def test_types_brightness_and_noise_leave_the_mask_alone() -> None:
    random.seed(0)
    whole = numbered(4, 4, 4)
    cast = script.Cast(np.float32, np.int64)(dict(whole))
    assert (cast["image"].dtype, cast["label"].dtype) == (np.float32, np.int64)
    brighter = script.RandomBrightnessAugmentation(0.3, prob=1.0)(dict(whole))
    factor = brighter["image"].max() / whole["image"].max()
    assert 0.7 <= factor <= 1.3
    assert factor != 1
    assert np.allclose(brighter["image"], whole["image"] * factor)
    noisy = script.GaussianNoise(0.1, prob=1.0)(dict(whole))
    assert 0 < np.abs(noisy["image"] - whole["image"]).max() < 1
    for changed in (brighter, noisy):
        assert changed["label"] is whole["label"]
        assert changed["image"].dtype == np.float32
    never = (script.RandomBrightnessAugmentation(0.3, 0.0), script.GaussianNoise(0.1, 0.0))
    assert all(operation(whole)["image"] is whole["image"] for operation in never)


def test_a_sample_is_the_same_whoever_asks_and_another_in_each_epoch(tmp_path: Path) -> None:
    list(volumes.make(tmp_path / "data", 2))
    cases = script.Cases(str(tmp_path / "data"), 32, seed=3)
    random.seed(99)
    image, label = cases[1]
    random.seed(7)
    again, _ = cases[1]
    cases.epoch = 1
    other, _ = cases[1]
    assert (image.shape, label.shape) == ((1, 32, 32, 32), (32, 32, 32))
    assert (image.dtype, label.dtype) == (torch.float32, torch.int64)
    assert torch.equal(image, again)
    assert not torch.equal(image, other)


def test_the_loss_is_less_the_better_the_answer() -> None:
    labels = torch.randint(3, (1, 4, 4, 4), generator=torch.Generator().manual_seed(0))
    right = 10 * torch.nn.functional.one_hot(labels, 3).permute(0, 4, 1, 2, 3).float()
    losses = [float(script.dice_and_cross_entropy(x, labels)) for x in (right, 0 * right, -right)]
    assert losses[0] < 0.01 < losses[1] < losses[2]


def test_scans_are_made_as_mlperf_prepares_them_and_the_same_each_time(tmp_path: Path) -> None:
    list(volumes.make(tmp_path / "data", 2))
    names = [f"case_{number:05d}_{kind}.npy" for number in (0, 1) for kind in "xy"]
    files = sorted((tmp_path / "data").iterdir())
    assert [file.name for file in files] == names
    for x, y in (files[:2], files[2:]):
        scan, mask = np.load(x), np.load(y)
        assert (scan.dtype, mask.dtype) == (np.float32, np.uint8)
        assert scan.shape == mask.shape == (1, scan.shape[1], 128, 128)
        assert 80 <= scan.shape[1] <= 112
        assert abs(scan.mean()) < 1e-3
        assert abs(scan.std() - 1) < 1e-3
        shares = np.bincount(mask.ravel(), minlength=3) / mask.size
        assert shares[0] > 0.9
        assert 0.005 < shares[1] < 0.1
        assert 0.0001 < shares[2] < 0.02
    digests = [hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files]
    assert digests == [
        "e62a2dec64548a6c",
        "3e4023b64facf860",
        "84f31373dce14f01",
        "8ec30e8b678846a3",
    ]
