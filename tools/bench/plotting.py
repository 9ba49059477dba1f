"""The style of the pictures of tools/bench, and how they are saved."""

from pathlib import Path
from typing import Any

STYLE = {"svg.fonttype": "none", "font.size": 9, "svg.hashsalt": "lotus"}


def pyplot() -> Any:
    """Return matplotlib.pyplot, which opens no window; None where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, folder: Path, name: str) -> None:
    """Write NAME.png and NAME.svg, which is the same each time, and forget the figure."""
    figure.savefig(folder / f"{name}.png", dpi=150)
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    pyplot().close(figure)
