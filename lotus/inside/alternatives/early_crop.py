"""Crops and flips before ToTensor and Normalize, in place of after them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

TITLE = "crop and flip before ToTensor and Normalize"
CHANGE = "put the crops and flips in front of ToTensor in the list of operations"
KNOWN = (
    "ToTensor and Normalize treat each pixel alone, and crops and flips move pixels: they commute, "
    "but where a crop pads; random numbers are drawn in the same order"
)
EXACT = True
DRAWS = ("torch",)  # generators

_CROPS = ("CenterCrop", "RandomCrop")
_FLIPS = ("RandomHorizontalFlip", "RandomVerticalFlip")


def stand_ins(operations: Sequence[Any]) -> Iterator[tuple[int, int, list[Any]]]:
    """Yield a stand-in if crops and flips lie between ToTensor and Normalize, or after both.

    After Normalize, the result of a crop would have different strides if nothing copies it.
    """
    from torchvision.transforms import transforms

    kinds = [type(operation.transform) for operation in operations]
    movable = {getattr(transforms, name) for name in (*_CROPS, *_FLIPS)}
    crops = {getattr(transforms, name) for name in _CROPS}
    for first, kind in enumerate(kinds):
        if kind is not transforms.ToTensor:
            continue
        last = first + 1
        while last < len(kinds) and kinds[last] in movable:
            last += 1
        moved = operations[first + 1 : last]
        ends = last < len(kinds) and kinds[last] is transforms.Normalize
        cropped = any(type(each.transform) in crops for each in moved)
        if ends and cropped and all(_pads_nothing(each.transform) for each in moved):
            yield first, last + 1 - first, [EarlyCrop(operations[first], moved, operations[last])]


def _pads_nothing(transform: Any) -> bool:
    return not getattr(transform, "padding", None) and not getattr(
        transform, "pad_if_needed", False
    )


class EarlyCrop:
    """Crops Pillow pictures that are large enough; calls the original for others."""

    def __init__(self, to_tensor: Any, moved: Sequence[Any], normalize: Any) -> None:
        self._to_tensor, self._moved, self._normalize = to_tensor, moved, normalize
        sizes = [each.transform.size for each in moved if hasattr(each.transform, "size")]
        self._height = max(size[0] for size in sizes)
        self._width = max(size[1] for size in sizes)

    def __call__(self, picture: Any) -> Any:
        mode = getattr(picture, "mode", "")
        fits = mode in ("L", "RGB") and (
            picture.size[0] >= self._width and picture.size[1] >= self._height
        )
        values = picture if fits else self._to_tensor.run(picture)
        for operation in self._moved:
            values = operation.run(values)
        if fits:
            values = self._to_tensor.run(values)
        return self._normalize.run(values)
