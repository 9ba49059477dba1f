"""Charts of one loader: where its time went, over time, by operation, by worker, by rank."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import COLLATE
from lotus.analysis.common.columns import float_column
from lotus.analysis.samples.distributions import NAMES
from lotus.analysis.samples.operation_statistics import IDLE
from lotus.analysis.summary import LoaderSummary
from lotus.analysis.verdict.causes.step.training_step import TRACING
from lotus.analysis.verdict.verdict import Cause
from lotus.common.text.formatting import amount, duration, operation_name, share
from lotus.reporters.base.chart_parts import (
    BLUE,
    GREEN,
    GREY,
    IDLE_GREY,
    IN_COLLATE,
    LONG_NAME,
    LONGEST_NAME,
    ORANGE,
    OWN_CODE,
    PINK,
    RED,
    SKY,
    STEP,
    WAIT,
    YELLOW,
    bars_height,
    label,
    names_axis,
)
from lotus.reporters.base.console import LEFT, RIGHT, rows_of, tight
from lotus.reporters.base.page import Chart, Table
from lotus.reporters.run.parts import blocked_words, coverage, report_columns, time_bars

PART_COLOURS = {"waits": WAIT, "step": STEP, "start-up": GREY, "shut-down": GREY}
# States of threads, in the order of their bars.
STATE_COLOURS = {
    "computing": BLUE,
    "lock": ORANGE,
    "shared-lock": RED,
    "sleep": PINK,
    "file": OWN_CODE,
    "storage": GREEN,
    "page-fault": YELLOW,
    "socket": SKY,
    "local-socket": IN_COLLATE,
    "events": "#7B6FD0",
    "pipe": "#2E9E8F",
    "child": "#8A5A2B",
    "other": GREY,
}
_MOST_NAMES, _MOST_WORKERS, _MOST_CAUSES = 25, 64, 10


def part_colour(part: str) -> str:
    """Return the colour of a part of the workers' time that is no operation: the timeline's."""
    return {COLLATE: IN_COLLATE, IDLE: IDLE_GREY}.get(part, OWN_CODE)


def _room(values: Sequence[float], times: float = 1.2) -> list[float]:
    """Return the range of an axis of bars, with space for text after the longest."""
    return [0.0, times * max([*values, 1e-9])]


def brief(title: str, width: int) -> str:
    """Return a title without its details if it is too wide; a tooltip shows it in full."""
    if len(title) <= width:
        return title
    title = re.sub(r" \([^()]*\)", "", title)
    return title if len(title) <= width else re.split(r", which |: |, ", title)[0]


def cause_colour(cause: Cause) -> str:
    """Return the colour of its part; lotus's own work is no part of the user's step."""
    return GREY if cause.kind == TRACING.kind else PART_COLOURS[cause.part]


def causes(loader: LoaderSummary) -> Chart:
    """Return the causes of the verdict as shares of the loop's time."""
    largest = sorted(loader.verdict.causes, key=lambda cause: -cause.share)[:_MOST_CAUSES]
    omitted = len(loader.verdict.causes) - len(largest)
    data: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "x": [100 * cause.share for cause in largest],
        "y": list(range(len(largest))),
        "marker": {"color": [cause_colour(cause) for cause in largest]},
        "text": [share(cause.share) for cause in largest],
        "textposition": "outside",
        "cliponaxis": False,
        "customdata": [label(cause.title, 120) for cause in largest],
        "hovertemplate": "%{customdata}: %{x:.3g} %<extra></extra>",
    }
    axis = names_axis([brief(cause.title, LONG_NAME) for cause in largest], LONGEST_NAME)
    layout = {
        "height": bars_height(axis, 140),
        "xaxis": {"title": {"text": "% of the loop's time"}, "range": _room(data["x"])},
        "yaxis": axis,
        "showlegend": False,
    }
    table = report_columns.shown(report_columns.CAUSES, loader, report_columns.PAGE)
    return Chart(
        "causes",
        coverage.causes_title(loader.verdict),
        {"data": [data], "layout": layout},
        Table(table.headings, report_columns.cause_rows(table, largest)),
        "Green is the training step, orange what it waits for, or loses as its cores are used for "
        "it, grey start-up, shut-down and lotus's own work."
        + (f" Smaller causes that are left out here: {omitted}." if omitted > 0 else ""),
    )


