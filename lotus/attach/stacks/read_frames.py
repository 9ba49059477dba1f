"""Checks whether a stack of py-spy is consistent, and adds classes to its functions."""

from collections.abc import Sequence

from lotus.attach.stacks.source_lines import Sources
from native_map.recording.python_frame import Frame

_MOST_FRAMES, _MOST_CHARACTERS = 500, 2000


def is_torn(frames: Sequence[Frame]) -> bool:
    """Return whether a stack is impossible, as the program ran on while py-spy read it.

    Where a function was freed meanwhile, its file may be any word that Python keeps, such as
    `__doc__`, and its line no line number, for which `Frame.line` is 0.
    """
    if len(frames) > _MOST_FRAMES:
        return True
    return any(
        not frame.function
        or not frame.function.isprintable()
        or len(frame.function) > _MOST_CHARACTERS
        or "\ufffd" in frame.function + frame.file
        or (frame.file.isidentifier() and not frame.line)
        for frame in frames
    )


def qualified(frames: Sequence[Frame], sources: Sources) -> list[Frame]:
    """Return the frames with classes in their names, which Python before 3.11 leaves out."""
    if any("." in frame.function for frame in frames):
        return list(frames)
    result = []
    for frame in frames:
        function = frame.function
        if "." not in function and not function.startswith("<"):
            name = sources.qualified_name(frame.file, frame.line)
            function = name if name.rpartition(".")[2] == function else function
        result.append(frame._replace(function=function))
    return result
