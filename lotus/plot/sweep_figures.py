"""Figures of a sweep: each measure against workers, with its 95 % interval and the knee.

Together they correspond to Figure 1 of the Lotus paper, with throughput and waits in place of its
lists of functions (c, d). If the machine could not count a measure, its figure says so.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lotus.common.errors import LotusError
from lotus.common.text.formatting import operation_name
from lotus.plot import canvas
from lotus.reporters.base.page import COLOURS
from lotus.reporters.run import cached_results
from lotus.sweep.run_numbers import OUTSIDE
from lotus.sweep.sweep_record import Sweep
from lotus.sweep.sweep_summary import Series, SweepSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = len(COLOURS)  # operations
_KNEE = "#666666"
_STYLES = ("-", "--", ":", "-.")
_MARKS = "os^Dv<>P"  # beside colours, so that lines are told apart in grey as well
_NOT_COUNTED = (
    "Not counted in this sweep: its machine gave no such counter. Where lotus doctor says that "
    "there is one, lotus sweep counts it by itself."
)


def elapsed(sweep: "Sweep | SweepSummary", ax: "Axes | None" = None) -> "Axes":
    """Draw seconds of the whole command, and of the loop over the loader (steps included)."""
    measures = {"elapsed_s": "command", "loop_s": "loop"}
    return _lines(sweep, ax, "Elapsed time", measures, "seconds")


def samples_per_second(sweep: "Sweep | SweepSummary", ax: "Axes | None" = None) -> "Axes":
    """Draw the throughput of the loop."""
    return _lines(sweep, ax, "Throughput", {"samples_per_s": ""}, "samples/s")


def waits(sweep: "Sweep | SweepSummary", ax: "Axes | None" = None) -> "Axes":
    """Draw the waiting shares: of the loop for batches, of the workers for work."""
    measures = {"wait_share": "the loop waits, start-up included", "idle_share": "workers are idle"}
    return _lines(sweep, ax, "Who waits", measures, "% of their time", 100.0)


def cores(sweep: "Sweep | SweepSummary", ax: "Axes | None" = None) -> "Axes":
    """Draw the cores used by fetches and by the command, and the run-queue delay of fetches."""
    measures = {
        "utilisation": "used by the command",
        "fetch_utilisation": "used by fetching",
        "queue_share": "fetches wanting a core",
        "off_share": "fetches waiting otherwise",
    }
    return _lines(sweep, ax, "Cores", measures, "% of the cores, of a fetch", 100.0, 2)


def sample_cost(sweep: "Sweep | SweepSummary", ax: "Axes | None" = None) -> "Axes":
    """Draw CPU time and wall time of fetching a sample, in milliseconds."""
    measures = {"cpu_us_per_sample": "CPU time", "wall_us_per_sample": "time"}
    return _lines(sweep, ax, "What a sample costs", measures, "ms a sample", 1e-3)


def cpu_seconds(sweep: "Sweep | SweepSummary", ax: "Axes | None" = None) -> "Axes":
    """Draw the CPU seconds of a run's fetches per operation, stacked."""
    summary, title = _summary(sweep), "CPU seconds per operation"
    ax = canvas.axes(ax, 3.0)
    table = summary.per_operation("cpu_s")
    table = table[table["operation"] != OUTSIDE]
    # By workers; a setting without workers begins several lines.
    places = list(
        dict.fromkeys(p for series in summary.series for p in series.settings if p in table)
    )
    if not len(table) or not places:
        return canvas.say(ax, title, "The CPU time of operations was not recorded in this sweep.")
    bottom, handles, names = np.zeros(len(places)), [], []
    colours = _colours(summary)
    for _, row in table.head(_MOST).iterrows():
        values = np.array([float(row[place]) for place in places])
        name = str(row["operation"])
        handles.append(
            ax.bar(range(len(places)), np.nan_to_num(values), 0.7, bottom, color=colours[name])
        )
        bottom = bottom + np.nan_to_num(values)
        names.append(operation_name(name))
    several = len(summary.series) > 1
    labels = [summary.labels[place] if several else str(summary.settings[place].num_workers)
              for place in places]  # fmt: skip
    ax.set_xticks(range(len(places)), [canvas.name(text, 40, 12) for text in labels])
    canvas.still(ax.get_xticklabels())
    legend = canvas.legend(ax, handles, names, 3)
    canvas.dress(ax, title, "" if several else "workers", "CPU seconds", legend)
    if len(table) > _MOST:
        canvas.note(ax, f"{len(table) - _MOST} operations with less are left out.")
    return ax


