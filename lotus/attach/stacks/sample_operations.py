"""Finds the operation that a thread which makes a sample is in, from the frames of its stack."""

import re
from collections.abc import Iterator, Sequence

from lotus.analysis.attached.evidence.transform_classes import BASES, CONTAINERS
from lotus.attach.stacks.source_lines import Sources
from lotus.format import stack_frames
from lotus.format.stack_frames import bare_name, class_of
from native_map.recording.python_frame import Frame

# Methods by which samples are requested.
ACCESS = frozenset("__getitem__ __getitems__ __iter__ __next__".split())
_TRANSFORMS = re.compile(r"transform|augment|albument|kornia|monai", re.IGNORECASE)
_TRANSFORM_CALL = re.compile(r"\b\w*(transform|augment)\w*\s*\(", re.IGNORECASE)
# A line that calls nothing else, nor reads what a library may compute: x = self.transform(x), y
_ONLY_TRANSFORM_CALL = re.compile(
    r"(return\s+|yield\s+|[\w, ]+=\s*)?[\w.]*(transform|augment)\w*\(\w+(,\s*\w+)*\)"
    r"(,\s*\w+)*(\s+if\s+[\w. ]+\s+else\s+\w+)?(\s*#.*)?",
    re.IGNORECASE,
)
_NESTED = re.compile(r"(\.<locals>\.[^.]+)+$")
_LIST_LOOP = re.compile(r"\bin\s+.*\bself\.\w*(transforms|augment|ops\b|steps\b|stages\b)")
_LOADER_CALL = re.compile(r"\bself\.loader\(")
_LISTS = frozenset("Compose Sequential StandardTransform".split())  # their elements are named
# Frames between a call and the called function.
_BETWEEN = frozenset("<listcomp> <genexpr> <dictcomp> _wrapped_call_impl _call_impl".split())


def outermost_operation(
    caller: Frame, inner: Sequence[Frame], sources: Sources
) -> tuple[int, str] | None:
    """Return (place, name) of the outermost operation in the stack of a sample, or None."""
    listed = False
    for place, frame in enumerate(inner):
        before = inner[place - 1] if place else caller
        name = bare_name(frame.function)
        if name in _BETWEEN:
            continue
        if name in ("__call__", "forward") and _is_list(frame, inner[place + 1 :], sources):
            listed = True
            continue
        if listed or _is_transform(frame, place):
            return place, _shown(inner[place:])
        if name in ACCESS:
            continue
        text = sources.text(before.file, before.line)
        if _LOADER_CALL.search(text) or name in ("default_loader", "pil_loader"):
            return place, "Loader"
        if place and _TRANSFORM_CALL.search(text) and _is_called(before, inner[place:], sources):
            return place, _shown(inner[place:])
    return None


def _is_list(frame: Frame, below: Sequence[Frame], sources: Sources) -> bool:
    """Return whether `frame` calls a list of transforms, each of which is an operation."""
    kind = class_of(frame.function)
    if kind in _LISTS:
        return True
    loop = sources.loop(frame.file, frame.line) if below and kind not in CONTAINERS else None
    return loop is not None and bool(_LIST_LOOP.search(sources.text(frame.file, loop.head)))


def _is_transform(frame: Frame, place: int) -> bool:
    """Return whether a frame is the call of an object that the data set holds."""
    if (
        not place
        or bare_name(frame.function) not in ("__call__", "forward")
        or not class_of(frame.function)
    ):
        return False
    return not stack_frames.LIBRARY.search(frame.file) or bool(_TRANSFORMS.search(frame.file))


def _is_called(before: Frame, below: Sequence[Frame], sources: Sources) -> bool:
    """Return True if a line of the program may call the transform that it names.

    Not a method of the data set, which is its own code, though one of another object with the same
    name. A library's function only if the line calls nothing else, and not if it calls the program,
    as a decorator of a method does.
    """
    frame, text = below[0], sources.text(before.file, before.line)
    if stack_frames.LIBRARY.search(before.file):
        return False
    if stack_frames.LIBRARY.search(frame.file) and not _TRANSFORMS.search(frame.file):
        within = all(stack_frames.LIBRARY.search(each.file) for each in below)
        if not within or not _ONLY_TRANSFORM_CALL.fullmatch(text):
            return False
    around = _NESTED.sub("", before.function)
    if around.startswith("<"):  # a comprehension, before Python 3.11
        around = sources.qualified_name(before.file, before.line)
    own, called = class_of(around), class_of(frame.function)
    return not called or not sources.are_kin(own, called, (frame.file, before.file))


def _shown(frames: Sequence[Frame]) -> str:
    """Return the name of an operation: its class, or a derived one, or else its function.

    A function that a base class calls is a helper of all classes that are derived from it.
    """
    outermost = class_of(frames[0].function)
    for frame in _of_calls(frames):
        kind = class_of(frame.function)
        if kind == "Lambda" or kind in BASES or (not kind and outermost in BASES):
            continue
        return kind or bare_name(frame.function)
    return outermost or bare_name(frames[0].function)


def _of_calls(frames: Sequence[Frame]) -> Iterator[Frame]:
    yield frames[0]
    for frame in frames[1:8]:
        if class_of(frames[0].function) not in BASES | {"Lambda"}:
            return
        if bare_name(frame.function) not in _BETWEEN:
            yield frame
