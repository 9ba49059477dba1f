"""Pictures are sent to the accelerator as uint8: it makes floats, normalises and flips a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ._operations import is_of, is_uint8_picture, makes_floats, picture_shape

TITLE = "make floats, normalise and flip on the device, once a batch"
CHANGE = (
    "PILToTensor in place of ToTensor (nothing in place of v2.ToDtype), no Normalize, no flips; "
    "in the loop images = images.to(device, non_blocking=True), then "
    "images.to(torch.float32).div_(255) (or v2.ToDtype), Normalize of the batch, and "
    "torch.where(drawn, images.flip(-1), images) with a draw for each image"
)
KNOWN = (
    "measured from collated samples to the end of the device's work, for which the thread waits on "
    "a core; the loader's workers have less to do, and pinned memory is sent faster"
)
_BATCH = 16
_FLIPS = {"RandomHorizontalFlip": -1, "RandomVerticalFlip": -2}


def offers(operations: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield an offer if Normalize follows a conversion to floats, and the program uses a device."""
    import torch
    from torchvision.transforms.functional import pil_to_tensor

    # Do not initialise a device that the program has not used so far.
    if not torch.cuda.is_initialized():
        return
    for end in range(1, len(operations)):
        made, normalised = operations[end - 1], operations[end]
        if not makes_floats(made.transform) or not is_of(normalised.transform, "Normalize"):
            continue
        first = end - 1
        while first and any(is_of(operations[first - 1].transform, name) for name in _FLIPS):
            first -= 1
        chain, flips = operations[first : end + 1], operations[first : end - 1]
        pictures = [value for value in chain[0].inputs if is_uint8_picture(value)]
        if len({picture_shape(value) for value in pictures}) != 1 or len(pictures) < 2:
            continue

        def each(samples: Any, chain: Any = chain) -> Any:
            results = []
            for sample in samples:
                for operation in chain:
                    sample = operation.run(sample)
                results.append(sample)
            return torch.stack(results)

        def batched(samples: Any, chain: Any = chain, flips: Any = flips) -> Any:
            drawn = [[bool(torch.rand(1) < flip.transform.p) for flip in flips] for _ in samples]
            tensors = [
                picture if isinstance(picture, torch.Tensor) else pil_to_tensor(picture)
                for picture in samples
            ]
            device = torch.cuda.current_device()
            images = torch.stack(tensors).to(device, non_blocking=True)
            for place, flip in enumerate(flips):
                mask = torch.tensor([draws[place] for draws in drawn])
                mask = mask.to(device, non_blocking=True).view(-1, 1, 1, 1)
                dimension = _FLIPS[type(flip.transform).__name__]
                images = torch.where(mask, images.flip(dimension), images)
            if is_of(chain[-2].transform, "ToDtype"):
                images = chain[-2].run(images)
            else:
                images = images.to(torch.float32).div_(255)
            images = chain[-1].run(images)
            _wait(torch.cuda, device)
            return images

        yield tuple(operation.name for operation in chain), each, batched, [pictures[:_BATCH]]


def _wait(cuda: Any, device: Any) -> None:
    """Wait by polling, so that the device's time counts as CPU time of this thread."""
    event = cuda.Event()
    event.record(cuda.current_stream(device))
    while not event.query():
        pass
