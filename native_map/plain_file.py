"""Opens files that a user names."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def opened(path: str | Path) -> BinaryIO:
    """Return a plain file for reading; a pipe would wait for its writer. Raises OSError."""
    if stat.S_IFMT(os.stat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
        raise OSError(errno.EINVAL, "not a plain file")
    return open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
