"""Shared by all charts: colours, labels for plotly, axes of names, heights."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from lotus.common.text.formatting import plain, shorten
from lotus.reporters.base.display_names import shorten_apart
from lotus.reporters.base.page import COLOURS

BLUE, ORANGE, SKY, PINK, GREEN, RED, YELLOW, GREY = COLOURS
WAIT, STEP, IDLE_GREY = RED, GREEN, "#C4C8CE"
# What is no operation, the same in each chart: apart from those above, and with a contrast of at
# least 3 against the light page and the dark one.
OWN_CODE, IN_COLLATE = "#999933", "#B03A6E"
_LINE = 24  # characters of a line of an axis
LONG_NAME = 48  # characters, from which a title is shown without its details
LONGEST_NAME = 72

# plotly's HTML, and TeX between dollars.
_READ_BY_PLOTLY = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("$", "&#36;"))


def label(name: object, width: int = 32) -> str:
    """Escape a name for plotly, which interprets some HTML."""
    text = shorten(plain(name), width)
    for character, entity in _READ_BY_PLOTLY:
        text = text.replace(character, entity)
    return text


def names_axis(names: Sequence[object], width: int = 32) -> dict[str, Any]:
    """Return an axis of rows 0, 1, ... from top to bottom, with names of at most `width`
    characters, in lines of 24.
    """
    most = -(-width // _LINE)
    # A number stays on the line of what it counts, as in "loader 1".
    shortened = [
        re.sub(r" (?=\d+$)", "\u00a0", name)
        for name in shorten_apart([plain(name) for name in names], width)
    ]
    texts = [textwrap.wrap(name, _LINE, max_lines=most, placeholder="…") for name in shortened]
    return {
        "tickvals": list(range(len(names))),
        "ticktext": ["<br>".join(label(line) for line in lines) for lines in texts],
        "autorange": "reversed",
        "showgrid": False,
        "zeroline": False,
    }


def bars_height(axis: Mapping[str, Any], least: int = 180) -> int:
    """Return the height in pixels of a chart of bars whose axis has these names."""
    lines = max((text.count("<br>") + 1 for text in axis["ticktext"]), default=1)
    return max(least, 90 + max(26, 17 * lines + 4) * len(axis["ticktext"]))
