"""Files of /proc that are read many times a second: opened once."""

import os

from lotus.common.machine.kernel_files import beginning

_MOST = 256  # files; others are opened each time
_LENGTH = 1024  # bytes


class KeptFiles:
    """Open files by path. One of a process that has ended fails to be read, and is closed."""

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}

    def read(self, path: str) -> bytes:
        """Return the first kilobyte as it is now. Raises OSError."""
        descriptor = self._descriptors.get(path)
        if descriptor is None:
            if len(self._descriptors) >= _MOST:
                return beginning(path)
            descriptor = self._descriptors[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, _LENGTH, 0)
        except OSError:
            os.close(self._descriptors.pop(path))
            raise

    def close(self) -> None:
        """Close all."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])
