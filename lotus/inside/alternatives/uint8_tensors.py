"""Pictures as tensors of uint8 from the decoder to ToTensor, in place of pictures of Pillow's."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

TITLE = "tensors of uint8 from the decoder to ToTensor"
CHANGE = (
    "ImageFolder(..., loader=lambda path: torchvision.io.decode_image(path, mode='RGB')); "
    "torchvision.transforms.v2 for all operations; v2.ToDtype(torch.float32, scale=True) in place "
    "of ToTensor"
)
KNOWN = (
    "the operations draw the same random numbers; a resize of tensors rounds and weights pixels "
    "differently from Pillow's"
)
EXACT = False

_JPEG = (".jpg", ".jpeg")
# Of torchvision's v1: they do the same with a tensor, and draw the same random numbers.
_ON_TENSORS = ("CenterCrop", "RandomCrop", "RandomHorizontalFlip", "RandomVerticalFlip")
_RESIZES = ("Resize", "RandomResizedCrop")
_WEIGHTED = ("bilinear", "bicubic")  # the nearest pixel is not the same one in tensors
_DECODE = """def decode(path):
    return torchvision.io.decode_image(path, mode="RGB")"""
_DECODERS = ("default_loader", "pil_loader")


def stand_ins(operations: Sequence[Any]) -> Iterator[tuple[int, int, list[Any]]]:
    """Yield stand-ins if ToTensor follows operations that can be applied to tensors as well."""
    from torchvision.transforms import transforms

    for end, operation in enumerate(operations):
        if type(operation.transform) is not transforms.ToTensor:
            continue
        first = end
        while first and _is_known(transforms, operations[first - 1].transform):
            first -= 1
        if not any(_is_of(transforms, each.transform, _RESIZES) for each in operations[first:end]):
            continue  # nothing is gained
        steps: list[Any] = [_step(transforms, operation) for operation in operations[first:end]]
        if first and _is_decoder(operations[first - 1].transform):
            first -= 1
            steps.insert(0, DecodeJpeg(operations[first]))
        else:
            steps.insert(0, PictureToTensor())
        last = operations[end + 1 : end + 2]
        if not last or type(last[0].transform) is not transforms.Normalize:
            last = []
        steps.append(ToFloat(operations[end], *last))
        yield first, end + 1 + len(last) - first, steps


def edits(operations: Sequence[Any]) -> list[list[str]]:
    """Return the change of code, for a data set that is an ImageFolder."""
    made = [["import", "import torch"], ["import", "import torchvision.io"]]
    made += [["import", "from torchvision.transforms import v2"], ["define", _DECODE]]
    for operation in operations:
        kind = type(operation.transform).__name__
        if kind in (*_RESIZES, *_ON_TENSORS):
            made.append(["replace", kind, f"v2.{kind}({{args}})"])
        elif kind == "ToTensor":
            made.append(["replace", kind, "v2.ToDtype(torch.float32, scale=True)"])
    return [*made, ["argument", "ImageFolder", "loader=decode"]]


def _is_of(module: Any, transform: Any, names: Sequence[str]) -> bool:
    return any(getattr(module, name, None) is type(transform) for name in names)


def _is_known(module: Any, transform: Any) -> bool:
    if _is_of(module, transform, _RESIZES):
        return str(transform.interpolation.value) in _WEIGHTED
    return _is_of(module, transform, _ON_TENSORS)


def _is_decoder(function: Any) -> bool:
    from torchvision.datasets import folder
    from torchvision.io import image  # noqa: F401  (torch.ops.image)

    known = any(getattr(folder, name, None) is function for name in _DECODERS)
    return known and folder_backend() == "PIL"


def folder_backend() -> str:
    import torchvision

    return str(torchvision.get_image_backend())


def _step(module: Any, operation: Any) -> Any:
    kind = type(operation.transform)
    if kind is module.Resize:
        return ResizeTensor(operation)
    if kind is module.RandomResizedCrop:
        return RandomResizedCropTensor(operation)
    return operation.run


def to_tensor(picture: Any) -> Any:
    """Return a picture of one or three channels as a tensor (channels, height, width) of uint8.

    Anything else is returned as it is.
    """
    import numpy as np
    import torch

    if getattr(picture, "mode", "") not in ("L", "RGB"):
        return picture
    return torch.from_numpy(np.array(picture)).reshape(*picture.size[::-1], -1).permute(2, 0, 1)


def is_picture(value: Any) -> bool:
    """Return whether it is such a tensor."""
    import torch

    return isinstance(value, torch.Tensor) and value.dtype == torch.uint8 and value.ndim == 3


class PictureToTensor:
    """Converts a Pillow picture to a tensor."""

    def __call__(self, picture: Any) -> Any:
        return to_tensor(picture)


class DecodeJpeg:
    """Decodes JPEGs with torchvision's decoder; calls the original for other files."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder

    def __call__(self, path: Any) -> Any:
        import numpy as np
        import torch

        if isinstance(path, (str, os.PathLike)) and str(path).lower().endswith(_JPEG):
            try:
                data = torch.from_numpy(np.fromfile(path, dtype=np.uint8))
                # As decode_jpeg, which warns in some versions. 0: the file's own mode.
                pixels = torch.ops.image.decode_jpeg(data, 0)
            except (OSError, RuntimeError):
                pass  # the original decoder raises the error that the program expects
            else:
                if len(pixels) == 3:
                    return pixels
        return to_tensor(self._decoder.run(path))


