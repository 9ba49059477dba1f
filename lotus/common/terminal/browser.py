"""Opening a page in the user's browser."""

import os
from pathlib import Path


def open_page(path: Path) -> str:
    """Open a file in the browser; "" where that went well, else what to do instead."""
    where = path.absolute()
    by_hand = f"open it in a browser: {where}"
    if not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")):
        # Without a display, webbrowser would start a text browser on the user's terminal.
        return f"there is no display here; {by_hand}"
    import webbrowser

    try:
        opened = webbrowser.open(where.as_uri())
    except (webbrowser.Error, OSError):
        opened = False
    return "" if opened else f"no browser could be started; {by_hand}"
