"""Normalize of a whole batch after collate, in place of each sample before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ._operations import is_of

TITLE = "Normalize once a batch, after collate"
CHANGE = (
    "take Normalize out of the transform, and call it on the batch: in the loop (on the "
    "device), or in collate_fn"
)
KNOWN = "on an accelerator it costs next to nothing there, and uint8 or unscaled data is sent"
_BATCH = 16
_COLLATE = '''def normalized(samples):
    """Collate samples, and normalise the images of the whole batch."""
    images, *rest = default_collate(samples)
    return [{Normalize}(images), *rest]'''


def offers(operations: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield an offer if Normalize gets tensors of one shape."""
    import torch

    for operation in operations:
        if not is_of(operation.transform, "Normalize"):
            continue
        tensors = [value for value in operation.inputs if isinstance(value, torch.Tensor)]
        if len({(tensor.shape, tensor.dtype) for tensor in tensors}) != 1 or len(tensors) < 2:
            continue

        def each(samples: Any, operation: Any = operation) -> Any:
            return torch.stack([operation.run(sample) for sample in samples])

        def batched(samples: Any, operation: Any = operation) -> Any:
            return operation.run(torch.stack(samples))

        yield (operation.name,), each, batched, [tensors[:_BATCH]]


def edits(operations: Sequence[Any]) -> list[list[str]]:
    """Return the change of code, if Normalize is the last operation of a sample."""
    names = [
        operation.name
        for operation in operations
        if operation.name != "collate" and not operation.name.startswith("target_transform")
    ]
    if names[-1:] != ["Normalize"]:
        return []
    return [
        ["import", "from torch.utils.data import default_collate"],
        ["define", _COLLATE],
        ["remove", "Normalize"],
        ["argument", "DataLoader", "collate_fn=normalized"],
    ]
