"""Resize of pictures of Pillow's in two steps: whole blocks of pixels become one first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ._operations import is_of

TITLE = "resize by reducing first (Pillow's reducing_gap)"
CHANGE = (
    "picture.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0) in place of "
    "Resize, as a function in the list of operations"
)
KNOWN = (
    "it needs pictures that are at least four times as wide and high as what is left of them; for "
    "JPEGs draft mode saves the decoder's time, too; a larger gap, as 3.0, is closer to the "
    "plain resize"
)
_GAP = 2.0


def offers(operations: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield an offer if Resize makes Pillow pictures much smaller."""
    from PIL import Image

    for operation in operations:
        if not is_of(operation.transform, "Resize"):
            continue
        method = getattr(operation.transform.interpolation, "value", None)
        filters = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
        pictures = [value for value in operation.inputs if isinstance(value, Image.Image)]
        sizes = [operation.run(picture).size for picture in pictures]
        large = [
            min(picture.size[0] / size[0], picture.size[1] / size[1]) >= 2 * _GAP
            for picture, size in zip(pictures, sizes, strict=True)
        ]
        if method not in filters or 2 * sum(large) <= len(large):
            continue
        # The result's size for each input size; inputs are copies, so they are known by size only.
        result_sizes = {picture.size: size for picture, size in zip(pictures, sizes, strict=True)}

        def reduced(
            picture: Any, result_sizes: Any = result_sizes, filter: Any = filters[method]
        ) -> Any:
            return picture.resize(result_sizes[picture.size], filter, reducing_gap=_GAP)

        yield (operation.name,), operation.run, reduced, pictures