def frontend(sweep: "Sweep | SweepSummary", ax: "Axes | None" = None) -> "Axes":
    """Draw slots lost to the front end, per operation."""
    return _hardware(sweep, ax, "frontend_bound", "Lost to the front end", "% of slots", 100.0)


def backend(sweep: "Sweep | SweepSummary", ax: "Axes | None" = None) -> "Axes":
    """Draw slots lost to the back end, per operation."""
    return _hardware(sweep, ax, "backend_bound", "Lost to the back end", "% of slots", 100.0)


def ipc(sweep: "Sweep | SweepSummary", ax: "Axes | None" = None) -> "Axes":
    """Draw instructions per cycle, per operation."""
    return _hardware(sweep, ax, "ipc", "Instructions a cycle", "instructions a cycle")


def dram_loads(sweep: "Sweep | SweepSummary", ax: "Axes | None" = None) -> "Axes":
    """Draw loads served by memory per run and operation, in millions."""
    return _hardware(sweep, ax, "dram_loads", "Loads served by memory", "million loads", 1e-6)


_FIGURE_1 = (
    elapsed, samples_per_second, waits, cpu_seconds, frontend, backend, ipc, dram_loads,
)  # fmt: skip


def figure_1(sweep: "Sweep | SweepSummary") -> "Figure":
    """Draw the paper's Figure 1 on one page, in parts a to h.

    Throughput and waits replace its lists of functions (c, d), which `functions` draws for a run.
    """
    summary = _summary(sweep)
    low = 1.0 if summary.counted else 0.3  # of panels that only say that nothing was counted
    figure = canvas.figure(2 * canvas.WIDTH, 6.0 + 6.0 * low)
    grid = figure.subplots(4, 2, height_ratios=[1.0, 1.0, low, low])
    for letter, draw, ax in zip("abcdefgh", _FIGURE_1, grid.flat, strict=True):
        draw(summary, ax)
        canvas.letter(ax, letter)
    return figure


def _summary(sweep: "Sweep | SweepSummary") -> SweepSummary:
    """Return the summary of a sweep. Raises LotusError if it is not a sweep or has no runs yet."""
    if isinstance(sweep, Sweep):
        sweep = cached_results.swept(sweep)
    if not isinstance(sweep, SweepSummary):
        raise LotusError(
            f"this figure is drawn of a Sweep, and this is a {type(sweep).__name__}: make one "
            "with: lotus sweep --workers 1,2,4 -o SWEEP -- COMMAND"
        )
    if not len(sweep.runs):
        raise LotusError(
            "no run of this sweep counts yet, so there is nothing to draw; "
            f"go on with: lotus sweep --resume {sweep.path}"
        )
    return sweep


def _lines(
    sweep: "Sweep | SweepSummary",
    ax: "Axes | None",
    title: str,
    measures: dict[str, str],
    unit: str,
    scale: float = 1.0,
    columns: int = 4,
) -> "Axes":
    """Draw measures against workers: one colour each, and one line style per series of settings."""
    summary = _summary(sweep)
    ax = canvas.axes(ax)
    handles, names = [], []
    for number, series in enumerate(summary.series):
        for count, (measure, text) in enumerate(measures.items()):
            points = [(place, *summary.of(place, measure)) for place in series.settings]
            colour = COLOURS[(count if len(measures) > 1 else number) % len(COLOURS)]
            style = _STYLES[(number if len(measures) > 1 else 0) % len(_STYLES)]
            drawn = _line(ax, summary, points, scale, colour, style)
            if drawn is not None:
                handles.append(drawn)
                names.append(", ".join(part for part in (text, series.name) if part))
    if not handles:
        return canvas.say(ax, title, "This was not measured in this sweep.")
    _against_workers(ax, summary)
    legend = canvas.legend(ax, handles, names, columns) if any(names) else 0
    canvas.dress(ax, title, "workers", unit, legend)
    return ax


