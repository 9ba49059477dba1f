"""Resize of a tensor of uint8 by torchvision's v2, in place of a picture of Pillow's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ._operations import is_of

TITLE = "resize tensors of uint8 (torchvision.transforms.v2)"
CHANGE = (
    "v2.PILToTensor() or torchvision.io first, then v2.Resize(..., antialias=True), and "
    "v2.ToDtype(torch.float32, scale=True) at last"
)
KNOWN = "all later operations, and sending, then have a quarter of the bytes until ToDtype"
# Of torchvision's v1: they take tensors of uint8, too.
_ON_TENSORS = ("CenterCrop", "RandomCrop", "RandomHorizontalFlip", "RandomVerticalFlip")


def offers(operations: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield an offer if Resize gets Pillow pictures."""
    from torchvision.transforms import v2
    from torchvision.transforms.functional import pil_to_tensor

    for operation in operations:
        if not is_of(operation.transform, "Resize"):
            continue
        pictures = [
            value for value in operation.inputs if getattr(value, "mode", "") in ("L", "RGB")
        ]
        resize = v2.Resize(
            operation.transform.size, operation.transform.interpolation, antialias=True
        )

        def by_pillow(picture: Any, operation: Any = operation) -> Any:
            return pil_to_tensor(operation.run(picture))

        def as_tensor(picture: Any, resize: Any = resize) -> Any:
            return resize(pil_to_tensor(picture))

        yield (operation.name,), by_pillow, as_tensor, pictures


def edits(operations: Sequence[Any]) -> list[list[str]]:
    """Return the change of code, if only known operations lie between Resize and ToTensor."""
    kinds = [type(operation.transform).__name__ for operation in operations]
    if "Resize" not in kinds or "ToTensor" not in kinds:
        return []
    between = kinds[kinds.index("Resize") + 1 : kinds.index("ToTensor")]
    if not {*between} <= {*_ON_TENSORS}:
        return []
    return [
        ["import", "import torch"],
        ["import", "from torchvision.transforms import v2"],
        ["before", "Resize", "v2.PILToTensor()"],
        ["replace", "Resize", "v2.Resize({args})"],
        ["replace", "ToTensor", "v2.ToDtype(torch.float32, scale=True)"],
    ]
