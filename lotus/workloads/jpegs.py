"""A deterministic data set of JPEGs the size of ImageNet's, in class folders.

    python -m lotus.workloads.jpegs DIRECTORY --images 512

The pictures are made, not taken: soft gradients, a few shapes, and noise at every scale, as
photographs have it, so that a decoder has as much to do as with a photograph (500x375 pixels,
about 110 kB on average, some twice as large as others).
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from lotus.workloads import making

WIDTH, HEIGHT = 500, 375
CLASSES = 8
QUALITY = 94


def picture(number: int) -> Image.Image:
    """Return picture `number` (RGB, 500x375); the pixels are the same each time."""
    random = np.random.Generator(np.random.PCG64(number))
    label = number % CLASSES
    corners = random.integers(40, 216, size=(3, 4, 3))
    corners[..., label % 3] += 12 * (label // 3) - 12  # what there is to learn
    canvas = gradient(corners, (WIDTH, HEIGHT))
    _shapes(canvas, random)
    return with_noise(canvas, random)


def gradient(corners: NDArray[np.int64], size: tuple[int, int]) -> Image.Image:
    """Return a picture of `size` (width, height) with a gradient between random colours."""
    small = Image.fromarray(np.clip(corners, 0, 255).astype(np.uint8))
    return small.resize(size, Image.Resampling.BICUBIC)


def _shapes(canvas: Image.Image, random: np.random.Generator) -> None:
    draw = ImageDraw.Draw(canvas)
    for _ in range(int(random.integers(4, 12))):
        x, y = (int(v) for v in random.integers(0, (WIDTH, HEIGHT)))
        w, h = (int(v) for v in random.integers(15, 160, size=2))
        red, green, blue = (int(v) for v in random.integers(0, 256, size=3))
        kind = draw.ellipse if random.integers(2) else draw.rectangle
        kind((x - w // 2, y - h // 2, x + w // 2, y + h // 2), fill=(red, green, blue))


def with_noise(canvas: Image.Image, random: np.random.Generator) -> Image.Image:
    """Return a picture with noise at eight scales: much in brightness, little in colour."""
    width, height = canvas.size
    strength = float(random.uniform(0.1, 0.5))
    total = np.zeros((height, width, 3), dtype=np.float32)
    for octave in range(8):
        cells = 2 ** (octave + 2)
        size = min(cells, width), min(cells * 3 // 4, height)
        grid = random.integers(0, 256, size=(size[1], size[0], 3), dtype=np.uint8)
        layer = Image.fromarray(grid).resize((width, height), Image.Resampling.BILINEAR)
        noise = np.asarray(layer, dtype=np.float32) - 127.5
        total += (noise[..., :1] + 0.3 * noise) * (strength * 0.9**octave)
    pixels = np.asarray(canvas, dtype=np.float32) + total
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def save(directory: Path, number: int) -> None:
    """Write picture `number` into the folder of its class."""
    folder = directory / f"class_{number % CLASSES}"
    folder.mkdir(exist_ok=True)
    picture(number).save(folder / f"{number:05d}.jpg", quality=QUALITY)


def make(directory: Path, images: int) -> Iterator[int]:
    """Make `images` pictures unless they exist; as `making.make`."""
    return making.make(directory, images, save)


def main() -> None:
    """Make the data set of the command line, with a progress bar if it takes long."""
    parser = argparse.ArgumentParser(description="Make a data set of photo-sized JPEGs.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--images", type=int, default=512)
    args = parser.parse_args()
    made = make(args.directory, args.images)
    making.show(args.directory, args.images, "pictures", made)


if __name__ == "__main__":
    main()