def operations(quantiles: pd.DataFrame) -> Chart:
    """Return the durations of operations as boxes on a logarithmic axis, from `quantiles`."""
    shown = quantiles.head(_MOST_NAMES)
    ms = {name: (shown[name] / 1e6).tolist() for name in (*NAMES, "min_ns", "max_ns")}
    box = {
        "type": "box",
        "orientation": "h",
        "y": list(range(len(shown))),
        "q1": ms["p25_ns"],
        "median": ms["p50_ns"],
        "q3": ms["p75_ns"],
        "lowerfence": ms["p5_ns"],
        "upperfence": ms["p95_ns"],
        "name": "5, 25, 50, 75, 95 %",
        "line": {"color": BLUE, "width": 1.5},
        "hoverinfo": "x",
    }
    ends = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": words,
            "x": ms[name],
            "y": list(range(len(shown))),
            "marker": {"color": colour, "symbol": symbol, "size": 8},
            "hovertemplate": f"{words}: %{{x:.4g}} ms<extra></extra>",
        }
        for name, words, colour, symbol in (
            ("p99_ns", "99 %", ORANGE, "line-ns-open"),
            ("max_ns", "longest", RED, "x-thin-open"),
        )
    ]
    of = {"batch": " (a batch)"}
    names = [f"{operation_name(row['name'])}{of.get(row['kind'], '')}" for row in rows_of(shown)]
    axis = names_axis(names)
    layout = {
        "height": bars_height(axis),
        "xaxis": {"type": "log", "title": {"text": "ms"}, "dtick": 1},
        "yaxis": axis,
    }
    headings = [("", LEFT), ("count", RIGHT), ("total", RIGHT)]
    headings += [(name.removesuffix("_ns"), RIGHT) for name in ("min_ns", *NAMES, "max_ns")]
    rows = [
        [operation_name(row["name"]), amount(row["count"]), tight(row["total_ns"])]
        + [tight(row[name]) for name in ("min_ns", *NAMES, "max_ns")]
        for row in rows_of(quantiles)
    ]
    omitted = len(quantiles) - len(shown)
    note = (
        f"Those that take the most time in all; {omitted} more are in the table." if omitted else ""
    )
    return Chart(
        "operations", "How long each operation takes", {"data": [box, *ends], "layout": layout},
        Table(headings, rows), note,
    )  # fmt: skip


def shares(loader: LoaderSummary) -> Chart:
    """Return the shares of the workers' time: operations, the rest of the fetch, and idle."""
    table = loader.operations
    outer = table[~table["nested"].astype(bool)]
    inner, merged = outer.head(_MOST_NAMES), outer.iloc[_MOST_NAMES:]
    entries: list[tuple[str, float, float, str, report_columns.Row]] = [
        (operation_name(row["operation"]), row["total_ns"], row["workers_share"], BLUE, row)
        for row in rows_of(inner)
    ]
    entries += [
        (
            f"({row['part']})",
            row["total_ns"],
            row["workers_share"],
            part_colour(row["part"]),
            {},
        )
        for row in rows_of(loader.other_time)
        if row["total_ns"] > 0
    ]
    if len(merged):
        entries.append(
            (f"{amount(len(merged))} other operations", float(merged["total_ns"].sum()),
             float(merged["workers_share"].sum()), BLUE, {})
        )  # fmt: skip
    entries.sort(key=lambda entry: -entry[1])
    bars: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "x": [100 * entry[2] for entry in entries],
        "y": list(range(len(entries))),
        "marker": {"color": [entry[3] for entry in entries]},
        "text": [share(entry[2]) for entry in entries],
        "textposition": "outside",
        "cliponaxis": False,
        "hovertemplate": "%{x:.3g} %<extra></extra>",
    }
    who = "the workers'" if loader.scope.num_workers else "fetching"
    axis = names_axis([entry[0] for entry in entries])
    layout = {
        "height": bars_height(axis),
        "xaxis": {"title": {"text": f"% of {who} time"}, "range": _room(bars["x"])},
        "yaxis": axis,
        "showlegend": False,
    }
    core_times = report_columns.shown(report_columns.CORE_TIMES, loader, report_columns.PAGE)
    headings = [("", LEFT), ("time", RIGHT), ("share", RIGHT), *core_times.headings]
    rows = [
        [name, tight(ns), share(part), *core_times.cells(row)] for name, ns, part, _, row in entries
    ]
    note = (
        "Blue: operations; olive: the data set's own code and torch's; dark red: collate; grey: "
        "idle."
    )
    if words := report_columns.core_words(loader):
        note += f" {words}"
    return Chart(
        "shares", f"What {who} time went to", {"data": [bars], "layout": layout},
        Table(headings, rows), note,
    )  # fmt: skip


def blocked(loader: LoaderSummary) -> Chart:
    """Return the time of operations by what threads did in it, from looks; for a table with some.

    Operations of which that time is not known stand in the table only.
    """
    rows = rows_of(loader.blocked)
    timed = [row for row in rows if row["ns"] >= 0]
    names = list(dict.fromkeys(blocked_words.name_of(row) for row in timed))[:_MOST_NAMES]
    found = {row["reason"] for row in timed}
    data = []
    for reason in (each for each in STATE_COLOURS if each in found):
        of_reason = [row for row in timed if row["reason"] == reason]
        ns = {blocked_words.name_of(row): row["ns"] for row in of_reason}
        words = blocked_words.brief(reason)
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": words,
                "x": [ns.get(name, 0.0) / 1e9 for name in names],
                "y": list(range(len(names))),
                "marker": {"color": STATE_COLOURS[reason]},
                "hovertemplate": f"{words}: %{{x:.3g}} s<extra></extra>",
            }
        )
    axis = names_axis(names)
    layout = {
        "height": bars_height(axis),
        "barmode": "stack",
        "xaxis": {"title": {"text": "seconds, of all threads together"}},
        "yaxis": axis,
        "showlegend": True,
        "legend": {"traceorder": "normal"},
    }
    table = report_columns.shown(report_columns.BLOCKED, loader, report_columns.PAGE)
    return Chart(
        "blocked",
        "Computing and blocked, by operation",
        {"data": data, "layout": layout},
        Table(table.headings, table.rows(rows)),
        "By looks at each thread, at most 50 a second. Computing: on a core, or ready without one."
        + (" What is not known is in the table only." if len(timed) < len(rows) else ""),
    )


