"""Charts of one loader over time: batches, throughput, what every worker did, memory."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column
from lotus.analysis.summary import LoaderSummary
from lotus.analysis.timelines import lanes as lane_kinds
from lotus.analysis.timelines.lanes import Lanes
from lotus.analysis.timelines.time_series import MEASURES
from lotus.common.numbers.array_types import Floats
from lotus.common.text.formatting import amount, duration, operation_name, plain, size
from lotus.reporters.base.chart_parts import (
    BLUE,
    GREY,
    IDLE_GREY,
    IN_COLLATE,
    ORANGE,
    OWN_CODE,
    PINK,
    SKY,
    STEP,
    WAIT,
    YELLOW,
    label,
)
from lotus.reporters.base.console import LEFT, RIGHT, rows_of, tight
from lotus.reporters.base.page import COLOURS, Chart, Table, packed

DELAY = ORANGE
_KIND_COLOURS = {
    "collate": IN_COLLATE,
    lane_kinds.REST: OWN_CODE,
    "idle": IDLE_GREY,
    "start-up": GREY,
    "wait": WAIT,
    "step": STEP,
    lane_kinds.OTHER_OPERATIONS: "#88CCEE",
}
_OPERATION_COLOURS = (BLUE, ORANGE, PINK, YELLOW, SKY)
_MOST_LINES = 64
_MOST_BANDS = 500
_LANE_ROWS = 20  # parts of a lane's height, so a twentieth of a bin's time is a row of pixels


def batches(loader: LoaderSummary, thinned: pd.DataFrame) -> Chart:
    """Return wait, step and delay of each batch over time, from `series.thinned`."""
    per_point = float(float_column(thinned, "batches").max()) if len(thinned) else 1.0
    data: list[dict[str, Any]] = []
    ranks = sorted(set(thinned["rank"]))
    broken = _broken(thinned)
    for name, colour in zip(MEASURES, (WAIT, STEP, DELAY), strict=True):
        for place, rank in enumerate(ranks):
            mine = broken[broken["rank"] == rank]
            text = name if len(ranks) == 1 else f"{name}, rank {rank}"
            visibility = {"visible": True if name != "delay" else "legendonly"}
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers" if len(mine) <= 400 else "lines",
                    "name": text,
                    "legendgroup": name,
                    "x": packed(mine["time_ns"] / 1e9, "f8"),
                    "y": packed(mine[f"{name}_ns"] / 1e6, "f4"),
                    "line": {"color": colour, "width": 1.3, "dash": _dash(place)},
                    "marker": {"size": 4},
                    "hovertemplate": "%{y:.4g} ms at %{x:.4g} s",
                    **visibility,
                }
            )
            if per_point > 1:
                data.append(
                    {
                        "type": "scatter",
                        "mode": "lines",
                        "name": f"longest {text}",
                        "legendgroup": name,
                        "x": packed(mine["time_ns"] / 1e9, "f8"),
                        "y": packed(mine[f"{name}_max_ns"] / 1e6, "f4"),
                        "line": {"color": colour, "width": 0.6, "dash": "dot"},
                        "hovertemplate": "%{y:.4g} ms at %{x:.4g} s",
                        **visibility,
                    }
                )
    layout = {
        "height": 380,
        "xaxis": {"title": {"text": "seconds since the first iter()"}},
        "yaxis": {"title": {"text": "ms"}, "rangemode": "tozero"},
        "hovermode": "x unified" if len(data) <= 6 else "closest",
    }
    columns = [("", LEFT), *((name, RIGHT) for name in ("count", "mean", "p50", "p95", "max"))]
    rows = [
        [row["measure"], amount(row["count"])]
        + [tight(row[f"{key}_ns"]) for key in ("mean", "p50", "p95", "max")]
        for row in rows_of(loader.batches)
    ]
    note = "wait: the loop was blocked for the batch; step: its own time until it asked for the "
    note += "next; delay: the batch was ready and not yet taken (choose it in the legend)."
    if per_point > 1:
        note += (
            f" Each point is the mean of {per_point:.0f} neighbouring batches; dotted the longest."
        )
    return Chart(
        "batches", "Each batch: wait, step, delay", {"data": data, "layout": layout},
        Table(columns, rows), note,
    )  # fmt: skip


def _broken(thinned: pd.DataFrame) -> pd.DataFrame:
    """Insert an empty row between epochs, so that no line joins them."""
    last = ~thinned.duplicated(["rank", "epoch"], keep="last") & thinned.duplicated("rank", "last")
    gaps = thinned.loc[last, ["rank", "time_ns"]]
    return pd.concat([thinned, gaps]).sort_index(kind="stable")


def _dash(place: int) -> str:
    return ("solid", "dash", "dashdot", "longdash")[place % 4]


def throughput(frame: pd.DataFrame, loops: pd.DataFrame) -> Chart:
    """Return samples per second over time, from `series.throughput`, with the `loops` of other
    loaders.
    """
    data = []
    for rank in sorted(set(frame["rank"])):
        mine = frame[frame["rank"] == rank]
        # Steps from edge to edge: the last bin is as wide as the others.
        edges = np.append(mine["start_ns"], mine["end_ns"].iloc[-1]) / 1e9
        rates = np.append(mine["samples_per_s"], mine["samples_per_s"].iloc[-1])
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"rank {rank}",
                "x": packed(edges, "f8"),
                "y": packed(rates, "f4"),
                "line": {"shape": "hv", "width": 1.5, "color": COLOURS[rank % len(COLOURS)]},
                "hovertemplate": "%{y:.4g} samples/s at %{x:.4g} s<extra></extra>",
            }
        )
    layout = {
        "height": 300,
        "xaxis": {"title": {"text": "seconds since the first iter()"}},
        "yaxis": {"title": {"text": "samples/s"}, "rangemode": "tozero"},
        "showlegend": len(data) > 1,
        "shapes": [_band(loop) for loop in rows_of(loops.head(_MOST_BANDS))],
    }
    columns = [("rank", LEFT), ("from", RIGHT), ("to", RIGHT), ("samples", RIGHT)]
    columns += [("samples/s", RIGHT)]
    rows = [
        [
            str(row["rank"]),
            f"{row['start_ns'] / 1000000000.0:.3f} s",
            f"{row['end_ns'] / 1000000000.0:.3f} s",
            amount(row["samples"]),
            amount(row["samples_per_s"]),
        ]
        for row in rows_of(frame)
    ]
    width = float((frame["end_ns"] - frame["start_ns"]).max())
    return Chart(
        "throughput", "Throughput over time", {"data": data, "layout": layout},
        Table(columns, rows), _of_throughput(width, loops),
    )  # fmt: skip


def _of_throughput(width: float, loops: pd.DataFrame) -> str:
    note = f"Samples that were taken while the loop ran, in parts of {duration(width)}."
    if len(loops):
        titles = ", ".join(dict.fromkeys(plain(title) for title in loops["title"]))
        note += f" Grey: the program was in another loop ({titles})."
    return note


def _band(loop: Mapping[str, Any]) -> dict[str, Any]:
    """Return the time of a loop as a band behind the lines of a chart."""
    return {
        "type": "rect",
        "layer": "below",
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "x0": loop["start_ns"] / 1e9,
        "x1": loop["end_ns"] / 1e9,
        "line": {"width": 0},
        "fillcolor": IDLE_GREY,
        "opacity": 0.5,
    }


def timeline(lanes: Lanes) -> Chart:
    """Return what every worker did, from `analysis.lanes`, as a picture of stacked shares."""
    count, kinds, bins = lanes.share.shape
    rows = lane_rows(count)
    raster = np.full((count * (rows + 1), bins), kinds, np.uint8)  # one kind more: nothing known
    percent = np.zeros_like(raster)
    height = np.arange(rows)[:, None]
    for lane, share_of in enumerate(lanes.share):
        # Work grows from the bottom of a lane; the picture's first row is at the top.
        part = slice(lane * (rows + 1), lane * (rows + 1) + rows)
        cells, texts = raster[part][::-1], percent[part][::-1]
        edges = np.rint(np.cumsum(share_of, axis=0) * rows)
        for kind in range(kinds):
            inside = (height < edges[kind]) & (height >= (edges[kind - 1] if kind else 0))
            cells[inside] = kind
            shares = np.rint(100 * share_of[kind]).astype(np.uint8)
            texts[inside] = np.broadcast_to(shares, inside.shape)[inside]
    colours = kind_colours(lanes.kinds)
    stops: list[list[Any]] = []
    for kind, colour in enumerate([*colours, "rgba(0,0,0,0)"]):
        stops += [[kind / (kinds + 1), colour], [(kind + 1) / (kinds + 1), colour]]
    width = float(lanes.edges_ns[-1]) / bins if bins else 0.0
    heat = {
        "type": "heatmap",
        "x0": width / 2e9,
        "dx": width / 1e9,
        "z": packed(raster, "u1"),
        "customdata": packed(percent, "u1"),
        "colorscale": stops,
        "zmin": -0.5,
        "zmax": kinds + 0.5,
        "showscale": False,
        "hovertemplate": "%{customdata} % of the time around %{x:.5g} s<extra></extra>",
    }
    titles = lane_titles(lanes.lanes)
    layout = {
        "height": max(180, min(80 + 46 * count, 900)),
        "xaxis": {"title": {"text": "seconds"}, "range": [0, width * bins / 1e9]},
        "yaxis": {
            "tickvals": [lane * (rows + 1) + (rows - 1) / 2 for lane in range(count)],
            "ticktext": [label(title) for title in titles],
            "range": [count * (rows + 1) - 0.5, -1],
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        },
    }
    seconds = lanes.seconds()
    columns = [("", LEFT), *((operation_name(name), RIGHT) for name in lanes.kinds)]
    table = [
        [title, *(tight(float(seconds[name].iloc[row]) * 1e9) for name in lanes.kinds)]
        for row, title in enumerate(titles)
    ]
    note = f"Drawn in {bins:,} parts of {duration(width)}. In each, the height of a colour is the "
    note += f"share of that time, in steps of 1/{rows}. Nothing is left out, but start and end "
    note += "of what is shorter than a part do not show. Sending runs in parallel and is not drawn."
    if lanes.left_out:
        note += f" {lanes.left_out} more lanes, with less work, are left out."
    legend = list(zip(map(operation_name, lanes.kinds), colours, strict=True))
    return Chart(
        "timeline", "What every worker did", {"data": [heat], "layout": layout},
        Table(columns, table), note, legend,
    )  # fmt: skip


def lane_rows(count: int) -> int:
    """Return the rows of pixels per lane; shares are drawn in steps of a row."""
    return max(4, min(_LANE_ROWS, 600 // max(count, 1)))


def kind_colours(kinds: Sequence[str]) -> list[str]:
    """Return a colour for each kind of slice."""
    operations = iter(_OPERATION_COLOURS)
    return [_KIND_COLOURS.get(name) or next(operations, GREY) for name in kinds]


def lane_titles(lanes: pd.DataFrame) -> list[str]:
    """Return titles that are as short as possible but distinct."""
    ranks, loaders = (
        lanes["rank"].nunique() > 1,
        lanes["loader"][lanes["worker"] >= 0].nunique() > 1,
    )
    titles = []
    mains = lanes[lanes["worker"] < 0].groupby("rank").size()
    for row in rows_of(lanes):
        text = "main" if row["worker"] < 0 else f"worker {row['worker']}"
        if row["worker"] < 0 and mains[row["rank"]] > 1:
            text += f" (thread {row['pid']})"
        if loaders and row["worker"] >= 0:
            text = f"loader {row['loader']} {text}"
        titles.append(f"rank {row['rank']} {text}" if ranks else text)
    return titles


def memory(frame: pd.DataFrame) -> Chart:
    """Return the memory of each process over time, from `series.memory`.

    Processes that were one worker in turn, as where each epoch makes workers anew, are one line
    with gaps, so that the legend has each name once.
    """
    several = frame["rank"].nunique() > 1
    data: list[dict[str, Any]] = []
    rows, left_out = [], 0
    for _, of_worker in frame.groupby(["rank", "worker"]):
        rank, worker = (int(of_worker[name].iloc[0]) for name in ("rank", "worker"))
        name = "main" if worker < 0 else f"worker {worker}"
        name = f"rank {rank} {name}" if several else name
        processes = [mine for _, mine in of_worker.groupby("pid")]
        processes.sort(key=lambda mine: int(mine["time_ns"].iloc[0]))
        for mine in processes:
            sizes = mine["pss_bytes"].to_numpy(np.float64)
            last = sizes[-1] if len(sizes) > 1 else np.nan  # one reading is not the last of any
            shown = (size(each) for each in (sizes[0], last, sizes.max()))
            rows.append([name, str(int(mine["pid"].iloc[0])), *shown])
        if len(data) == _MOST_LINES:
            left_out += len(processes)
            continue
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": packed(_with_gaps(processes, "time_ns") / 1e9, "f8"),
                "y": packed(_with_gaps(processes, "pss_bytes") / 2**20, "f4"),
                "line": {"color": COLOURS[(worker + 1) % len(COLOURS)], "width": 1.5},
                "marker": {"size": 4},
                "hovertemplate": "%{y:,.0f} MiB at %{x:.4g} s",
            }
        )
    layout = {
        "height": 300,
        "xaxis": {"title": {"text": "seconds since the first iter()"}},
        "yaxis": {"title": {"text": "MiB"}, "rangemode": "tozero"},
        "showlegend": len(data) > 1,
    }
    columns = [("", LEFT), ("pid", RIGHT), ("first", RIGHT), ("last", RIGHT), ("largest", RIGHT)]
    note = "Proportional set size: what processes share is divided among them."
    if len(rows) > len(data) + left_out:
        note += " A gap in a line is where the worker's process was made anew."
    if left_out:
        note += f" {left_out} more processes are in the table."
    return Chart(
        "memory", "Memory of each process", {"data": data, "layout": layout}, Table(columns, rows),
        note,
    )  # fmt: skip


def _with_gaps(processes: Sequence[pd.DataFrame], name: str) -> Floats:
    """Return a column of several tables, one after the other, with NaN between them."""
    parts = [[*mine[name].to_numpy(np.float64), np.nan] for mine in processes]
    return np.concatenate(parts)[:-1]
