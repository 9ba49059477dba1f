"""The parts of the name of a frame's function."""

from native_map.recording.python_frame import Frame


def last(frame: Frame) -> str:
    """The function without its class or what it is defined in."""
    return frame.function.rpartition(".")[2]


def owner(frame: Frame) -> str:
    """The class of a method; "" of a plain function."""
    parts = frame.function.split(".")
    return parts[-2] if len(parts) > 1 and parts[-2] != "<locals>" else ""
