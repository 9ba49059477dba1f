"""A line on a terminal's stderr that is overwritten, and removed at the end."""

import contextlib
import os

from lotus.common.text.formatting import plain


class StatusLine:
    """Writes nothing if descriptor 2 is not a terminal."""

    def __init__(self) -> None:
        self._shown = False

    def show(self, text: str) -> None:
        """Replace the line by this text, cut to the terminal's width."""
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
