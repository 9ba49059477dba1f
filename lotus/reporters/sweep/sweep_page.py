"""A sweep as a page, after the Lotus paper's Figure 1: each measure against workers."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lotus.common.text.formatting import amount, big, duration, operation_name, plain, share, size
from lotus.reporters.base.chart_parts import label
from lotus.reporters.base.console import LEFT, RIGHT
from lotus.reporters.base.page import COLOURS, Chart, Section, Table
from lotus.reporters.sweep import sweep_report as words
from lotus.sweep.run_numbers import OUTSIDE
from lotus.sweep.sweep_summary import Series, SweepSummary

_HEIGHT = 380
_MOST_OPERATIONS = 8  # as many as there are colours; the rest is put together
_KNEE = COLOURS[7]
Say = Callable[[float], str]


def heading(summary: SweepSummary) -> Section:
    """Return the knee, what saturates, and what was swept where."""
    return Section(
        f"Sweep: {plain(summary.path)}",
        [*words.sentences(summary), *words.heading_lines(summary)[1:], command_line(summary)],
    )


def command_line(summary: SweepSummary) -> str:
    """Return the command."""
    return words.heading_lines(summary)[0]


def sections(summary: SweepSummary) -> list[Section]:
    """Return all charts; sections of unmeasured values are left out."""
    sections = [
        Section("Time", _present([_elapsed(summary), _throughput(summary), _waits(summary)])),
        Section("CPU", _present([_cpu(summary), _cost(summary), _cores(summary)])),
    ]
    hardware = _present([
        _hardware(summary, "frontend_bound", "Slots lost to the front end", "% of slots", share),
        _hardware(summary, "backend_bound", "Slots lost to the back end", "% of slots", share),
        _hardware(summary, "ipc", "Instructions a cycle", "instructions a cycle", amount),
        _hardware(summary, "dram_loads", "Loads that memory served", "loads", big),
    ])  # fmt: skip
    if not hardware:
        hardware = ["No hardware events were counted, so nothing is known of the CPU's pipeline."]
    sections.append(Section("Inside the CPU", hardware))
    sections.append(Section("Kernel and memory", _present([_kernel(summary), _memory(summary)])))
    sections.append(Section("Knee", _knees(summary)))
    if summary.failed:
        rows = [
            [failure["label"], str(failure["repeat"] + 1), failure["problem"], failure["log"]]
            for failure in summary.failed
        ]
        columns = [("setting", LEFT), ("round", RIGHT), ("why", LEFT), ("output", LEFT)]
        sections.append(Section("Runs that failed, and do not count", [Table(columns, rows)]))
    if summary.notes:
        sections.append(Section("Notes", [plain(note) for note in summary.notes]))
    return [section for section in sections if section.parts]


def _present(charts: Sequence[Chart | None]) -> list[str | Table | Chart]:
    return [chart for chart in charts if chart is not None]


def _elapsed(summary: SweepSummary) -> Chart | None:
    return _lines(
        summary, "elapsed", "Elapsed time against workers",
        [("elapsed_s", "command"), ("loop_s", "loop")], "seconds", words.seconds,
        note="command: from its start to its end; loop: iterating the loader, steps included",
    )  # fmt: skip


def _throughput(summary: SweepSummary) -> Chart | None:
    return _lines(
        summary, "throughput", "Throughput against workers", [("samples_per_s", "")],
        "samples a second", amount,
    )  # fmt: skip


def _waits(summary: SweepSummary) -> Chart | None:
    return _lines(
        summary, "waits", "Who waits",
        [("wait_share", "loop waits, start-up included"), ("idle_share", "workers idle")],
        "% of their time", share, scale=100,
    )  # fmt: skip


def _cost(summary: SweepSummary) -> Chart | None:
    return _lines(
        summary, "cost", "What fetching a sample costs",
        [("cpu_us_per_sample", "CPU time"), ("wall_us_per_sample", "time")],
        "microseconds a sample", lambda value: duration(1e3 * value),
    )  # fmt: skip


def _cores(summary: SweepSummary) -> Chart | None:
    return _lines(
        summary, "cores", "Cores",
        [("fetch_utilisation", "used by fetching, of all cores"),
         ("utilisation", "used by the whole command, of all cores"),
         ("queue_share", "fetches ready to run without a core"),
         ("off_share", "fetches waiting for something else")],
        "%", share, scale=100,
    )  # fmt: skip


def _kernel(summary: SweepSummary) -> Chart | None:
    return _lines(
        summary, "kernel", "Page faults and context switches of the fetches",
        [("minor_faults", "minor faults"), ("major_faults", "major faults"),
         ("voluntary_switches", "switches, voluntary"),
         ("involuntary_switches", "switches, involuntary")], "count", amount,
    )  # fmt: skip


def _memory(summary: SweepSummary) -> Chart | None:
    return _lines(
        summary, "memory", "Memory of all processes at its peak", [("memory_bytes", "")], "GiB",
        size, scale=2.0**-30,
    )  # fmt: skip


def _lines(
    summary: SweepSummary,
    name: str,
    title: str,
    measures: Sequence[tuple[str, str]],
    unit: str,
    say: Say,
    scale: float = 1.0,
    note: str = "",
) -> Chart | None:
    """Return measures against workers, a line per measure and series, with interval bars."""
    data: list[dict[str, Any]] = []
    dashes = ("solid", "dash", "dot", "dashdot")
    used = [measure for measure in measures if measure[0] in set(summary.measures["measure"])]
    for number, series in enumerate(summary.series):
        for count, (measure, text) in enumerate(used):
            points = [
                (summary.settings[place].num_workers, *summary.of(place, measure))
                for place in series.settings
            ]
            points = [point for point in points if not math.isnan(point[1])]
            if not points:
                continue
            colour = count if len(used) > 1 else number
            dash = number if len(used) > 1 else 0
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": label(
                        ", ".join(part for part in (text, series.name) if part) or unit, 60
                    ),
                    "x": [point[0] for point in points],
                    "y": [point[1] * scale for point in points],
                    "error_y": _bars(points, scale),
                    "line": {
                        "color": COLOURS[colour % len(COLOURS)],
                        "dash": dashes[dash % len(dashes)],
                    },
                }
            )
    if not data:
        return None
    return Chart(
        name, title, {"data": data, "layout": _layout(summary, unit, len(data) > 1)},
        _table(summary, used, say), note,
    )  # fmt: skip


def _bars(points: Sequence[tuple[float, float, float, float]], scale: float) -> dict[str, Any]:
    """Return the interval of each point; none if it is not known."""

    def length(value: float) -> float:
        return 0.0 if math.isnan(value) else max(value * scale, 0.0)

    return {
        "type": "data",
        "symmetric": False,
        "array": [length(high - mean) for _, mean, _, high in points],
        "arrayminus": [length(mean - low) for _, mean, low, _ in points],
        "visible": True,
    }


def _layout(summary: SweepSummary, unit: str, legend: bool) -> dict[str, Any]:
    workers = sorted({setting.num_workers for setting in summary.settings})
    shapes, notes = _knee_marks(summary.best)
    return {
        "height": _HEIGHT,
        "xaxis": {"title": {"text": "workers"}, "tickvals": workers, "zeroline": False},
        "yaxis": {"title": {"text": unit}, "rangemode": "tozero"},
        "showlegend": legend,
        "legend": {"orientation": "h", "y": -0.3, "yanchor": "top"},
        "shapes": shapes,
        "annotations": notes,
    }


def _knee_marks(best: Series | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the knee of the best series as a line, and its interval as a band."""
    if best is None or best.knee is None or best.knee.undecided:
        return [], []
    knee = best.knee
    place = {"yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    shapes: list[dict[str, Any]] = []
    if knee.low is not None and knee.high is not None and knee.low < knee.high:
        band = {"type": "rect", "x0": knee.low, "x1": knee.high, "fillcolor": _KNEE}
        shapes.append({**place, **band, "opacity": 0.2, "line": {"width": 0}})
    line = {"type": "line", "x0": knee.workers, "x1": knee.workers}
    shapes.append({**place, **line, "line": {"color": _KNEE, "dash": "dash", "width": 1.5}})
    text = {"x": knee.workers, "y": 1, "yref": "paper", "yanchor": "bottom", "text": "knee"}
    return shapes, [{**text, "showarrow": False}]


def _table(summary: SweepSummary, measures: Sequence[tuple[str, str]], say: Say) -> Table:
    columns = [("setting", LEFT)]
    columns += [(text or "mean", RIGHT) for _, text in measures]
    rows = []
    for place, name in enumerate(summary.labels):
        rows.append(
            [plain(name), *(_cell(summary, place, measure, say) for measure, _ in measures)]
        )
    return Table(columns, rows)


def _cell(summary: SweepSummary, place: int, measure: str, say: Say) -> str:
    mean, low, high = summary.of(place, measure)
    return say(mean) if math.isnan(low) else f"{say(mean)} ({say(low)} to {say(high)})"


def _cpu(summary: SweepSummary) -> Chart | None:
    """Return CPU seconds per operation, stacked, a bar per setting."""
    table = summary.per_operation("cpu_s")
    if not len(table):
        return None
    places = [place for place in range(len(summary.settings)) if place in table]
    table = table[table["operation"] != OUTSIDE]
    top, others = table.head(_MOST_OPERATIONS - 1), table.iloc[_MOST_OPERATIONS - 1 :]
    rows = [
        (operation_name(row["operation"]), [float(row[place]) for place in places])
        for _, row in top.iterrows()
    ]
    if len(others) == 1:
        rows.append(
            (
                operation_name(others["operation"].iloc[0]),
                [float(others[place].iloc[0]) for place in places],
            )
        )
    elif len(others):
        sums = [float(np.nansum(others[place].to_numpy(np.float64))) for place in places]
        rows.append((f"{len(others)} smaller ones", sums))
    names = [label(summary.labels[place], 60) for place in places]
    data = [
        {"type": "bar", "name": label(name), "x": names, "y": [_or_none(value) for value in values],
         "marker": {"color": COLOURS[number % len(COLOURS)]}}
        for number, (name, values) in enumerate(rows)
    ]  # fmt: skip
    layout = {
        "height": _HEIGHT + 60,
        "barmode": "stack",
        "yaxis": {"title": {"text": "CPU seconds of a run"}},
        "legend": {"orientation": "h", "y": -0.2},
    }
    note = "The fetches of the loader; imports, steps and sending are not in it."
    return Chart(
        "cpu", "CPU seconds per operation", {"data": data, "layout": layout},
        _of_operations(summary, "cpu_s", words.seconds), note,
    )  # fmt: skip


def _hardware(summary: SweepSummary, measure: str, title: str, unit: str, say: Say) -> Chart | None:
    """Return a measure of each operation against workers, in the best series."""
    best = summary.best
    means = summary.per_operation(measure)
    if best is None or not len(means):
        return None
    lows, highs = (summary.per_operation(measure, bound) for bound in ("low", "high"))
    places = [place for place in best.settings if place in means]
    scale = 100.0 if unit.startswith("%") else 1.0
    data = []
    for number, (_, row) in enumerate(means.head(_MOST_OPERATIONS).iterrows()):
        points = []
        for place in places:
            low, high = (float(table[place].iloc[number]) for table in (lows, highs))
            points.append((summary.settings[place].num_workers, float(row[place]), low, high))
        points = [point for point in points if not math.isnan(point[1])]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": label(operation_name(row["operation"])),
                "x": [point[0] for point in points],
                "y": [point[1] * scale for point in points],
                "error_y": _bars(points, scale),
                "line": {"color": COLOURS[number % len(COLOURS)]},
            }
        )
    note = f"Shown for {best.name}; the table has all settings." if len(summary.series) > 1 else ""
    if len(means) > _MOST_OPERATIONS:
        note = f"The {_MOST_OPERATIONS} with the most CPU time, of {len(means)}. {note}".strip()
    figure = {"data": data, "layout": _layout(summary, unit, True)}
    name = measure.replace("_", "-")
    table = _of_operations(summary, measure, say)
    return Chart(name, f"{title}, per operation", figure, table, note)


