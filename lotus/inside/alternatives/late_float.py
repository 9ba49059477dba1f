"""Pictures stay uint8 until they are collated: floats and Normalize once a batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

TITLE = "make floats and normalise once a batch, after collate"
CHANGE = (
    "PILToTensor in place of ToTensor (nothing in place of v2.ToDtype), no Normalize; then "
    "images.to(torch.float32).div_(255) (or v2.ToDtype) and Normalize of the batch: in the loop "
    "(on the device), or in collate_fn"
)
KNOWN = (
    "where that is done in the loop, workers collate and send a quarter of the bytes, and an "
    "accelerator does the rest for next to nothing"
)
_BATCH = 16
_DIVIDED = "images.to(torch.float32).div_(255)"
_SCALED = "v2.functional.to_dtype(images, torch.float32, scale=True)"
_COLLATE = '''def floats(samples):
    """Collate samples; make floats of the images, and normalise them."""
    images, *rest = default_collate(samples)
    return [{Normalize}({FLOATS}), *rest]'''


def offers(operations: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield an offer if Normalize follows a conversion to floats, with pictures of one size."""
    import torch
    from torchvision.transforms.functional import pil_to_tensor

    for first, second in itertools.pairwise(operations):
        if not _makes_floats(first.transform) or not _is_of(second.transform, "Normalize"):
            continue
        pictures = [value for value in first.inputs if _is_picture(value)]
        if len({_shape(value) for value in pictures}) != 1 or len(pictures) < 2:
            continue

        def each(samples: Any, first: Any = first, second: Any = second) -> Any:
            return torch.stack([second.run(first.run(sample)) for sample in samples])

        def batched(samples: Any, first: Any = first, second: Any = second) -> Any:
            batch = torch.stack(
                [
                    picture if isinstance(picture, torch.Tensor) else pil_to_tensor(picture)
                    for picture in samples
                ]
            )
            if _is_of(first.transform, "ToDtype"):
                return second.run(first.run(batch))
            return second.run(batch.to(torch.float32).div_(255))

        yield (first.name, second.name), each, batched, [pictures[:_BATCH]]


def edits(operations: Sequence[Any]) -> list[list[str]]:
    """Return the change of code, if these two are the last operations of a sample."""
    names = [
        operation.name
        for operation in operations
        if operation.name != "collate" and not operation.name.startswith("target_transform")
    ]
    if names[-2:] not in (["ToTensor", "Normalize"], ["ToDtype", "Normalize"]):
        return []
    if names[-2] == "ToTensor":
        floats, whole = ["replace", "ToTensor", "v2.PILToTensor()"], _DIVIDED
    else:
        floats, whole = ["remove", "ToDtype"], _SCALED
    return [
        ["import", "import torch"],
        ["import", "from torch.utils.data import default_collate"],
        ["import", "from torchvision.transforms import v2"],
        ["define", _COLLATE.replace("{FLOATS}", whole)],
        floats,
        ["remove", "Normalize"],
        ["argument", "DataLoader", "collate_fn=floats"],
    ]


# The following functions are repeated in device_floats.py, because each file is loaded by itself.
def _is_of(transform: Any, name: str) -> bool:
    kind = type(transform)
    return kind.__name__ == name and kind.__module__.startswith("torchvision.transforms.")


def _makes_floats(transform: Any) -> bool:
    """Return whether it converts uint8 to floats from 0 to 1."""
    import torch

    if _is_of(transform, "ToDtype"):
        return bool(transform.scale and transform.dtype is torch.float32)
    if type(transform).__module__ != "torchvision.transforms.transforms":
        return False
    return _is_of(transform, "ToTensor") and bool(torch.get_default_dtype() is torch.float32)


def _is_picture(value: Any) -> bool:
    import torch

    if isinstance(value, torch.Tensor):
        return bool(value.dtype == torch.uint8)
    return getattr(value, "mode", "") in ("L", "RGB")


def _shape(value: Any) -> Any:
    if hasattr(value, "shape"):  # a tensor, whose `mode` is a method
        return tuple(value.shape)
    return (value.mode, value.size)
