"""Finds the number of torch's compute threads, and where the program sets it."""

import functools
import os
import stat
import sys

from .guard import quiet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
_CALL = b"set_num_threads("
_MOST_BYTES = 1 << 20  # of a source file


def torch_threads() -> int:
    """Return the number of torch's compute threads in this process; torch must be imported."""
    return int(sys.modules["torch"].get_num_threads())


def threads_set_at(frame: "FrameType | None") -> str:
    """Return where the program calls `torch.set_num_threads`, as `file:line`; "" if not found.

    Searches the text of the main module and of the file of `frame`, since torch does not tell
    whether its number was set.
    """
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    files = [main, None if frame is None else frame.f_code.co_filename]
    places = (_place_of_call(file) for file in files if isinstance(file, str))
    return next((place for place in places if place), "")


@functools.cache  # a program may make a loader for each epoch
def _place_of_call(path: str) -> str:
    for number, line in enumerate(_text(path).splitlines(), 1):
        if _CALL in line and b"#" not in line.partition(_CALL)[0]:
            return f"{os.path.basename(path)}:{number}"
    return ""


def _text(path: str) -> bytes:
    """Return the beginning of a file; b"" for unreadable files, and pipes, which may block."""
    with quiet(OSError, ValueError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return os.read(descriptor, _MOST_BYTES)
        finally:
            os.close(descriptor)
    return b""
