"""Writing a file so that whoever reads it sees the old one or the new one, never half of one."""

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from lotus.errors import LotusError


def read(path: Path, most: int) -> bytes:
    """The first `most` bytes of a file of a directory that may be anybody's: of the file itself,
    never through a link, and not waiting for a pipe. Raises OSError.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with open(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a plain file")
        return file.read(most)


def writable(path: Path, option: str = "-o") -> None:
    """Raise LotusError where no file can be written at `path`; leaves none.

    `option` is what names another place, for the message.
    """
    import tempfile  # slow to import, and `lotus trace` reads files before the program starts

    try:
        if str(path) in (".", "-"):  # an empty name, or what other programs mean stdout by
            raise LotusError(f"{option} must name a file")
        if path.is_dir():
            raise LotusError(f"cannot write {path}: it is a directory; {option} names a file")
        if path.exists() and not path.is_file():  # a device or a pipe is written to as it is
            return
        with tempfile.TemporaryFile(dir=path.absolute().parent):
            pass
        if path.exists() and not os.access(path, os.W_OK):
            raise _cannot(path, "Permission denied", option)
    except OSError as error:
        raise _cannot(path, error.strerror, option) from None


@contextlib.contextmanager
def replacing(path: Path, option: str = "-o", mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of `path` when the block ends without an error.

    A link keeps pointing where it did; a device or a pipe is written to as it is. Raises LotusError
    where the file cannot be written; `option` is what names another place, for its message. `mode`
    is that of a new file, less the umask.
    """
    beside: Path | None = None
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        target = Path(os.path.realpath(path))
        beside = target.with_name(f".{target.name[:200]}.{os.getpid()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(beside, flags, mode), "wb") as file:
            if target.exists():
                os.fchmod(file.fileno(), target.stat().st_mode & 0o777)
            yield file
        os.replace(beside, target)
        beside = None
    except BrokenPipeError:
        raise  # whoever reads our output has gone, as any command may see
    except OSError as error:
        raise _cannot(path, error.strerror or str(error), option) from None
    finally:
        if beside is not None:
            with contextlib.suppress(OSError):
                beside.unlink()


def replace(
    path: Path,
    content: str | bytes | Iterable[str | bytes],
    option: str = "-o",
    mode: int = 0o666,
) -> None:
    """Write `content`, or its pieces one after the other; text as UTF-8. Raises LotusError."""
    pieces = [content] if isinstance(content, (str, bytes)) else content
    with replacing(path, option, mode) as file:
        for piece in pieces:
            file.write(piece.encode() if isinstance(piece, str) else piece)


def _cannot(path: Path, why: str | None, option: str) -> LotusError:
    return LotusError(f"cannot write {path}: {why}; {option} names another file")


def json_of(data: bytes, most: int) -> Any:
    """What a document of at most `most` bytes holds. Raises ValueError, in words."""
    if len(data) > most:
        raise ValueError(f"it is larger than {most >> 20} MB")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
