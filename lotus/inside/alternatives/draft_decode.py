"""Pillow's draft mode: a JPEG is decoded at a half, quarter or eighth of its size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from ._operations import is_of

TITLE = "decode a JPEG in draft mode before a large downscale"
CHANGE = (
    "picture = Image.open(path); picture.draft('RGB', (2 * width, 2 * height)); "
    "picture.convert('RGB'), where width x height is what Resize leaves at least"
)
KNOWN = "it needs pictures that are at least four times as wide and high as what is left of them"
EXACT = False

_ROOM = (
    2  # the least size after decoding, as a multiple of the result's; the rest is resized as before
)
_DECODERS = ("default_loader", "pil_loader")
_DECODE = '''def decode_small(path):
    """Decode a picture at a smaller size, of which Resize leaves at most half."""
    with Image.open(path) as picture:
        scale = {side} / min(picture.size)
        picture.draft("RGB", [int(length * scale) for length in picture.size])
        return picture.convert("RGB")'''


def stand_ins(operations: Sequence[Any]) -> Iterator[tuple[int, int, list[Any]]]:
    """Yield a stand-in if Resize to a much smaller size follows the decoder for most pictures."""
    import torchvision
    from torchvision.datasets import folder

    if str(torchvision.get_image_backend()) != "PIL":
        return
    for place, (first, second) in enumerate(itertools.pairwise(operations)):
        known = any(getattr(folder, name, None) is first.transform for name in _DECODERS)
        if not known or not is_of(second.transform, "Resize"):
            continue
        side = _side(second.transform)
        large = [_is_large(path, side) for path in first.inputs]
        if 2 * sum(large) > len(large):
            # Include Resize, so that results have the same size.
            yield place, 2, [DraftDecode(first, side), second.transform]


def edits(operations: Sequence[Any]) -> list[list[str]]:
    """Return the change of code, for a data set that is an ImageFolder."""
    sides = [
        _side(operation.transform)
        for operation in operations
        if is_of(operation.transform, "Resize")
    ]
    if len(sides) != 1:
        return []
    return [
        ["import", "from PIL import Image"],
        ["define", _DECODE.replace("{side}", str(sides[0]))],
        ["argument", "ImageFolder", "loader=decode_small"],
    ]


def _side(resize: Any) -> int:
    """Return the least shorter side of a picture before Resize."""
    size = resize.size
    return _ROOM * int(max(size) if isinstance(size, (list, tuple)) else size)


def _is_large(path: Any, side: int) -> bool:
    """Return whether it is a JPEG that is large enough to be decoded at a smaller size."""
    from PIL import Image

    try:
        with Image.open(path) as picture:
            return bool(picture.format == "JPEG" and min(picture.size) >= 2 * side)
    except (OSError, TypeError, ValueError, AttributeError):
        return False


class DraftDecode:
    """Decodes large JPEGs at a smaller size; calls the original for other files."""

    def __init__(self, decoder: Any, side: int) -> None:
        self._decoder, self._side = decoder, side

    def __call__(self, path: Any) -> Any:
        from PIL import Image

        if _is_large(path, self._side):
            try:
                with Image.open(path) as picture:
                    scale = self._side / min(picture.size)
                    picture.draft("RGB", tuple(int(length * scale) for length in picture.size))
                    return picture.convert("RGB")
            except OSError:
                pass  # the original decoder raises the error that the program expects
        return self._decoder.run(path)
