"""Resize of a tensor of uint8 by torchvision's v2, in place of a picture of Pillow's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

TITLE = "resize tensors of uint8 (torchvision.transforms.v2)"
CHANGE = (
    "v2.PILToTensor() or torchvision.io first, then v2.Resize(..., antialias=True), and "
    "v2.ToDtype(torch.float32, scale=True) at last"
)
KNOWN = "all later operations, and sending, then have a quarter of the bytes until ToDtype"


def offers(operations: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Where Resize gets pictures of Pillow's."""
    from torchvision.transforms import v2
    from torchvision.transforms.functional import pil_to_tensor

    for operation in operations:
        if type(operation.transform).__name__ != "Resize":
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