def _of_operations(summary: SweepSummary, measure: str, say: Say) -> Table:
    """Return means of a measure, a row per operation and a column per setting."""
    table = summary.per_operation(measure)
    places = [place for place in range(len(summary.settings)) if place in table]
    columns = [("operation", LEFT), *((plain(summary.labels[place]), RIGHT) for place in places)]
    rows = [
        [plain(operation_name(row["operation"])), *(say(float(row[place])) for place in places)]
        for _, row in table.iterrows()
    ]
    return Table(columns, rows)


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _knees(summary: SweepSummary) -> list[str | Table | Chart]:
    """Return the knees, and their distribution when repeats are resampled."""
    rows = []
    for series in words.ordered(summary):
        if series.knee is None:
            continue
        drawn = ", ".join(
            f"{workers}: {share(part)}" for workers, part in series.knee.shares.items()
        )
        interval = "-" if series.knee.low is None else f"{series.knee.low} to {series.knee.high}"
        best = str(series.knee.best_workers)
        knee = str(series.knee.workers) + (" or more" if series.knee.last else "")
        knee = "cannot be told" if series.knee.undecided else knee
        rows.append([plain(series.name) or "all", knee, interval, best, drawn or "-"])
    if not rows:
        return []
    columns = [("settings", LEFT), ("knee (workers)", RIGHT), ("95 % interval", RIGHT),
               ("best throughput at", RIGHT), ("share of resamples", LEFT)]  # fmt: skip
    about = (
        "The knee is the fewest workers whose mean throughput is within 5 % of the best mean. Its "
        "interval comes from a bootstrap over repeats: the runs' deviations from the mean of their "
        "setting are resampled 4,000 times, and the knee is found each time."
    )
    return [about, Table(columns, rows)]