class ResizeTensor:
    """Resizes tensors of uint8."""

    def __init__(self, resize: Any) -> None:
        # Import now: a forked worker would import it in each epoch.
        from torchvision.transforms.v2 import functional

        self._resize, self._resized = resize, functional.resize

    def __call__(self, pixels: Any) -> Any:
        if not is_picture(pixels):
            return self._resize.run(pixels)
        own = self._resize.transform
        return self._resized(pixels, own.size, own.interpolation, own.max_size, antialias=True)


class RandomResizedCropTensor:
    """Crops and resizes tensors of uint8, with the random crops of the original operation."""

    def __init__(self, crop: Any) -> None:
        from torchvision.transforms.v2 import functional

        self._crop, self._resized = crop, functional.resized_crop

    def __call__(self, pixels: Any) -> Any:
        if not is_picture(pixels):
            return self._crop.run(pixels)
        own = self._crop.transform
        place = own.get_params(pixels, own.scale, own.ratio)
        return self._resized(pixels, *place, own.size, own.interpolation, antialias=True)


class ToFloat:
    """Does the work of ToTensor, and of Normalize if it follows, on tensors of uint8."""

    def __init__(self, to_tensor: Any, normalize: Any = None) -> None:
        import torch

        self._to_tensor, self._normalize = to_tensor, normalize
        self._scale = self._bias = None
        if normalize is not None:
            own = normalize.transform
            mean, std = (
                torch.as_tensor(part, dtype=torch.float32).reshape(-1, 1, 1)
                for part in (own.mean, own.std)
            )
            if len(mean) == len(std) and bool((std != 0).all()):  # else Normalize raises an error
                self._scale, self._bias = 1 / (255 * std), -mean / std

    def __call__(self, pixels: Any) -> Any:
        import torch

        if not is_picture(pixels):
            values = self._to_tensor.run(pixels)
            return values if self._normalize is None else self._normalize.run(values)
        kind = torch.get_default_dtype()
        values = pixels.to(kind, memory_format=torch.contiguous_format)
        if self._normalize is None:
            return values.div_(255)
        if self._scale is None or kind != torch.float32 or len(self._scale) not in (1, len(values)):
            return self._normalize.run(values.div_(255))
        return values.mul_(self._scale).add_(self._bias)
