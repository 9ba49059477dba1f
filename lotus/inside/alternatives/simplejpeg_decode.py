"""simplejpeg's decoder of JPEG files (libjpeg-turbo), in place of Pillow's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

TITLE = "decode JPEGs with simplejpeg, to an array of uint8"
CHANGE = (
    "ImageFolder(..., loader=lambda path: simplejpeg.decode_jpeg(Path(path).read_bytes())), with "
    "operations after it that take arrays, or torch.from_numpy(...).permute(2, 0, 1)"
)
KNOWN = "min_height and min_width decode a large picture at a fraction of its size, as draft mode"
_ENDINGS = (".jpg", ".jpeg")


def offers(operations: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield an offer if an operation makes a Pillow picture from the path of a JPEG."""
    for operation in operations:
        paths = [
            value
            for value in operation.inputs
            if isinstance(value, str) and value.lower().endswith(_ENDINGS)
        ]
        if not paths or getattr(operation.run(paths[0]), "mode", "") != "RGB":
            continue
        import numpy as np  # imported only where it may help, so that it is not missed elsewhere
        import simplejpeg

        def decoded(path: Any, simplejpeg: Any = simplejpeg) -> Any:
            with open(path, "rb") as file:
                return simplejpeg.decode_jpeg(file.read())

        def by_pillow(path: Any, operation: Any = operation, np: Any = np) -> Any:
            return np.asarray(operation.run(path))

        yield (operation.name,), by_pillow, decoded, paths
