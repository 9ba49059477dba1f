"""torchvision's own decoder of JPEG and PNG files, in place of Pillow's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

TITLE = "decode with torchvision.io, to a tensor of uint8"
CHANGE = (
    "ImageFolder(..., loader=lambda path: torchvision.io.decode_image(path, mode='RGB')), with "
    "torchvision.transforms.v2 after it, as what follows gets a tensor"
)
KNOWN = (
    "decoded pictures are not exactly alike where another libjpeg or another setting decodes; from "
    "0.29 on torchvision calls its decoders deprecated, in favour of TorchCodec"
)
_ENDINGS = (".jpg", ".jpeg", ".png")


def offers(operations: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield an offer if an operation makes a Pillow picture from a path."""
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms.functional import pil_to_tensor

    for operation in operations:
        paths = [
            value
            for value in operation.inputs
            if isinstance(value, str) and value.lower().endswith(_ENDINGS)
        ]
        if not paths or getattr(operation.run(paths[0]), "mode", "") != "RGB":
            continue

        def decoded(path: Any) -> Any:
            return decode_image(path, mode=ImageReadMode.RGB)

        def by_pillow(path: Any, operation: Any = operation) -> Any:
            return pil_to_tensor(operation.run(path))

        yield (operation.name,), by_pillow, decoded, paths
