"""Finds the number of torch's compute threads, and where the program sets threads."""

import functools
import os
import re
import stat
import sys

from ...common.guard import quiet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
_OF_TORCH = re.compile(rb"set_num_threads\(")
_OF_LIBRARIES = re.compile(rb"threadpool_limits\(|setNumThreads\(")
_TO_ONE = re.compile(rb"[=(]\s*[01]\s*[)\s]*$")
_VARIABLES = [f"{library}_NUM_THREADS" for library in ("OPENBLAS", "OMP", "MKL", "BLIS", "NUMEXPR")]
_MOST_BYTES = 1 << 20  # of a source file


def torch_threads() -> int:
    """Return the number of torch's compute threads in this process; torch must be imported."""
    return int(sys.modules["torch"].get_num_threads())


def threads_set_at(frame: "FrameType | None") -> str:
    """Return where the program calls `torch.set_num_threads`, as `file:line`; "" if not found.

    Searches the text of the main module and of the file of `frame`, since torch does not tell
    whether its number was set.
    """
    return _place_in(frame, _OF_TORCH)


def library_threads_set(frame: "FrameType | None") -> str:
    """Return what gives other libraries than torch several threads, and where; "" if not found.

    `VARIABLE=VALUE at file:line` of an environment variable that the program itself has set, which
    one of its environment would not change; its place is left out if not found. `file:line` of a
    call that sets them.
    """
    for name, value in _variables_set().items():
        place = _place_in(frame, re.compile(name.encode()))
        return f"{name}={value}{f' at {place}' if place else ''}"
    return _place_in(frame, _OF_LIBRARIES, _TO_ONE)


def _variables_set() -> dict[str, str]:
    """Return the variables that the program set to more than one thread since it was started."""
    with quiet(OSError), open("/proc/self/environ", "rb") as file:
        started = dict(
            word.decode("utf-8", "replace").split("=", 1)
            for word in file.read().split(b"\0")
            if b"=" in word
        )
        now = {name: os.environ.get(name, "1") for name in _VARIABLES}
        return {
            name: value
            for name, value in now.items()
            if value not in ("1", started.get(name)) and value.isascii() and value.isdecimal()
        }
    return {}


def _place_in(
    frame: "FrameType | None", wanted: "re.Pattern[bytes]", but: "re.Pattern[bytes] | None" = None
) -> str:
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    files = [main, None if frame is None else frame.f_code.co_filename]
    places = (_place_of(wanted, but, file) for file in files if isinstance(file, str))
    return next((place for place in places if place), "")


@functools.cache  # a program may make a loader for each epoch
def _place_of(wanted: "re.Pattern[bytes]", but: "re.Pattern[bytes] | None", path: str) -> str:
    """Return the first line that has what is wanted, outside of comments; "" for none."""
    for number, line in enumerate(_text(path).splitlines(), 1):
        code = line.partition(b"#")[0]
        if wanted.search(code) and not (but and but.search(code)):
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
