"""Queries about operations and their inputs that several alternatives share."""

from __future__ import annotations

from typing import Any


def is_of(transform: Any, name: str) -> bool:
    """Return whether it is torchvision's transform of this name, of v1 or v2."""
    kind = type(transform)
    return kind.__name__ == name and kind.__module__.startswith("torchvision.transforms.")


def makes_floats(transform: Any) -> bool:
    """Return whether it converts uint8 to floats from 0 to 1."""
    import torch

    if is_of(transform, "ToDtype"):
        return bool(transform.scale and transform.dtype is torch.float32)
    if type(transform).__module__ != "torchvision.transforms.transforms":
        return False
    return is_of(transform, "ToTensor") and bool(torch.get_default_dtype() is torch.float32)


def is_uint8_picture(value: Any) -> bool:
    """Return whether it is a tensor of uint8, or a grey or RGB picture of Pillow's."""
    import torch

    if isinstance(value, torch.Tensor):
        return bool(value.dtype == torch.uint8)
    return getattr(value, "mode", "") in ("L", "RGB")


def picture_shape(value: Any) -> Any:
    """Return a tensor's shape, or a picture's mode and size; equal for pictures that collate."""
    if hasattr(value, "shape"):  # a tensor, whose `mode` is a method
        return tuple(value.shape)
    return (value.mode, value.size)
