"""OpenCV's decoder of JPEG and PNG files, in place of Pillow's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

TITLE = "decode with OpenCV, to an array of uint8"
CHANGE = (
    "ImageFolder(..., loader=lambda path: cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)), with "
    "operations after it that take arrays, such as those of albumentations"
)
KNOWN = (
    "it turns pictures as their EXIF data say, which Pillow does not by itself; call "
    "cv2.setNumThreads(0) in each worker"
)
_ENDINGS = (".jpg", ".jpeg", ".png")


def offers(operations: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield an offer if an operation makes a Pillow picture from a path."""
    for operation in operations:
        paths = [
            value
            for value in operation.inputs
            if isinstance(value, str) and value.lower().endswith(_ENDINGS)
        ]
        if not paths or getattr(operation.run(paths[0]), "mode", "") != "RGB":
            continue
        import cv2  # imported only where it may help, so that it is not missed elsewhere
        import numpy as np

        flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION

        def decoded(path: Any, cv2: Any = cv2, flags: int = flags) -> Any:
            return cv2.cvtColor(cv2.imread(path, flags), cv2.COLOR_BGR2RGB)

        def by_pillow(path: Any, operation: Any = operation, np: Any = np) -> Any:
            return np.asarray(operation.run(path))

        yield (operation.name,), by_pillow, decoded, paths
