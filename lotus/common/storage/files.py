"""Files that are read safely and written atomically, and the JSON in them.

A reader sees the old file or the new one, never half of one. Reading follows no link and waits for
no pipe, as a run directory may be anybody's.
"""

import contextlib
import errno
import json
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from lotus.common.errors import LotusError

_NESTED_COSTS = 8  # numbers
LARGEST = 16 << 20  # bytes of run.json and of other documents that are read


def read(path: Path, most: int, follow: bool = False) -> bytes:
    """Return the first `most` bytes of a plain file, without waiting for a pipe. Raises OSError.

    `follow`: through links, as for a path that the user names. Without it only of the file itself,
    as in a directory that may be anybody's.
    """
    return read_sized(path, most, follow)[0]


def read_sized(path: Path, most: int, follow: bool = False) -> tuple[bytes, int]:
    """Return what `read` returns, and the size of the file in bytes. Raises OSError."""
    with open(open_plain(path, follow), "rb") as file:
        return file.read(most), os.fstat(file.fileno()).st_size


def open_plain(
    path: str | os.PathLike[str], follow: bool = False, folder: int | None = None
) -> int:
    """Return a descriptor for reading a plain file, without waiting for a pipe. Raises OSError.

    `folder`: the descriptor of the directory that a relative `path` begins in.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    # Opening a pipe would wake its writer, so the kind is also checked before.
    _plain_only(os.stat(path, dir_fd=folder, follow_symlinks=follow), follow)
    descriptor = os.open(path, flags, dir_fd=folder)
    try:
        _plain_only(os.fstat(descriptor), follow)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_new(path: Path) -> IO[bytes]:
    """Open a new file for writing. Raises FileExistsError if `path` exists, or another OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o600), "wb")


def _plain_only(status: os.stat_result, follow: bool) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFREG or (kind == stat.S_IFLNK and not follow):  # `open` refuses a link
        return
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "not a plain file")


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
    """Open a file that takes the place of `path` when the block ends without an error.

    A link still refers to the same file; a device or a pipe is written to as it is. Raises
    LotusError if the file cannot be written, which suggests `option` for naming another one.
    `mode` is that of a new file, less the umask.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        target = Path(os.path.realpath(path))
        with atomic(target, mode) as file:
            if target.exists():
                os.fchmod(file.fileno(), target.stat().st_mode & 0o777)
            yield file
    except BrokenPipeError:
        raise  # the reader of the output has gone, which any command may meet
    except OSError as error:
        raise _cannot(path, error.strerror or str(error), option) from None


@contextlib.contextmanager
def atomic(path: Path, mode: int = 0o666, sync: bool = False) -> Iterator[IO[bytes]]:
    """Open a new file that replaces whatever is at `path` when the block ends without an error.

    It is written beside `path`, and removed after an error. `sync`: it is on the disk before it
    takes its name. Raises OSError.
    """
    beside = path.with_name(f".{path.name[:200]}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(beside, flags, mode), "wb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


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


def json_of(data: bytes, most: int, values: int | None = None) -> Any:
    """Return the contents of a document of at most `most` bytes. Raises ValueError, in words.

    `values`: how many it may hold at most, each list and object counting as eight: a number takes
    some 40 bytes of memory, an empty object 64, however short they are in the file.
    """
    if len(data) > most:
        raise ValueError(f"it is larger than {most >> 20} MB")
    if values is not None:
        nested = data.count(b"[") + data.count(b"{")
        if data.count(b",") + _NESTED_COSTS * nested > values:
            raise ValueError("it holds more values than lotus writes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None


def read_json(path: Path, most: int = LARGEST, values: int | None = None) -> Any:
    """Return the contents of a document as `json_of`. Raises OSError or ValueError, in words."""
    return json_of(read(path, most + 1), most, values)


def json_text(value: Any, indent: int | None = 2, digits: int | None = None) -> str:
    """Return a document as JSON text: null for what is not finite, numpy's numbers as Python's.

    ASCII only, so that no name in it can steer a terminal, and bytes of a file name that are not
    UTF-8 survive. `digits`: significant ones of floats. Without an indent it has no spaces.
    """
    separators = None if indent else (",", ":")
    return json.dumps(
        json_value(value, digits), indent=indent, separators=separators, allow_nan=False
    )


def json_value(value: Any, digits: int | None = None) -> Any:
    """Return `value` as JSON can hold it: NaN and infinities as None, arrays as lists."""
    if isinstance(value, Mapping):
        return {str(name): json_value(item, digits) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item, digits) for item in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return float(value) if digits is None else float(f"{value:.{digits}g}")
    if hasattr(value, "tolist"):  # a scalar or an array of numpy, which is not imported here
        return json_value(value.tolist(), digits)
    return value


def write_json(path: Path, value: Any, mode: int = 0o666) -> None:
    """Write a document as `replace` does. Raises LotusError."""
    replace(path, json_text(value) + "\n", mode=mode)
