"""Draws the results of comparison.py: what each tool costs each script."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.bench import plotting
from tools.bench.overhead.table import BASE, NOISE, Cell, head

PANELS = (("wall_s", "whole process"), ("loop_s", "the loop alone"))
LOTUS, PEER, GREY = "#c2185b", "#37618e", "#8a8a8a"


def draw(conditions: Mapping[str, Any], cells: Sequence[Cell], folder: Path) -> bool:
    """Write overhead.png and overhead.svg; return False without matplotlib."""
    pyplot = plotting.pyplot()
    if pyplot is None:
        return False
    names = [name for name in conditions["sizes"] if any(cell.workload == name for cell in cells)]
    tools = [tool for tool in conditions["tools"] if tool != BASE]
    by = {(cell.workload, cell.tool): cell for cell in cells}
    with pyplot.rc_context(plotting.STYLE):
        figure, grid = pyplot.subplots(
            len(PANELS), len(names), figsize=(2.3 * len(names) + 1.5, 2.4 * len(PANELS) + 1.2),
            sharey=True, sharex=True, squeeze=False, layout="constrained",
        )  # fmt: skip
        for line, (measure, title) in zip(grid, PANELS, strict=True):
            for axes, name in zip(line, names, strict=True):
                for place, tool in enumerate(tools):
                    cell = by.get((name, tool))
                    spread = cell.spreads.get(measure) if cell else None
                    if spread is None:
                        axes.text(1, place, "failed" if cell else "not run", color=GREY,
                                  va="center", fontsize=7)  # fmt: skip
                        continue
                    colour = LOTUS if tool.startswith("lotus") else GREY if tool == NOISE else PEER
                    axes.plot(
                        [spread.low * 100, spread.high * 100], [place, place], color=colour, lw=2
                    )
                    axes.plot(spread.median * 100, place, "o", color=colour, ms=4)
                axes.axvline(0, color="black", lw=0.6)
                axes.set_xscale("symlog", linthresh=10)
                axes.set_xticks([-10, 0, 10, 100, 1000], ["-10", "0", "10", "100", "1000"])
                axes.set_yticks(range(len(tools)), tools)
                axes.grid(axis="x", lw=0.3)
                if measure == PANELS[0][0]:
                    axes.set_title(name.replace("_", " "), fontsize=9)
            line[0].set_ylabel(title)
        grid[0][0].set_ylim(len(tools) - 0.5, -0.5)
        figure.supxlabel("more time than under nothing, % (dot: median of pairs; bar: 95 %)")
        first = head(conditions, [])[0]
        figure.suptitle(f"What tracing costs. {first}", fontsize=9)
        plotting.save(figure, folder, "overhead")
    return True
