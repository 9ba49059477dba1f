"""Colour changes after the crops and resizes that leave them fewer pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ._operations import is_of

TITLE = "change colours after crops and resizes"
CHANGE = "put the colour changes behind the crops and resizes in the list of operations"
KNOWN = (
    "resizing mixes neighbouring pixels, so that colours are rounded otherwise, and contrast is "
    "that of what is left of the picture; random numbers are the same, which they would not be if "
    "the operations were only swapped in the list"
)
EXACT = False
DRAWS = ("torch",)  # generators

# They treat each pixel alone, but for the contrast, and draw as much for any size.
_COLOURS = (
    "ColorJitter",
    "Grayscale",
    "RandomGrayscale",
    "RandomInvert",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomSolarize",
)
_FLIPS = ("RandomHorizontalFlip", "RandomVerticalFlip")
_SMALLER = ("CenterCrop", "RandomCrop", "RandomResizedCrop", "Resize")
_DRAWN_FOR = 2  # pixels a side: as many numbers are drawn for them as for the picture


def stand_ins(operations: Sequence[Any]) -> Iterator[tuple[int, int, list[Any]]]:
    """Yield a stand-in for each row of operations that changes colours before it crops."""
    first = 0
    while first < len(operations):
        last = first
        while last < len(operations) and _is_movable(operations[last].transform):
            last += 1
        row = list(operations[first:last])
        while row and not _is_any(row[-1].transform, _SMALLER):
            row.pop()
        while row and not _is_colour(row[0].transform):
            del row[0]
            first += 1
        if row:
            yield first, len(row), [LateColour(row)]
        first = last + 1


def _is_movable(transform: Any) -> bool:
    if is_of(transform, "RandomCrop") and (transform.padding or transform.pad_if_needed):
        return False  # what is padded would change its colour
    return _is_any(transform, (*_FLIPS, *_SMALLER)) or _is_colour(transform)


def _is_colour(transform: Any) -> bool:
    if is_of(transform, "RandomApply"):
        return all(map(_is_colour, transform.transforms))
    return _is_any(transform, _COLOURS)


def _is_any(transform: Any, names: Sequence[str]) -> bool:
    return any(is_of(transform, name) for name in names)


class LateColour:
    """Runs a row of operations in this order: those that move pixels, those that change colours.

    Each draws the random numbers that it would draw in its own place. What is no single picture is
    done in the own order.
    """

    def __init__(self, row: Sequence[Any]) -> None:
        self._row = row

    def __call__(self, picture: Any) -> Any:
        import torch

        sample = _sample(picture)
        if sample is None:
            for operation in self._row:
                picture = operation.run(picture)
            return picture
        late = []
        for operation in self._row:
            if _is_colour(operation.transform):
                late.append((operation, torch.get_rng_state()))
                sample = operation.run(sample)
            else:
                picture = operation.run(picture)
        drawn = torch.get_rng_state()
        for operation, state in late:
            torch.set_rng_state(state)
            picture = operation.run(picture)
        torch.set_rng_state(drawn)
        return picture


def _sample(picture: Any) -> Any:
    """Return some of a picture's pixels, of the same kind; None if it is no picture."""
    import torch

    if isinstance(picture, torch.Tensor) and picture.ndim >= 3 and picture.shape[-3] in (1, 3):
        return picture[..., :_DRAWN_FOR, :_DRAWN_FOR].clone()
    if getattr(picture, "mode", "") in ("L", "RGB"):
        return picture.crop((0, 0, _DRAWN_FOR, _DRAWN_FOR))
    return None
