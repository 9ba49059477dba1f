"""Frames as py-spy read them: whether a stack can be one, and the classes of its functions."""

from collections.abc import Sequence

from lotus.attach.stacks.source_lines import Sources
from native_map.recording.python_frame import Frame

_MOST_FRAMES, _MOST_CHARACTERS = 500, 2000


def is_torn(frames: Sequence[Frame]) -> bool:
    """Whether a stack that was read beside the running program holds what no stack can hold."""
    if len(frames) > _MOST_FRAMES:
        return True
    return any(
        not frame.function
        or not frame.function.isprintable()
        or len(frame.function) > _MOST_CHARACTERS
        or "\ufffd" in frame.function + frame.file
        for frame in frames
    )


def qualified(frames: Sequence[Frame], sources: Sources) -> list[Frame]:
    """Frames with the classes of their functions, which Python before 3.11 does not tell."""
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
