"""Finds the file of a sample in the lists that data sets have."""

from __future__ import annotations

from .object_attributes import attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PATHS = ("samples", "imgs", "image_paths", "img_paths", "image_files", "files", "paths")


def path_of(owner: object, index: Any, depth: int = 8) -> str | None:
    """Return the file of a sample if its data set has a list of files, else None."""
    own = attributes(owner).get
    indices, inner = own("indices"), own("dataset")
    if depth and indices is not None and inner is not None:  # Subset
        return path_of(inner, indices[index], depth - 1)
    parts, sizes = own("datasets"), own("cumulative_sizes")
    if depth and parts and sizes:  # ConcatDataset
        part = next(number for number, size in enumerate(sizes) if index < size)
        return path_of(parts[part], index - (sizes[part - 1] if part else 0), depth - 1)
    for name in _PATHS:
        files: Any = own(name)
        if type(files) in (list, tuple) and index < len(files):
            item = files[index]
            if type(item) is tuple and item:
                item = item[0]
            if type(item) in (str, bytes) or hasattr(type(item), "__fspath__"):
                return str(item)
    return None
