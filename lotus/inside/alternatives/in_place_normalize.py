"""ToTensor and Normalize without the copies that they make of a picture."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

TITLE = "ToTensor and Normalize in place"
CHANGE = (
    "torch.from_numpy(numpy.array(picture)).permute(2, 0, 1)"
    ".to(torch.float32, memory_format=torch.contiguous_format).div_(255).sub_(mean).div_(std)"
)
KNOWN = "the same operations in the same order; ToTensor and Normalize copy the values three times"
EXACT = True
DRAWS = ()  # generators


def stand_ins(operations: Sequence[Any]) -> Iterator[tuple[int, int, list[Any]]]:
    """Yield a stand-in if Normalize directly follows ToTensor."""
    from torchvision.transforms import transforms

    for place, (first, second) in enumerate(itertools.pairwise(operations)):
        kinds = (type(first.transform), type(second.transform))
        if kinds == (transforms.ToTensor, transforms.Normalize):
            yield place, 2, [InPlaceNormalize(first, second)]


class InPlaceNormalize:
    """Converts a Pillow picture of one or three channels to a normalised tensor."""

    def __init__(self, to_tensor: Any, normalize: Any) -> None:
        import torch

        self._to_tensor, self._normalize = to_tensor, normalize
        transform = normalize.transform
        self._mean, self._std = (
            torch.as_tensor(values, dtype=torch.float32).reshape(-1, 1, 1)
            for values in (transform.mean, transform.std)
        )
        self._mode = {1: "L", 3: "RGB"}.get(len(self._mean), "none")
        self._divides = len(self._mean) == len(self._std) and bool((self._std != 0).all())

    def __call__(self, picture: Any) -> Any:
        import numpy as np
        import torch

        mode = getattr(picture, "mode", "")
        if not self._divides or mode != self._mode or torch.get_default_dtype() != torch.float32:
            return self._normalize.run(self._to_tensor.run(picture))
        pixels = torch.from_numpy(np.array(picture)).reshape(*picture.size[::-1], -1)
        values = pixels.permute(2, 0, 1).to(torch.float32, memory_format=torch.contiguous_format)
        return values.div_(255).sub_(self._mean).div_(self._std)
