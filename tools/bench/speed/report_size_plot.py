"""Draws the results of report_size.py: time and memory of reports by the size of a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.bench import plotting

# A colour, and where a figure stands beside its point.
LINES = {
    "report": ("#c2185b", (0, -12)),
    "page": ("#37618e", (14, -2)),
    "comparison": ("#8a6d00", (0, 6)),
}
PANELS = (("cpu_s", 1.0, "processor time, s"), ("peak_bytes", 1e6, "largest resident set, MB"))


def draw(rows: Sequence[Mapping[str, Any]], folder: Path) -> bool:
    """Write report_size.png and report_size.svg; return False without matplotlib.

    Circles are of the commit that most were measured with, rings of others.
    """
    pyplot = plotting.pyplot()
    if pyplot is None or not rows:
        return False
    commits = [row["commit"] for row in rows]
    last = max(commits, key=commits.count)
    with pyplot.rc_context(plotting.STYLE):
        figure, panels = pyplot.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
        for axes, (measure, unit, title) in zip(panels, PANELS, strict=True):
            for name, (colour, beside) in LINES.items():
                mine = [row for row in rows if row["command"] == name]
                events = [row["events"] / 1e6 for row in mine]
                values = [row[measure] / unit for row in mine]
                axes.plot(events, values, color=colour, lw=1, label=name)
                for row, x, y in zip(mine, events, values, strict=True):
                    fill = colour if row["commit"] == last else "white"
                    axes.plot(x, y, "o", color=colour, markerfacecolor=fill, ms=5)
                    text = f"{y:.3g}" if y < 100 else f"{y:,.0f}"
                    axes.annotate(text, (x, y), beside, color=colour,
                                  textcoords="offset points", ha="center", fontsize=7)  # fmt: skip
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.margins(0.15, 0.2)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.yaxis.get_major_locator().set_params(subs=(1, 2, 5))
            axes.yaxis.set_major_formatter("{x:,g}")
            axes.yaxis.set_minor_formatter("")
            axes.set_xlabel("million events (samples and operations)")
            axes.set_title(title, fontsize=9)
            axes.grid(lw=0.3)
        panels[0].legend(frameon=False)
        plotting.save(figure, folder, "report_size")
    return True
