"""What is known of a loader: where it is made, what chooses its samples, what to call it."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

# Packages whose samplers know how many they choose, without drawing them.
_COUNT = ("torch", "builtins", "numpy", "accelerate", "timm")


def made_at(loader: "Any", frame: "FrameType | None") -> "tuple[str, bool]":
    """(`file:line` that makes a loader, whether it does so itself), from its `__init__`'s caller.

    The nearest line of the program that is not in an `__init__` of the loader; of a package where
    there is no other.
    """
    from .code_origin import is_program, nearest, place
    from .guard import ours

    while frame is not None and (ours(frame) or _is_init_of(loader, frame)):
        frame = frame.f_back
    shown = nearest(frame)
    return place(shown), shown is not None and shown is frame and is_program(shown)


def once_made_at(loader: "Any", frame: "FrameType | None") -> str:
    """The same as the first version of lotus found it, for files that it wrote.

    It took every folder whose path has "-packages" for packages, and nothing else.
    """
    from .code_origin import place
    from .guard import ours

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
    """What the program calls the loader that it makes; "" where nothing tells."""
    from .guard import ask
    from .loader_origin import look

    built = ask(look, loader, frame)
    return "" if built is None else str(built.name)


def iterated_at() -> str:
    """`file:line` of the program that iterates a loader now."""
    from .code_origin import nearest, place

    return place(nearest(sys._getframe(1)))


def _is_init_of(loader: "Any", frame: "FrameType") -> bool:
    """Whether it is an `__init__` of the loader, or what stands for one."""
    code = frame.f_code
    return code.co_argcount > 0 and frame.f_locals.get(code.co_varnames[0]) is loader


def sampler(loader: "Any") -> str:
    """The class of what chooses the samples; of the batches where the program chooses those."""
    batches = loader.batch_sampler
    own = batches is not None and type(batches).__name__ != "BatchSampler"
    return type(batches if own else getattr(batches, "sampler", loader.sampler)).__name__


def is_iterable(loader: "Any") -> bool:
    return bool(loader._dataset_kind == 1)


def length(loader: "Any") -> "Any":
    """How many samples its data set says that it has; None where it does not."""
    from .guard import ask

    return None if is_iterable(loader) else ask(len, loader.dataset)


def length_of(sampler: "Any") -> "Any":
    """How many it says that it chooses; None where a class of the program would say it.

    Such a `__len__` may draw the batches to count them: then the loop would draw others.
    """
    from .guard import ask

    return ask(len, sampler) if _only_counts(sampler) else None


def _only_counts(sampler: "Any", depth: int = 4) -> bool:
    from .objects import attributes

    method = getattr(type(sampler), "__len__", None)
    method = getattr(method, "__objclass__", method)  # of what is written in C
    module = str(getattr(method, "__module__", "")).partition(".")[0]
    if not depth or module not in _COUNT:
        return False
    held = attributes(sampler)  # others that it asks in turn
    inner = [held[name] for name in ("sampler", "batch_sampler") if held.get(name) is not None]
    return all(_only_counts(one, depth - 1) for one in inner)


def words(loader: "Any", site: str) -> str:
    """What a person is told that it is."""
    many = length(loader)
    samples = "" if many is None else f"{many} samples, "
    inner = "iterable" if is_iterable(loader) else f"{samples}{sampler(loader)}"
    where = f" at {site}" if site else ""
    return f"the loader of {type(loader.dataset).__name__} ({inner}){where}"
