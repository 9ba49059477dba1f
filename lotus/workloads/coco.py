"""A deterministic data set of pictures with objects, in the layout and the format of COCO's.

`train2017/000000000001.jpg` and so on, and `annotations/instances_train2017.json` with the box of
each object. The pictures are made: ellipses, rectangles and triangles of the sizes that COCO's
objects have (a third are small), on soft gradients, in noise.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from lotus.workloads import making
from lotus.workloads.jpegs import gradient, with_noise

# As in COCO, some numbers are not used.
CATEGORIES = {1: "ellipse", 3: "rectangle", 7: "triangle"}
SIZES = ((640, 480), (640, 480), (640, 480), (480, 640), (640, 427), (500, 375))
QUALITY = 94


class Object(NamedTuple):
    """An object in a picture: its category and its box in pixels."""

    category: int
    x: int
    y: int
    width: int
    height: int


def layout(number: int) -> tuple[tuple[int, int], list[Object]]:
    """Return the size of picture `number` and its objects, from back to front."""
    random = np.random.Generator(np.random.PCG64((number, 0)))
    size = SIZES[int(random.integers(len(SIZES)))]
    objects = []
    for _ in range(min(15, int(random.geometric(0.16)) - 1)):  # none in one of six
        category = int(random.choice(list(CATEGORIES)))
        width, height = (int(max(8, 400 * random.power(0.7))) for _ in "wh")
        width, height = min(width, size[0] - 1), min(height, size[1] - 1)
        x, y = int(random.integers(size[0] - width)), int(random.integers(size[1] - height))
        objects.append(Object(category, x, y, width, height))
    return size, objects


def outline(thing: Object) -> list[tuple[int, int]]:
    """Return the corners of a rectangle or a triangle; of an ellipse, those of its box."""
    left, top, right, bottom = thing.x, thing.y, thing.x + thing.width, thing.y + thing.height
    if CATEGORIES[thing.category] == "triangle":
        return [(left, bottom), ((left + right) // 2, top), (right, bottom)]
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def picture(number: int) -> Image.Image:
    """Return picture `number` (RGB); the pixels are the same each time."""
    random = np.random.Generator(np.random.PCG64((number, 1)))
    size, objects = layout(number)
    canvas = gradient(random.integers(40, 216, size=(3, 4, 3)), size)
    draw = ImageDraw.Draw(canvas)
    for thing in objects:
        red, green, blue = (int(v) for v in random.integers(0, 256, size=3))
        if CATEGORIES[thing.category] == "ellipse":
            ends = (thing.x, thing.y, thing.x + thing.width, thing.y + thing.height)
            draw.ellipse(ends, fill=(red, green, blue))
        else:
            draw.polygon(outline(thing), fill=(red, green, blue))
    return with_noise(canvas, random)


def save(directory: Path, number: int) -> None:
    folder = directory / "train2017"
    folder.mkdir(exist_ok=True)
    picture(number).save(folder / _name(number), quality=QUALITY)


def annotate(directory: Path, count: int) -> None:
    """Write the annotations of `count` pictures."""
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(count):
        (width, height), objects = layout(number)
        image = {"id": number + 1, "file_name": _name(number), "width": width, "height": height}
        images.append(image)
        for thing in objects:
            box = [thing.x, thing.y, thing.width, thing.height]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number + 1,
                    "category_id": thing.category,
                    "bbox": box,
                    "area": thing.width * thing.height,
                    "iscrowd": 0,
                    "segmentation": [[value for corner in outline(thing) for value in corner]],
                }
            )
    document = {
        "info": {"description": "made pictures in the format of COCO 2017"},
        "licenses": [],
        "images": images,
        "annotations": annotations,
        "categories": [
            {"id": number, "name": name, "supercategory": "shape"}
            for number, name in CATEGORIES.items()
        ],
    }
    (directory / "annotations").mkdir()
    (directory / "annotations" / "instances_train2017.json").write_text(json.dumps(document))


def _name(number: int) -> str:
    return f"{number + 1:012d}.jpg"


def make(directory: Path, count: int) -> Iterator[int]:
    """Make `count` pictures and their annotations unless they exist; as `making.make`."""
    return making.make(directory, count, save, annotate)
