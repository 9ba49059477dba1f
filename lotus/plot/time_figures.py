"""Figures over time: batches, throughput, what every worker did, memory."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column
from lotus.analysis.common.remade_loaders import merged
from lotus.analysis.common.scope import table
from lotus.analysis.timelines import lanes as lane_kinds
from lotus.analysis.timelines import time_series
from lotus.common.text.formatting import duration, operation_name
from lotus.plot import canvas, figure_source
from lotus.reporters.base.chart_parts import STEP, WAIT
from lotus.reporters.base.page import COLOURS
from lotus.reporters.run.charts.time_charts import DELAY, kind_colours, lane_titles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MEASURES = {"wait": WAIT, "step": STEP, "delay": DELAY}
_STYLES = ("-", "--", "-.", ":")  # of ranks
_SINCE = "seconds since the first iter()"
_MARKED = 150  # points of a line: more than these are no longer told apart


def batches(
    run: Any, ax: "Axes | None" = None, loader: int | None = None, delay: bool = False
) -> "Axes":
    """Draw wait and step of each batch over time, in ms, and with `delay` how long it lay ready.

    In a long run each point is the mean of neighbours, and a thin line shows their maximum.
    """
    table = time_series.thinned(
        time_series.batch_series(figure_source.loader(run, loader).scope), 600
    )
    title = "Each batch: wait, step, delay" if delay else "Each batch: wait and step"
    ax = canvas.axes(ax)
    if not len(table):
        return canvas.say(ax, title, "No batch was taken from this loader.")
    handles, names, missing = [], [], []
    several, per_point = table["rank"].nunique() > 1, float(float_column(table, "batches").max())
    for measure, colour in _MEASURES.items():
        if measure == "delay" and not delay:
            continue
        if not table[f"{measure}_ns"].notna().any():
            missing.append(measure)
            continue
        for place, (rank, mine) in enumerate(table.groupby("rank")):
            x = float_column(mine, "time_ns") / 1e9
            style: dict[str, Any] = {"color": colour, "linestyle": _STYLES[place % len(_STYLES)]}
            mark = "." if len(mine) <= _MARKED else ""
            (line,) = ax.plot(
                x, float_column(mine, f"{measure}_ns") / 1e6, linewidth=1.1, marker=mark, **style
            )
            if per_point > 1:
                ax.plot(x, float_column(mine, f"{measure}_max_ns") / 1e6, linewidth=0.4, **style)
            handles.append(line)
            names.append(f"{measure}, rank {rank}" if several else measure)
    _from_zero(ax)
    rows = canvas.legend(ax, handles, names)
    canvas.dress(ax, title, _SINCE, "ms", rows)
    texts = [f"Not recorded in this run: {', '.join(missing)}."] if missing else []
    if per_point > 1:
        texts.append(
            f"Each point is the mean of {per_point:.0f} neighbours; thin: the longest of them."
        )
    canvas.note(ax, " ".join(texts))
    return ax


def throughput(run: Any, ax: "Axes | None" = None, loader: int | None = None) -> "Axes":
    """Draw samples per second over time, with one line per rank."""
    series = time_series.batch_series(figure_source.loader(run, loader).scope)
    table = time_series.throughput(series)
    ax = canvas.axes(ax, 2.4)
    title = "Throughput over time"
    if not len(table):
        return canvas.say(ax, title, "How many samples a batch had was not recorded.")
    handles, names = [], []
    for rank, mine in table.groupby("rank"):
        edges = np.append(float_column(mine, "start_ns"), mine["end_ns"].iloc[-1]) / 1e9
        colour = COLOURS[int(str(rank)) % len(COLOURS)]
        handles.append(
            ax.stairs(mine["samples_per_s"], edges, baseline=None, color=colour, linewidth=1.4)
        )
        names.append(f"rank {rank}")
    _from_zero(ax)
    rows = canvas.legend(ax, handles, names, 6) if len(names) > 1 else 0
    canvas.dress(ax, title, _SINCE, "samples/s", rows)
    return ax


def timeline(run: Any, ax: "Axes | None" = None, bins: int = 600, most: int = 24) -> "Axes":
    """Draw what every worker did when: in each bin the height of a colour is its share of the time.

    Nothing is sampled or left out, so the density is right however long the run was.
    """
    contents = figure_source.loader(run, None).scope.calls.contents
    ranks = pd.DataFrame(run.manifest["ranks"])
    workers = table(merged(run), "workers")
    drawn_lanes = lane_kinds.lanes(
        run.other_intervals, contents, workers, ranks, bins, most_lanes=most
    )
    title = "What every worker did"
    count = len(drawn_lanes.lanes)
    ax = canvas.axes(ax, max(2.0, 1.2 + 0.42 * count))
    if not count:
        return canvas.say(ax, title, "No interval of this run was recorded.")
    seconds = drawn_lanes.edges_ns / 1e9
    handles: dict[str, Any] = {}
    for lane, shares in enumerate(drawn_lanes.share):
        bottom = np.zeros(shares.shape[1])
        for kind, colour, part in zip(
            drawn_lanes.kinds, kind_colours(drawn_lanes.kinds), shares, strict=True
        ):
            if part.any():
                # The y axis grows downwards; a lane's work grows from its bottom.
                low, high = lane + 0.42 - 0.84 * bottom, lane + 0.42 - 0.84 * (bottom + part)
                handles[kind] = ax.fill_between(
                    seconds, np.append(low, low[-1]), np.append(high, high[-1]), step="post",
                    color=colour, linewidth=0,
                )  # fmt: skip
            bottom = bottom + part
    canvas.rows(ax, lane_titles(drawn_lanes.lanes))
    ax.set_xlim(0, seconds[-1])
    kinds = [kind for kind in drawn_lanes.kinds if kind in handles]
    rows = canvas.legend(ax, [handles[kind] for kind in kinds], [*map(operation_name, kinds)], 5)
    width = (drawn_lanes.edges_ns[-1] - drawn_lanes.edges_ns[0]) / max(
        len(drawn_lanes.edges_ns) - 1, 1
    )
    canvas.dress(ax, title, f"seconds (in parts of {duration(width)})", legend_rows=rows)
    if drawn_lanes.left_out:
        canvas.note(ax, f"{drawn_lanes.left_out} lanes with less work are left out.")
    return ax


def memory(run: Any, ax: "Axes | None" = None, loader: int | None = None) -> "Axes":
    """Draw the memory of each process over time, in MiB of proportional set size."""
    table = time_series.memory(figure_source.loader(run, loader).scope)
    ax = canvas.axes(ax, 2.4)
    title = "Memory of each process"
    if not table.duplicated(["rank", "worker", "pid"]).any():
        return canvas.say(
            ax, title, "Memory is read at most once a second, and this run has no two readings "
            "of a process: record a longer one.",
        )  # fmt: skip
    several = table["rank"].nunique() > 1
    handles: dict[str, Any] = {}
    for _, mine in table.groupby(["rank", "worker", "pid"]):
        rank, worker = int(mine["rank"].iloc[0]), int(mine["worker"].iloc[0])
        name = "main" if worker < 0 else f"worker {worker}"
        name = f"rank {rank} {name}" if several else name
        (line,) = ax.plot(
            float_column(mine, "time_ns") / 1e9, float_column(mine, "pss_bytes") / 2**20,
            marker=".", linewidth=1.2, color=COLOURS[(worker + 1) % len(COLOURS)],
        )  # fmt: skip
        handles.setdefault(name, line)
    _from_zero(ax)
    names = list(handles)[:12]
    rows = canvas.legend(ax, [handles[name] for name in names], names, 6)
    canvas.dress(ax, title, _SINCE, "MiB", rows)
    if len(handles) > len(names):
        canvas.note(ax, f"{len(handles) - len(names)} more processes are drawn and not named.")
    return ax


def _from_zero(ax: "Axes") -> None:
    ax.set_ylim(bottom=0)
    ax.set_xlim(left=0)
    ax.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
