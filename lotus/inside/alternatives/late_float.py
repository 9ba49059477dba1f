"""Pictures stay uint8 until they are collated: floats and Normalize once a batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from ._operations import is_of, is_uint8_picture, makes_floats, picture_shape

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
        if not makes_floats(first.transform) or not is_of(second.transform, "Normalize"):
            continue
        pictures = [value for value in first.inputs if is_uint8_picture(value)]
        if len({picture_shape(value) for value in pictures}) != 1 or len(pictures) < 2:
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
            if is_of(first.transform, "ToDtype"):
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
