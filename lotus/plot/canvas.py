"""Helpers for axes: a common plain style, new figures, and names that stay plain text."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lotus.common.errors import LotusError
from lotus.common.text.formatting import plain, shorten
from lotus.reporters.base.display_names import shorten_apart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 6.0  # inches; the text remains readable at half size in a column of a paper
_LINE, _TEXT, _SMALL = 0.28, 9.0, 8.0  # inches of a bar; points
_LEGEND_ROW = 11.5  # points


def axes(ax: "Axes | None", height: float = 2.8) -> "Axes":
    """Return `ax`, or the axes of a new figure. Raises LotusError if matplotlib is missing."""
    if ax is not None:
        return ax
    return figure(WIDTH, height).subplots()


def figure(width: float, height: float) -> "Figure":
    """Make a figure that a notebook shows. Raises LotusError if matplotlib is missing."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise LotusError(
            "figures need matplotlib, which is not installed; lotus report --html has the same "
            "without it; type: pip install matplotlib"
        ) from None
    return plt.figure(figsize=(width, height), layout="constrained")


def bars_height(count: int) -> float:
    """Return the height in inches for `count` horizontal bars."""
    return max(1.5, 0.95 + _LINE * count)


def name(text: object, width: int = 40, line: int = 0) -> str:
    """Wrap a name from a trace to two lines at most."""
    line = line or max(24, width // 2 + 4)
    words = shorten(plain(text), width)
    lines = textwrap.wrap(words, line)
    if len(lines) > 2:  # words broke badly
        lines = [words[: (len(words) + 1) // 2], words[(len(words) + 1) // 2 :]]
    return "\n".join(lines) or " "


def key(text: object) -> str:
    """Return a name for a legend, which would leave out names that begin with "_"."""
    short = shorten(plain(text), 28)
    return f" {short}" if short.startswith("_") else short


def dress(ax: "Axes", title: str, x: str = "", y: str = "", legend_rows: int = 0) -> None:
    """Add a title, labels and a plain frame."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    shown = ax.set_title(title, loc="left", fontsize=_TEXT, fontweight="bold",
                         pad=6 + _LEGEND_ROW * legend_rows)  # fmt: skip
    ax.set_xlabel(x, fontsize=_TEXT)
    ax.set_ylabel(y, fontsize=_TEXT)
    still([shown, ax.xaxis.label, ax.yaxis.label])
    ax.tick_params(labelsize=_SMALL)


def letter(ax: "Axes", mark: str) -> None:
    """Add a letter such as "(a)" in front of the title."""
    title = ax.get_title(loc="left")
    for child in ax.get_children():
        if getattr(child, "get_text", str)() == title:
            child.set(text=f"({mark}) {title}")


def rows(ax: "Axes", names: Sequence[object], width: int = 40) -> None:
    """Label the y axis of bars at 0, 1, ... from top to bottom with their names."""
    texts = shorten_apart([plain(item) for item in names], width)
    ax.set_yticks(range(len(names)), [name(text, width) for text in texts])
    ax.set_ylim(max(len(names), 1) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    still(ax.get_yticklabels())


def legend(ax: "Axes", handles: Sequence[Any], names: Sequence[object], columns: int = 4) -> int:
    """Add a legend between title and data; return its number of rows. Call it before `dress`."""
    if not names:
        return 0
    texts = [key(item) for item in names]
    columns = max(1, min(columns, len(texts), 100 // (max(map(len, texts)) + 5)))
    drawn = ax.legend(
        list(handles), texts, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns,
        frameon=False, fontsize=_SMALL, borderaxespad=0.2, borderpad=0.1, handlelength=1.2,
        handletextpad=0.5, columnspacing=1.2, labelspacing=0.25,
    )  # fmt: skip
    still(drawn.get_texts())
    return -(-len(texts) // columns)


def at_bar(ax: "Axes", place: float, value: float, text: str) -> None:
    """Write a text beside the end of a horizontal bar."""
    shown = ax.annotate(
        plain(text), (value, place), xytext=(3, 0), textcoords="offset points", va="center",
        fontsize=_SMALL, annotation_clip=False,
    )  # fmt: skip
    still([shown])


def note(ax: "Axes", text: str) -> None:
    """Write a remark below the axes on what was left out."""
    if text:
        label = ax.get_xlabel()
        ax.set_xlabel(f"{label}\n{textwrap.fill(text, 90)}", fontsize=_SMALL)


def say(ax: "Axes", title: str, text: str) -> "Axes":
    """Write on the axes why there is nothing to draw."""
    dress(ax, title)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[["left", "bottom"]].set_visible(False)
    shown = ax.text(
        0.5, 0.5, textwrap.fill(plain(text), 52), ha="center", va="center", fontsize=_TEXT,
        transform=ax.transAxes,
    )  # fmt: skip
    still([shown])
    return ax


def still(texts: Sequence[Any]) -> None:
    """Draw texts literally, so that dollars in a name do not make a formula."""
    for text in texts:
        text.set_parse_math(False)
        text.set_usetex(False)
