"""Opens the state pages of the program's processes as they appear."""

import contextlib
import errno
import os
from pathlib import Path

_MOST = 256
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
FEW_DESCRIPTORS = (
    "lotus may not open enough files (ulimit -n): not all processes were observed from outside"
)


class StatePages:
    """`open` holds a descriptor per page, by name; `problem` says why some are not seen, or ""."""

    def __init__(self, folder: Path) -> None:
        self.open: dict[str, int] = {}
        self.problem = ""
        self._folder = folder
        self._known: set[str] = set()  # a long run makes thousands, of which few are of now
        self._changed_ns = -1
        self._is_settled = False

    def find(self) -> None:
        """Open those that are new."""
        with contextlib.suppress(OSError):
            before, self._changed_ns = self._changed_ns, os.stat(self._folder).st_mtime_ns
            # One that is made in the same tick as the list leaves this time as it is.
            if before == self._changed_ns and self._is_settled:
                return
            self._is_settled = before == self._changed_ns
            new = [name for name in os.listdir(self._folder) if name not in self._known]
            for name in sorted(name for name in new if name.endswith(".state")):
                if not self._add(name):
                    self._is_settled, self._changed_ns = False, -1
                    return

    def close(self, name: str) -> None:
        """Look at a page no more."""
        os.close(self.open.pop(name))

    def close_all(self) -> None:
        """Close all."""
        for name in list(self.open):
            self.close(name)

    def _add(self, name: str) -> bool:
        """Open a page; whether there is room for it."""
        if len(self.open) >= _MOST:
            self.problem = (
                f"more than {_MOST} processes at a time: those beyond were not observed from "
                "outside"
            )
            return False
        try:
            self.open[name] = opened(self._folder / name)
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                self.problem = FEW_DESCRIPTORS
                return False
        self._known.add(name)
        return True


def opened(path: Path) -> int:
    """A descriptor of a state page of this user. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise PermissionError("not a state page")
    return descriptor
