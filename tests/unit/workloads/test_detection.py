"""Operations on pictures and boxes: a box stays around what it is about, and the made data are
what COCO's are, the same each time."""

import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torch
from PIL import Image, ImageDraw

from lotus.workloads import coco
from lotus.workloads import detection as script


def two_things() -> tuple[Image.Image, script.Target]:
    """A black picture of 100x60 with a red and a green rectangle, and their boxes."""
    image = Image.new("RGB", (100, 60))
    draw = ImageDraw.Draw(image)
    draw.rectangle((10, 20, 39, 49), fill=(255, 0, 0))
    draw.rectangle((70, 4, 89, 9), fill=(0, 255, 0))
    boxes = torch.tensor([[10.0, 20, 40, 50], [70, 4, 90, 10]])
    return image, {"boxes": boxes, "labels": torch.tensor([0, 2])}


def around(image: Image.Image, channel: int) -> list[float]:
    """Return the box around all that has this colour."""
    rows, columns = np.nonzero(np.asarray(image)[..., channel] > 127)
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def test_boxes_are_flipped_with_the_picture() -> None:
    image, target = script.RandomHorizontalFlip(prob=1.0)(*two_things())
    assert target["boxes"].tolist() == [[60, 20, 90, 50], [10, 4, 30, 10]]
    assert around(image, 0) == target["boxes"][0].tolist()
    assert around(image, 1) == target["boxes"][1].tolist()
    assert target["labels"].tolist() == [0, 2]
    again = script.RandomHorizontalFlip(prob=1.0)(image, target)
    assert again[1]["boxes"].equal(two_things()[1]["boxes"])


def test_half_of_the_pictures_are_flipped() -> None:
    random.seed(0)
    flip, (image, target) = script.RandomHorizontalFlip(), two_things()
    flipped = sum(flip(image, target)[0] is not image for _ in range(1000))
    assert 430 < flipped < 570
    assert target["boxes"].equal(two_things()[1]["boxes"])  # not changed in place


@pytest.mark.parametrize(
    ("short", "long", "size"),
    [(120, 1000, (200, 120)), (30, 1000, (50, 30)), (120, 150, (150, 90))],
)
def test_boxes_are_resized_with_the_picture(short: int, long: int, size: tuple[int, int]) -> None:
    image, target = script.Resize(short, long)(*two_things())
    assert image.size == size
    factor = size[0] / 100
    for channel, box in enumerate(target["boxes"].tolist()):
        assert np.allclose(box, around(image, channel), atol=0.51 * max(1, factor))
        assert np.allclose(box, two_things()[1]["boxes"][channel] * factor)


def test_an_upright_picture_is_resized_by_its_width() -> None:
    image = Image.new("RGB", (60, 100))
    resized, _ = script.Resize(30, 1000)(image, two_things()[1])
    assert resized.size == (30, 50)


def test_pixels_become_numbers_around_nought_and_boxes_stay() -> None:
    image, target = two_things()
    pixels, same = script.ToTensor()(image, target)
    assert (pixels.shape, float(pixels.min()), float(pixels.max())) == ((3, 60, 100), 0, 1)
    normal, same = script.Normalize([0.5, 0.5, 0.5], [0.25, 0.5, 1.0])(pixels, same)
    assert normal.amax((1, 2)).tolist() == [2, 1, -0.5]
    assert same["boxes"] is target["boxes"]


def test_batches_are_lists_and_the_model_sees_them_padded() -> None:
    samples = [(torch.ones(3, 40, 50), {"n": torch.tensor(0)}), (torch.ones(3, 33, 90), {})]
    images, targets = script.collate(samples)
    assert [image.shape[1:] for image in images] == [(40, 50), (33, 90)]
    assert targets == [samples[0][1], {}]
    batch = script.batched(images)
    assert batch.shape == (2, 3, 48, 96)
    assert batch[0].sum() == 3 * 40 * 50
    assert batch[1, :, :33, :90].min() == 1


