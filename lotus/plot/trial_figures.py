"""The figure of a search: every trial with its interval."""

from typing import TYPE_CHECKING

import numpy as np

from lotus.common.errors import LotusError
from lotus.plot import canvas
from lotus.reporters.base.page import COLOURS
from lotus.tune.search.outcome import search_notes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from lotus.tune.search.outcome.result import Result


def trials(result: "Result", ax: "Axes | None" = None) -> "Axes":
    """Draw samples per second of every trial in the order of the search; the best setting is green.

    Raises LotusError if `result` was not returned by `lotus.tune(loader)`.
    """
    if not hasattr(result, "trials"):
        raise LotusError(f"{result!r} has no trials: give what lotus.tune(loader) returned")
    table = result.trials
    ax = canvas.axes(ax, canvas.bars_height(len(table)))
    title = "Trials of the search"
    if not len(table):
        return canvas.say(ax, title, "No setting was measured.")
    names, colours = [], []
    for measurement in result.measured:
        setting = measurement.measurement.setting
        names.append(
            search_notes.setting(setting) + (" (your own)" if setting == result.own else "")
        )
        colours.append(COLOURS[4] if setting == result.best else COLOURS[0])
    values = np.nan_to_num(table["samples_per_s"].to_numpy(np.float64))
    low, high = (table[name].to_numpy(np.float64) for name in ("low", "high"))
    ax.barh(range(len(values)), values, 0.7, color=colours)
    has_interval = np.isfinite(low) & np.isfinite(high)
    place = np.flatnonzero(has_interval)
    spread = np.maximum(
        [values[has_interval] - low[has_interval], high[has_interval] - values[has_interval]], 0
    )
    ax.errorbar(values[has_interval], place, xerr=spread, fmt="none", ecolor="black", capsize=2,
                elinewidth=0.8)  # fmt: skip
    for row, failed in enumerate(table["failed"]):
        if failed:
            canvas.at_bar(ax, row, 0.0, "failed")
    canvas.rows(ax, names, 60)
    ax.set_xlim(0, 1.1 * max(values.max(), np.nanmax(np.where(has_interval, high, 0)), 1e-9))
    canvas.dress(ax, title, "samples/s (bars: 95 % interval)")
    return ax
