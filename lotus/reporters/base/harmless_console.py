"""A console that writes no control characters, so that text cannot control the terminal."""

from typing import Any

from rich.console import Console
from rich.text import Text

from lotus.common.terminal.stderr import is_harmless, printable


class HarmlessConsole(Console):
    """Escapes control characters in all output, even if a reporter did not."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print like a console of rich; `objects` are text."""
        super().print(*map(_harmless, objects), **options)

    def on_broken_pipe(self) -> None:
        """Raise the BrokenPipeError, which `lotus.cli` handles for all output; rich would exit."""
        raise


def _harmless(item: Any) -> Any:
    if isinstance(item, str):
        return printable(item)
    if isinstance(item, Text) and not all(map(is_harmless, item.plain)):
        item = item.copy()
        # One character for each, because styles refer to positions.
        item.plain = "".join(char if is_harmless(char) else "?" for char in item.plain)
    return item
