"""Figures of one loader: where its time went, by cause, operation, worker and rank."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column
from lotus.analysis.samples import distributions
from lotus.common.text.formatting import operation_name, share
from lotus.plot import canvas, figure_source
from lotus.reporters.base.chart_parts import BLUE, GREY, IDLE_GREY, ORANGE, RED, SKY, STEP, WAIT
from lotus.reporters.base.console import rows_of
from lotus.reporters.run.charts.loader_charts import brief, cause_colour, part_colour
from lotus.reporters.run.parts import coverage

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def causes(run: Any, ax: "Axes | None" = None, loader: int | None = None, most: int = 8) -> "Axes":
    """Draw the causes of the loop's time in per cent, as in the verdict.

    Green is the training step, grey start-up and shutdown, orange what the loop waits for.
    """
    judged = figure_source.loader(run, loader).verdict
    causes = sorted(judged.causes, key=lambda cause: -cause.share)[:most]
    ax = canvas.axes(ax, canvas.bars_height(len(causes)))
    title = coverage.causes_title(judged)
    if not causes:
        return canvas.say(ax, title, judged.summary)
    values = [100 * cause.share for cause in causes]
    colours = [cause_colour(cause) for cause in causes]
    _bars(ax, [brief(cause.title, 46) for cause in causes], values, colours, 60)
    canvas.dress(ax, title, "% of the loop's time")
    return ax


def shares(run: Any, ax: "Axes | None" = None, loader: int | None = None, most: int = 12) -> "Axes":
    """Draw the workers' time: operations (blue), own code (olive), collate (dark red), idle."""
    loader_summary = figure_source.loader(run, loader)
    table = loader_summary.operations
    inner = table[~table["nested"].astype(bool)]
    entries = [
        (operation_name(row["operation"]), row["total_ns"], row["workers_share"], BLUE)
        for row in rows_of(inner)
    ]
    entries += [
        (f"({row['part']})", row["total_ns"], row["workers_share"], part_colour(row["part"]))
        for row in rows_of(loader_summary.other_time)
        if row["total_ns"] > 0
    ]
    entries.sort(key=lambda entry: -entry[1])
    largest = entries[:most]
    who = "the workers'" if loader_summary.scope.num_workers else "fetching"
    ax = canvas.axes(ax, canvas.bars_height(len(largest)))
    title = f"What {who} time went to"
    if not largest:
        return canvas.say(ax, title, "No batch of this loader was recorded in detail.")
    names = [entry[0] for entry in largest]
    _bars(ax, names, [100 * entry[2] for entry in largest], [entry[3] for entry in largest])
    canvas.dress(ax, title, f"% of {who} time")
    canvas.note(ax, _left_out(len(entries) - len(largest), "with less time"))
    return ax


def operations(
    run: Any, ax: "Axes | None" = None, loader: int | None = None, most: int = 12
) -> "Axes":
    """Draw the duration of one call of each operation on a logarithmic axis.

    The line spans 5 to 95 % of the calls and the box 25 to 75 %; marks show the median, 99 % and
    the longest.
    """
    quantiles = distributions.quantiles(figure_source.loader(run, loader).scope)
    rows = quantiles.head(most)
    ax = canvas.axes(ax, canvas.bars_height(len(rows)) + 0.2)
    title = "How long each operation takes"
    if not len(rows):
        return canvas.say(ax, title, "No operation of this loader was recorded.")
    ms = {name: float_column(rows, f"{name}_ns") / 1e6 for name in (
        "p5", "p25", "p50", "p75", "p95", "p99", "max")}  # fmt: skip
    place = np.arange(len(rows))
    handles = [
        ax.hlines(place, ms["p5"], ms["p95"], color=BLUE, linewidth=1.2),
        ax.barh(place, ms["p75"] - ms["p25"], 0.5, ms["p25"], color=SKY, edgecolor=BLUE),
        ax.plot(ms["p50"], place, "|", color="black", markersize=9, markeredgewidth=1.8)[0],
        ax.plot(ms["p99"], place, "|", color=ORANGE, markersize=7, markeredgewidth=1.8)[0],
        ax.plot(ms["max"], place, "x", color=RED, markersize=5)[0],
    ]
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    low, high = ax.get_xlim()
    between = "25" if high < 50 * low else ""  # first digits that are named between 1 and 10
    ax.xaxis.set_minor_formatter(
        lambda value, _: f"{value:g}" if f"{value:.0e}"[0] in between else ""
    )
    ax.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    names = [
        f"{operation_name(row['name'])}{' (a batch)' * (row['kind'] == 'batch')}"
        for row in rows_of(rows)
    ]
    canvas.rows(ax, names)
    keys = ["5 to 95 %", "25 to 75 %", "median", "99 %", "longest"]
    legend = canvas.legend(ax, handles, keys, 5)
    canvas.dress(ax, title, "ms a call", legend_rows=legend)
    canvas.note(ax, _left_out(len(quantiles) - len(rows), "with less time in all"))
    return ax