def _hardware(
    sweep: "Sweep | SweepSummary",
    ax: "Axes | None",
    measure: str,
    title: str,
    unit: str,
    scale: float = 1.0,
) -> "Axes":
    """Draw a measure of each operation against workers, for the best series."""
    summary = _summary(sweep)
    ax = canvas.axes(ax, 3.0)
    best = summary.best
    means, lows, highs = (
        summary.per_operation(measure, statistic) for statistic in ("mean", "low", "high")
    )
    if best is None or not len(means):
        return canvas.say(ax, title, _NOT_COUNTED)
    places = [place for place in best.settings if place in means]
    handles, names, colours = [], [], _colours(summary)
    for row in range(min(len(means), _MOST)):
        points = [
            (
                place,
                float(means[place].iloc[row]),
                float(lows[place].iloc[row]),
                float(highs[place].iloc[row]),
            )
            for place in places
        ]
        name = str(means["operation"].iloc[row])
        drawn = _line(ax, summary, points, scale, colours.get(name, COLOURS[-1]), "-")
        if drawn is not None:
            handles.append(drawn)
            names.append(operation_name(name))
    _against_workers(ax, summary)
    legend = canvas.legend(ax, handles, names, 3)
    canvas.dress(ax, title, "workers", unit, legend)
    if len(summary.series) > 1:
        canvas.note(ax, f"Of {best.name}.")
    return ax


def _colours(summary: SweepSummary) -> dict[str, str]:
    """Return a colour for each operation, the same in all figures of the sweep."""
    names = [
        operation
        for operation in summary.per_operation("cpu_s")["operation"]
        if operation != OUTSIDE
    ]
    return {str(name): COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}


def _line(
    ax: "Axes",
    summary: SweepSummary,
    points: Sequence[tuple[int, float, float, float]],
    scale: float,
    colour: str,
    style: str,
) -> Any:
    """Draw (setting, mean, low, high) against workers; return None if there is no point."""
    kept = [point for point in points if not math.isnan(point[1])]
    if not kept:
        return None
    x = [summary.settings[place].num_workers for place, *_ in kept]
    mean, low, high = (scale * np.array([point[column] for point in kept]) for column in (1, 2, 3))
    below, above = np.nan_to_num(mean - low), np.nan_to_num(high - mean)
    drawn = ax.errorbar(
        x, mean, np.maximum([below, above], 0), color=colour, linestyle=style,
        marker=_MARKS[COLOURS.index(colour) % len(_MARKS)], markersize=4, markeredgecolor=_KNEE,
        markeredgewidth=0.4, linewidth=1.3, elinewidth=0.8, capsize=2,
    )  # fmt: skip
    return drawn.lines[0]


def _against_workers(ax: "Axes", summary: SweepSummary) -> None:
    workers = sorted({setting.num_workers for setting in summary.settings})
    best_knee = summary.best.knee if summary.best else None
    knee = best_knee.workers if best_knee is not None and not best_knee.undecided else None
    ax.set_xticks(workers, [f"{count}\nknee" if count == knee else str(count) for count in workers])
    ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]) if ax.dataLim.y0 < 0 else 0.0)
    ax.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    _knee(ax, summary.best)


def _knee(ax: "Axes", best: Series | None) -> None:
    """Draw the knee of the best series as a line, and its interval as a band."""
    if best is None or best.knee is None or best.knee.undecided:
        return
    knee = best.knee
    if knee.low is not None and knee.high is not None and knee.low < knee.high:
        ax.axvspan(knee.low, knee.high, color=_KNEE, alpha=0.12, linewidth=0)
    ax.axvline(knee.workers, color=_KNEE, linestyle="--", linewidth=1, zorder=0)
