"""Describes a loader: where it is made, what selects its samples, and its name."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

# Packages whose samplers know their length without drawing indices.
_COUNT = ("torch", "builtins", "numpy", "accelerate", "timm", "torchdata")


def made_at(loader: "Any", frame: "FrameType | None") -> "tuple[str, bool]":
    """Return (`file:line` that makes a loader, whether that line calls it itself).

    `frame` is the caller of its `__init__`. The place is the nearest line of the program that is
    not in an `__init__` of the loader, or else a line of a package.
    """
    from ..guard import ours
    from .code_origin import is_program, nearest, place

    while frame is not None and (ours(frame) or _is_init_of(loader, frame)):
        frame = frame.f_back
    nearest_frame = nearest(frame)
    return place(
        nearest_frame
    ), nearest_frame is not None and nearest_frame is frame and is_program(nearest_frame)


def once_made_at(loader: "Any", frame: "FrameType | None") -> str:
    """Return the place as the first version of lotus determined it, for files that it wrote.

    It considered exactly the paths that contain "-packages" to be packages.
    """
    from ..guard import ours
    from .code_origin import place

    first: FrameType | None = None
    library = os.path.dirname(os.__file__)
    while frame is not None:
        path = frame.f_code.co_filename
        if not ours(frame) and not _is_init_of(loader, frame):
            if "-packages" not in path and not path.startswith((library, "<frozen ")):
                return place(frame)
            first = first or frame
        frame = frame.f_back
    return place(first)


def name_of(loader: "Any", frame: "FrameType | None") -> str:
    """Return the program's name for the loader that it makes; "" if it has none."""
    from ..guard import ask
    from .loader_origin import look

    built = ask(look, loader, frame)
    return "" if built is None else str(built.name)


def iterated_at() -> str:
    """Return the `file:line` of the program that iterates a loader now."""
    from .code_origin import nearest, place

    return place(nearest(sys._getframe(1)))


def _is_init_of(loader: "Any", frame: "FrameType") -> bool:
    """Return whether a frame runs an `__init__` of the loader, or a replacement of it."""
    code = frame.f_code
    return code.co_argcount > 0 and frame.f_locals.get(code.co_varnames[0]) is loader


def sampler(loader: "Any") -> str:
    """Return the class of the sampler, or of the program's own batch sampler."""
    batches = loader.batch_sampler
    own = batches is not None and type(batches).__name__ != "BatchSampler"
    return type(batches if own else getattr(batches, "sampler", loader.sampler)).__name__


def is_iterable(loader: "Any") -> bool:
    return bool(loader._dataset_kind == 1)


def length(loader: "Any") -> "Any":
    """Return the length of its data set; None if it has none."""
    from ..guard import ask

    return None if is_iterable(loader) else ask(len, loader.dataset)


def length_of(sampler: "Any") -> "Any":
    """Return the length of a sampler; None if that would run code of the program.

    Such a `__len__` may draw the batches to count them, so that the loop would draw different ones.
    """
    from ..guard import ask

    return ask(len, sampler) if _only_counts(sampler) else None


def _only_counts(sampler: "Any", depth: int = 4) -> bool:
    from ..object_attributes import attributes

    method = getattr(type(sampler), "__len__", None)
    method = getattr(method, "__objclass__", method)  # for a method written in C
    module = str(getattr(method, "__module__", "")).partition(".")[0]
    if not depth or module not in _COUNT:
        return False
    own_attributes = attributes(sampler)  # samplers whose length it uses
    inner = [
        own_attributes[name]
        for name in ("sampler", "batch_sampler")
        if own_attributes.get(name) is not None
    ]
    return all(_only_counts(sampler, depth - 1) for sampler in inner)


def words(loader: "Any", site: str) -> str:
    """Return a description of a loader for messages."""
    many = length(loader)
    samples = "" if many is None else f"{many} samples, "
    inner = "iterable" if is_iterable(loader) else f"{samples}{sampler(loader)}"
    where = f" at {site}" if site else ""
    return f"the loader of {type(loader.dataset).__name__} ({inner}){where}"