def workers(
    run: Any, ax: "Axes | None" = None, loader: int | None = None, most: int = 32
) -> "Axes":
    """Draw the balance of workers: seconds of fetching, and idle in the loop."""
    loader_summary = figure_source.loader(run, loader)
    rows = loader_summary.workers.head(most)
    title = "Balance of the workers"
    ax = canvas.axes(ax, canvas.bars_height(len(rows)))
    if not len(rows):
        return canvas.say(ax, title, "No batch of this loader was recorded in detail.")
    several = len(loader_summary.scope.ranks) > 1
    names = []
    for row in rows_of(rows):
        text = "main" if row["worker"] < 0 else f"worker {row['worker']}"
        names.append(f"rank {row['rank']} {text}" if several else text)
    parts = {
        "fetching": (float_column(rows, "fetch_ns") / 1e9, BLUE),
        "idle in the loop": (float_column(rows, "idle_ns") / 1e9, IDLE_GREY),
    }
    legend = _stacked(ax, names, parts)
    canvas.dress(ax, title, "seconds", legend_rows=legend)
    canvas.note(
        ax, _left_out(len(loader_summary.workers) - len(rows), "with a higher number", "workers")
    )
    return ax


def ranks(run: Any, ax: "Axes | None" = None, loader: int | None = None, most: int = 32) -> "Axes":
    """Draw the balance of the ranks of a distributed training: blocked, own step, other."""
    loader_summary = figure_source.loader(run, loader)
    table: pd.DataFrame = loader_summary.ranks.sort_values("rank")
    rows = table.head(most)
    title = "Balance of the ranks"
    ax = canvas.axes(ax, canvas.bars_height(len(rows)))
    if not len(rows):
        return canvas.say(ax, title, "No rank took a batch of this loader.")
    waits, steps = 100 * float_column(rows, "wait_share"), 100 * float_column(rows, "step_share")
    parts = {
        "blocked": (waits, WAIT),
        "step": (steps, STEP),
        "other": (np.maximum(100 - waits - steps, 0), GREY),
    }
    legend = _stacked(ax, [f"rank {rank}" for rank in rows["rank"]], parts)
    canvas.dress(ax, title, "% of the rank's loop", legend_rows=legend)
    canvas.note(ax, _left_out(len(table) - len(rows), "with a higher number", "ranks"))
    return ax


def _bars(
    ax: "Axes",
    names: Sequence[object],
    values: Sequence[float],
    colours: Sequence[str],
    width: int = 40,
) -> None:
    """Draw horizontal bars of per cent, each with its value."""
    ax.barh(range(len(values)), values, 0.7, color=list(colours))
    for place, value in enumerate(values):
        canvas.at_bar(ax, place, value, share(value / 100))
    canvas.rows(ax, names, width)
    ax.set_xlim(0, 1.12 * max([*values, 1e-9]))


def _stacked(ax: "Axes", names: Sequence[object], parts: "dict[str, tuple[Any, str]]") -> int:
    """Draw stacked horizontal bars; return the rows of their legend."""
    start, handles = np.zeros(len(names)), []
    for values, colour in parts.values():
        drawn = np.nan_to_num(values)
        handles.append(ax.barh(range(len(names)), drawn, 0.7, start, color=colour))
        start = start + drawn
    canvas.rows(ax, names)
    ax.set_xlim(0, 1.02 * max([*start, 1e-9]))
    return canvas.legend(ax, handles, list(parts))


def _left_out(count: int, why: str, what: str = "operations") -> str:
    return f"{count} {what} {why} are left out." if count > 0 else ""
