"""Figures of counters and C/C++ functions per operation."""

from typing import TYPE_CHECKING, Any

import numpy as np

from lotus.analysis.common.columns import float_column
from lotus.analysis.counters.function_profile import functions_by_operation, per_call
from lotus.common.errors import LotusError
from lotus.common.text.formatting import amount, operation_name, plain, share, shorten
from lotus.plot import canvas, figure_source
from lotus.reporters.base.page import COLOURS
from lotus.reporters.map.map_charts import TOP_DOWN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FIRST = ("ipc", "cycles", "task_clock", "cpu_clock")  # what is drawn if nothing is asked for
_NO_TOP_DOWN = (
    "Front-end and back-end bound were not counted in this run. On a machine whose CPU counts "
    "them (lotus doctor says so) record with: lotus trace --counters -- COMMAND"
)


def top_down(run: Any, ax: "Axes | None" = None, most: int = 12) -> "Axes":
    """Draw the shares of each operation's slots: front end, back end, speculation, retiring."""
    table = figure_source.silicon(run).operations
    names = [name for name in TOP_DOWN if name in table and table[name].notna().any()]
    shown = table[table[names].notna().all(axis=1)].head(most) if names else table.head(0)
    ax = canvas.axes(ax, canvas.bars_height(len(shown)) + 0.2)
    title = "Front end, back end: what held the CPU up"
    if not len(shown):
        return canvas.say(ax, title, _NO_TOP_DOWN)
    place = np.arange(len(shown))
    above, below, handles = np.zeros(len(shown)), np.zeros(len(shown)), []
    for name in names:
        values = 100 * float_column(
            shown, name
        )  # bad speculation is a difference, and may be below 0
        start = np.where(values < 0, below, above)
        handles.append(ax.barh(place, values, 0.7, start, color=TOP_DOWN[name][1]))
        above, below = above + np.maximum(values, 0), below + np.minimum(values, 0)
    canvas.rows(ax, shown["operation"].map(operation_name).tolist())
    ax.set_xlim(min(float(below.min()), 0.0), max(float(above.max()), 1e-9))
    rows = canvas.legend(ax, handles, [TOP_DOWN[name][0] for name in names])
    canvas.dress(ax, title, "% of the slots of a cycle", legend_rows=rows)
    return ax


def counters(
    run: Any, metric: str | None = None, ax: "Axes | None" = None, most: int = 12
) -> "Axes":
    """Draw one counter or metric per operation: "ipc", "l1d_mpki", "task_clock", ...

    The default is instructions per cycle, else CPU time. Raises LotusError with the available names
    if `metric` is not one of them.
    """
    measured = figure_source.silicon(run)
    table = measured.operations.head(most)
    available = [
        name
        for name in table.columns
        if name not in ("kind", "operation", "nested", "intervals", "total_ns", "counted",
                        "running_share", "turn_share", "source") and table[name].notna().any()
    ]  # fmt: skip
    title = "Counters per operation"
    if not available:
        ax = canvas.axes(ax, 2.0)
        text = "Nothing was counted in this run; record with: lotus trace --counters -- COMMAND"
        return canvas.say(ax, title, text)
    if metric is None:
        metric = next((name for name in _FIRST if name in available), available[0])
    if metric not in available:
        names = plain(", ".join(available))
        raise LotusError(f"there is no {metric!r} in this run; there are: {names}")
    values, unit = per_call(measured, table, metric)
    ax = canvas.axes(ax, canvas.bars_height(len(table)))
    ax.barh(range(len(table)), np.nan_to_num(values), 0.7, color=COLOURS[0])
    for place, value in enumerate(values):
        canvas.at_bar(ax, place, float(np.nan_to_num(value)), _label(value))
    canvas.rows(ax, table["operation"].map(operation_name).tolist())
    ax.set_xlim(0, 1.15 * max(float(np.nan_to_num(values).max()), 1e-9))
    words = shorten(plain(metric.replace("_", " ")), 40)
    canvas.dress(ax, f"{words} per operation", f"{words} ({unit})")
    return ax


def _label(value: float) -> str:
    if value != value:
        return "not counted"
    return f"{value:.3g}" if abs(value) < 1000 else amount(value)


def functions(run: Any, ax: "Axes | None" = None, operations: int = 4, most: int = 3) -> "Axes":
    """Draw the C and C++ functions with most samples in each operation, in per cent of these."""
    measured = figure_source.silicon(run)
    chosen = functions_by_operation(measured.functions, most)[:operations]
    title = "C and C++ functions under each operation"
    if not chosen:
        text = "No function was sampled in this run; record with: lotus trace --perf -- COMMAND"
        return canvas.say(canvas.axes(ax, 2.0), title, text)
    ax = canvas.axes(ax, canvas.bars_height(operations * most) + 0.3)
    heads: list[tuple[int, str]] = []
    row, longest = 0, 1e-9
    for place, operation in enumerate(chosen):
        heads.append((row, operation_name(operation.operation)))
        table = operation.functions
        values = 100 * table["share"].to_numpy(np.float64)
        labels = (table["library"] + "!" + table["function"]).tolist()
        rows = np.arange(row, row + len(values))
        ax.barh(rows, values, 0.7, color=COLOURS[place % len(COLOURS)])
        for height, value, function in zip(rows.tolist(), values, labels, strict=True):
            canvas.at_bar(ax, height, value, f"{share(value / 100)}  {shorten(function, 44)}")
        row, longest = row + len(values), max(longest, *values)
    canvas.rows(ax, [""] * row)
    ax.set_yticks([height for height, _ in heads], [canvas.name(name) for _, name in heads])
    canvas.still(ax.get_yticklabels())
    ax.set_xlim(0, 2.2 * longest)  # the names stand beside their bars
    ax.set_xticks([tick for tick in range(0, 101, 20) if tick <= max(longest, 20)])
    event = shorten(plain(measured.event), 40)
    canvas.dress(ax, title, f"% of the operation's samples of {event}")
    return ax
