"""A line on a terminal's stderr that is overwritten, and gone at the end."""

import contextlib
import os

from lotus.common.formatting import plain


class StatusLine:
    """Nothing is written where descriptor 2 is no terminal."""

    def __init__(self) -> None:
        self._shown = False

    def show(self, text: str) -> None:
        """Put a text in place of the one before, cut off at the terminal's width."""
        with contextlib.suppress(OSError):
            columns = os.get_terminal_size(2).columns or 80
            os.write(2, b"\r\x1b[K" + plain(text)[: columns - 1].encode("utf-8", "replace"))
            self._shown = True

    def clear(self) -> None:
        """Remove it, if there is one."""
        if self._shown:
            self._shown = False
            with contextlib.suppress(OSError):
                os.write(2, b"\r\x1b[K")
