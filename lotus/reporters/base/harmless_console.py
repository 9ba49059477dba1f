"""A console that writes no character by which a text could steer the terminal."""

from typing import Any

from rich.console import Console
from rich.text import Text

from lotus.common.stderr import is_harmless, printable


class HarmlessConsole(Console):
    """Escapes such characters in all that is printed, also where a reporter forgot to."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich's; `objects` are text."""
        super().print(*map(_harmless, objects), **options)


def _harmless(shown: Any) -> Any:
    if isinstance(shown, str):
        return printable(shown)
    if isinstance(shown, Text) and not all(map(is_harmless, shown.plain)):
        shown = shown.copy()
        # One for one: its styles refer to places.
        shown.plain = "".join(char if is_harmless(char) else "?" for char in shown.plain)
    return shown
