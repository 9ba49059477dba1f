"""Pictures of ranks over steps: lateness, wait, step and synchronisation, a row per rank."""

from typing import Any

import numpy as np

from lotus.analysis.ranks.rank_steps import Cells, RankSteps, binned
from lotus.analysis.ranks.rank_verdict import RankSummary
from lotus.common.text.formatting import plain, shorten
from lotus.reporters.base.chart_parts import label
from lotus.reporters.base.console import LEFT, RIGHT, tight
from lotus.reporters.base.page import Chart, Section, Table, packed
from lotus.reporters.ranks import rank_report

_MOST_ROWS, _MOST_LABELS = 200, 20
# Works on light and dark: usual values are close to the background.
_EARLY_LATE = [[0.0, "rgb(0,114,178)"], [0.5, "rgba(128,128,128,0.1)"], [1.0, "rgb(213,94,0)"]]
_AMOUNT = [[0.0, "rgba(128,128,128,0.1)"], [0.5, "rgb(86,180,233)"], [1.0, "rgb(204,121,167)"]]


def sections(summary: RankSummary) -> list[Section]:
    """Return the section of the page."""
    columns, rows, omitted = rank_report.cells(summary, _MOST_ROWS)
    parts: list[str | Table | Chart] = [
        *rank_report.verdict(summary),
        *rank_report.remarks(summary),
    ]
    parts.append(Table(columns, rows))
    if omitted:
        parts.append(f"{omitted} ranks more are left out of the table: see --json.")
    parts += heat_maps(summary)
    return [Section(rank_report.TITLE, parts)]


def heat_maps(summary: RankSummary) -> list[Chart]:
    """Return a picture of each available measure."""
    steps = summary.steps
    table = summary.table
    made = (
        ("late", "Lateness: arrival after the other ranks' median", steps.late, "late_ns"),
        ("wait", "Waiting for data", steps.wait, "wait_ns"),
        ("step", "Step: own time without waiting for data", steps.step, "step_ns"),
        ("sync", "Synchronisation of gradients that nothing overlaps", steps.sync, "sync_ns"),
    )
    charts = []
    for name, title, values, column in made:
        if not np.isnan(values).all():
            row_means = [tight(float(value)) for value in table[column]]
            charts.append(_heat_map(f"ranks-{name}", title, steps, values, row_means))
    return charts


def _heat_map(id: str, title: str, steps: RankSteps, values: Cells, row_means: list[str]) -> Chart:
    drawn = binned(values)
    cells = drawn.cells / 1e6
    steps_per_cell = drawn.steps_each * steps.thinned
    diverging = id == "ranks-late"
    # Clip a few outliers, such as the first steps of epochs, so that the rest keeps its colours.
    # A rank that is always slow is not an outlier.
    magnitudes = np.abs(cells[~np.isnan(cells)])
    usual = (np.median(row[~np.isnan(row)]) for row in np.abs(cells) if not np.isnan(row).all())
    top = max(float(np.percentile(magnitudes, 95)), *map(float, usual))
    low = float(np.percentile(magnitudes, 5)) if id == "ranks-step" else 0.0
    top = top if top > low else low + 1e-3
    rows = len(cells)
    heat: dict[str, Any] = {
        "type": "heatmap",
        "x0": (steps_per_cell - 1) / 2,
        "dx": steps_per_cell,
        "z": packed(cells, "f4"),
        "colorscale": _EARLY_LATE if diverging else _AMOUNT,
        "zmin": -top if diverging else low,
        "zmax": top,
        "colorbar": {"title": {"text": "ms"}, "thickness": 12, "outlinewidth": 0},
        "hoverongaps": False,
        "hovertemplate": "%{z:.4g} ms, step %{x:.0f}, %{y}<extra></extra>",
    }
    names = [_name(steps, row * drawn.ranks_each, drawn.ranks_each) for row in range(rows)]
    labelled = range(0, rows, -(-rows // _MOST_LABELS) or 1)
    layout = {
        "height": max(180, min(90 + 26 * rows, 620)),
        "xaxis": {"title": {"text": "step"}, "showgrid": False, "zeroline": False},
        "yaxis": {
            "tickvals": list(labelled),
            "ticktext": [label(names[row]) for row in labelled],
            "range": [rows - 0.5, -0.5],
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        },
    }
    note = "Blue came before the others, orange after them. " if diverging else ""
    note += f"Colours end at {top:.3g} ms: at most one cell in 20 is beyond."
    if magnitudes.size < cells.size:
        note += " Empty: the rank took no part in the step, or it was not measured."
    if steps_per_cell > 1 or drawn.ranks_each > 1:
        note += f" A cell is the mean of {steps_per_cell:,} steps"
        if drawn.ranks_each > 1:
            note += f", the largest of {drawn.ranks_each} neighbouring ranks"
        note += "."
    if steps.thinned > 1:
        note += f" One step in {steps.thinned} was looked at."
    full = [
        [str(rank), plain(host), mean]
        for rank, host, mean in zip(steps.ranks, steps.hosts, row_means, strict=True)
    ]
    return Chart(
        id, title, {"data": [heat], "layout": layout},
        Table([("rank", LEFT), ("host", LEFT), ("mean", RIGHT)], full), note,
    )  # fmt: skip


def _name(steps: RankSteps, first: int, count: int) -> str:
    several = len(set(steps.hosts)) > 1
    last = min(first + count, len(steps.ranks)) - 1
    if first < last:
        return f"ranks {steps.ranks[first]}-{steps.ranks[last]}"
    host = f" on {shorten(plain(steps.hosts[first]), 20)}" if several else ""
    return f"rank {steps.ranks[first]}{host}"
