"""Pillow's draft mode: a JPEG is decoded at a half, quarter or eighth of its size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

TITLE = "decode a JPEG in draft mode before a large downscale"
CHANGE = (
    "picture = Image.open(path); picture.draft('RGB', (2 * width, 2 * height)); "
    "picture.convert('RGB'), where width x height is what Resize leaves at least"
)
KNOWN = "it needs pictures that are at least four times as wide and high as what is left of them"
_ROOM = 2  # times the size that is left: the rest is resized as before


def offers(operations: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Where Resize to a smaller size follows the decoder of files at once."""
    from PIL import Image

    for first, second in itertools.pairwise(operations):
        if type(second.transform).__name__ != "Resize":
            continue
        size = second.transform.size
        least = max(size) if isinstance(size, (list, tuple)) else size
        paths = [path for path in first.inputs if isinstance(path, str) and _fits(path, least)]
        if not paths or getattr(first.run(paths[0]), "mode", "") != "RGB":
            continue

        def as_it_is(path: Any, first: Any = first, second: Any = second) -> Any:
            return second.run(first.run(path))

        def drafted(path: Any, second: Any = second, least: Any = least) -> Any:
            with Image.open(path) as picture:
                side = _ROOM * least
                scale = side / min(picture.size)
                picture.draft("RGB", tuple(int(length * scale) for length in picture.size))
                return second.run(picture.convert("RGB"))

        yield (first.name, second.name), as_it_is, drafted, paths


def _fits(path: str, least: int) -> bool:
    """Whether it is a JPEG that may be decoded smaller and still has room."""
    from PIL import Image

    try:
        with Image.open(path) as picture:
            return bool(picture.format == "JPEG" and min(picture.size) >= 2 * _ROOM * least)
    except OSError:
        return False