def test_the_loss_looks_at_the_cell_of_the_middle() -> None:
    _, target = two_things()
    output = torch.zeros(1, 4 + 3, 4, 7)
    output[:, 4:] = -20
    for row, column, label, box in (
        (2, 1, 0, (25 / 16 - 1, 35 / 16 - 2, np.log(30 / 16), np.log(30 / 16))),
        (0, 5, 2, (80 / 16 - 5, 7 / 16, np.log(20 / 16), np.log(6 / 16))),
    ):
        output[0, :4, row, column] = torch.tensor(box)
        output[0, 4 + label, row, column] = 20
    assert float(script.detection_loss(output, [target])) < 1e-4
    wrong_class = output.clone()
    wrong_class[0, 4:] = wrong_class[0, 4:].roll(1, 0)
    wrong_box = output + torch.nn.functional.one_hot(torch.tensor(2), 7).view(1, 7, 1, 1)
    assert float(script.detection_loss(wrong_class, [target])) > 5
    assert float(script.detection_loss(wrong_box, [target])) == pytest.approx(1, abs=1e-3)


def test_a_picture_with_nothing_in_it_is_learnt_from_too() -> None:
    nothing = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)}
    image = Image.new("RGB", (100, 60))
    for operation in (script.Resize(30, 90), script.RandomHorizontalFlip(1.0)):
        image, nothing = operation(image, nothing)
        assert nothing["boxes"].shape == (0, 4)
    loss = script.detection_loss(torch.zeros(1, 7, 2, 2, requires_grad=True), [nothing])
    loss.backward()
    assert float(loss.detach()) > 0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "coco"
    list(coco.make(folder, 8))
    return folder


def test_made_boxes_are_in_their_pictures(made: Path) -> None:
    text = (made / "annotations" / "instances_train2017.json").read_text()
    document = json.loads(text)
    assert document.keys() == {"info", "licenses", "images", "annotations", "categories"}
    sizes = {}
    for image in document["images"]:
        with Image.open(made / "train2017" / image["file_name"]) as file:
            assert (file.format, file.size) == ("JPEG", (image["width"], image["height"]))
        sizes[image["id"]] = file.size
    assert len(sizes) == len(list((made / "train2017").iterdir())) == 8
    annotations = document["annotations"]
    assert len({annotation["id"] for annotation in annotations}) == len(annotations) > 8
    for annotation in annotations:
        x, y, width, height = annotation["bbox"]
        assert x >= 0 <= y
        assert width >= 8 <= height
        assert x + width <= sizes[annotation["image_id"]][0]
        assert y + height <= sizes[annotation["image_id"]][1]
        corners = np.array(annotation["segmentation"]).reshape(-1, 2)
        assert [*corners.min(0), *np.ptp(corners, 0)] == annotation["bbox"]
    # Those of the JPEGs depend on the library that writes them.
    pixels = [hashlib.sha256(coco.picture(n).tobytes()).hexdigest()[:16] for n in (0, 1)]
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "ce551bb185032d70"
    assert pixels == ["f2507789687d65d0", "733fbe74a5ddc1bc"]


def test_an_object_is_where_its_box_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coco, "with_noise", lambda canvas, random: canvas)
    for category in coco.CATEGORIES:
        thing = coco.Object(category, 100, 50, 80, 40)
        pictures = []
        for objects in ([], [thing]):
            monkeypatch.setattr(coco, "layout", lambda number, o=objects: ((640, 480), o))
            pictures.append(np.asarray(coco.picture(0)).astype(int))
        rows, columns = np.nonzero((pictures[0] != pictures[1]).any(2))
        ends = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        assert np.allclose(ends, [100, 50, 180, 90], atol=1.01)


def test_a_sample_is_the_same_whoever_asks_and_another_in_each_epoch(made: Path) -> None:
    dataset = script.Coco(str(made), 100, seed=1)
    assert len(dataset) == 8
    lefts = set()
    for epoch in range(8):
        dataset.epoch = epoch
        (image, target), again = dataset[1], dataset[1]
        assert torch.equal(image, again[0])
        assert torch.equal(target["boxes"], again[1]["boxes"])
        assert min(image.shape[1:]) == 100
        assert (target["boxes"] >= 0).all()
        assert (target["boxes"][:, 2] <= image.shape[2]).all()
        assert len(target["labels"]) == len(coco.layout(1)[1])
        assert set(target["labels"].tolist()) <= {0, 1, 2}
        lefts.add(float(target["boxes"].sum()))
    assert len(lefts) == 2  # flipped in some epochs
