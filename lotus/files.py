"""Writing a file so that whoever reads it sees the old one or the new one, never half of one."""

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from lotus.errors import LotusError


def writable(path: Path, option: str = "-o") -> None:
    """Raise LotusError where no file can be written at `path`; leaves none.

    `option` is what names another place, for the message.
    """
    try:
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
def replacing(path: Path, option: str = "-o") -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of `path` when the block ends without an error.

    A link keeps pointing where it did; a device or a pipe is written to as it is. Raises LotusError
    where the file cannot be written; `option` is what names another place, for its message.
    """
    beside: Path | None = None
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        target = Path(os.path.realpath(path))
        beside = target.with_name(f".{target.name[:200]}.{os.getpid()}")
        with beside.open("wb") as file:
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


def replace(path: Path, content: str | bytes | Iterable[str | bytes], option: str = "-o") -> None:
    """Write `content`, or its pieces one after the other; text as UTF-8. Raises LotusError."""
    pieces = [content] if isinstance(content, (str, bytes)) else content
    with replacing(path, option) as file:
        for piece in pieces:
            file.write(piece.encode() if isinstance(piece, str) else piece)


def _cannot(path: Path, why: str | None, option: str) -> LotusError:
    return LotusError(f"cannot write {path}: {why}; {option} names another file")