def workers(loader: LoaderSummary) -> Chart:
    """Return fetching and idle time of each worker, and its time per sample."""
    table = loader.workers
    shown = table.head(_MOST_WORKERS)
    cells = report_columns.shown(report_columns.WORKERS, loader, report_columns.PAGE)
    rows = cells.rows(rows_of(shown))
    names = [row[0] for row in rows]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": words,
            "x": (float_column(shown, column) / 1e9).tolist(),
            "y": list(range(len(shown))),
            "marker": {"color": colour},
            "hovertemplate": f"{words}: %{{x:.4g}} s<extra></extra>",
        }
        for column, words, colour in (
            ("fetch_ns", "fetching", BLUE),
            ("idle_ns", "idle in the loop", IDLE_GREY),
        )
    ]
    axis = names_axis(names)
    layout = {
        "height": bars_height(axis),
        "barmode": "stack",
        "xaxis": {"title": {"text": "seconds"}},
        "yaxis": axis,
    }
    omitted = len(table) - len(shown)
    return Chart(
        "workers", "Balance of the workers", {"data": data, "layout": layout},
        Table(cells.headings, rows), f"{omitted} more workers: see --json." if omitted else "",
    )  # fmt: skip


def ranks(loader: LoaderSummary) -> Chart:
    """Return the parts of each rank's loop."""
    table = loader.ranks.sort_values("rank").head(_MOST_WORKERS)
    waits, steps = 100 * float_column(table, "wait_share"), 100 * float_column(table, "step_share")
    parts: Mapping[str, tuple[Any, str]] = {
        "blocked": (waits, WAIT),
        "step": (steps, STEP),
        "other": (np.maximum(100 - waits - steps, 0), GREY),
    }
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": values.tolist(),
            "y": list(range(len(table))),
            "marker": {"color": colour},
            "hovertemplate": f"{name}: %{{x:.3g}} %<extra></extra>",
        }
        for name, (values, colour) in parts.items()
    ]
    axis = names_axis([f"rank {rank}" for rank in table["rank"]])
    layout = {
        "height": bars_height(axis),
        "barmode": "stack",
        "xaxis": {"title": {"text": "% of the rank's loop"}},
        "yaxis": axis,
    }
    cells = report_columns.shown(report_columns.RANKS, loader, report_columns.PAGE)
    rows = cells.rows(rows_of(table))
    omitted = len(loader.ranks) - len(table)
    return Chart(
        "ranks",
        "Balance of the ranks",
        {"data": data, "layout": layout},
        Table(cells.headings, rows),
        f"{omitted} more ranks: see --json." if omitted else "",
    )


def run_time(parts: Sequence[tuple[str, float, float]], delayed: str = "") -> Chart:
    """Return the wall time of the run as bars of (part, nanoseconds, share).

    `delayed` is a sentence on the time in which it had no core.
    """
    names = [name for name, _, _ in parts]
    data: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "x": [ns / 1e9 for _, ns, _ in parts],
        "y": list(range(len(parts))),
        "marker": {"color": [_colour_of(name) for name in names]},
        "text": [f"{duration(ns)}, {share(part)}" for _, ns, part in parts],
        "textposition": "outside",
        "cliponaxis": False,
        "customdata": [label(name, 120) for name in names],
        "hovertemplate": "%{customdata}: %{x:.3g} s<extra></extra>",
    }
    axis = names_axis(names, LONGEST_NAME)
    layout = {
        "height": bars_height(axis, 140),
        "xaxis": {"title": {"text": "seconds of wall time"}, "range": _room(data["x"], 1.6)},
        "yaxis": axis,
        "showlegend": False,
    }
    rows = [[name, tight(ns), share(part)] for name, ns, part in parts]
    return Chart(
        "run-time",
        "Where the run's time went",
        {"data": [data], "layout": layout},
        Table([("part", LEFT), ("time", RIGHT), ("share", RIGHT)], rows),
        f"Orange is waiting for data, green the training step, grey all else. {delayed}".rstrip(),
    )


def _colour_of(name: str) -> str:
    words = name.partition(",")[0]
    return {time_bars.WAITING: WAIT, time_bars.TRAINING: STEP}.get(words, GREY)
