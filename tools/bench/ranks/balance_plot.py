"""Draws the results of balance_measured.py: each strategy in each cell, a dot a run."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.bench import plotting
from tools.bench.ranks.balance_table import ORACLE, STRATEGIES, Row, head, lines

# Of Okabe and Ito, told apart by the colour-blind as well; shapes tell the same once more.
LOOKS = {
    "equal": ("#56b4e9", "s"),
    "random": ("#8a8a8a", "v"),
    "bno": ("#0072b2", "D"),
    "lotus": ("#d55e00", "o"),
    ORACLE: ("#000000", "*"),
}


def draw(conditions: Mapping[str, Any], rows: Sequence[Row], folder: Path) -> bool:
    """Write balance_measured.png and .svg; return False without matplotlib."""
    pyplot = plotting.pyplot()
    if pyplot is None:
        return False
    cells = [name for name in conditions["cells"] if lines(rows, name)]
    if not cells:
        return True
    with pyplot.rc_context(plotting.STYLE):
        figure, grid = pyplot.subplots(
            2, len(cells), figsize=(1.75 * len(cells) + 1.2, 4.6), squeeze=False, sharex=True,
            layout="constrained",
        )  # fmt: skip
        for column, name in enumerate(cells):
            upper, lower = grid[0][column], grid[1][column]
            for place, strategy in enumerate(STRATEGIES):
                colour, shape = LOOKS[strategy]
                mine = [r for r in rows if (r.cell, r.strategy, r.failed) == (name, strategy, "")]
                for axes, values in (
                    (upper, [row.update_ms for row in mine if row.update_ms]),
                    (lower, [row.samples_per_s for row in mine if row.samples_per_s]),
                ):
                    if values:
                        middle = statistics.median(values)
                        axes.plot([place] * len(values), values, shape, color=colour, ms=6,
                                  alpha=0.45, mew=0)  # fmt: skip
                        axes.plot([place - 0.3, place + 0.3], [middle] * 2, color=colour, lw=2.5)
            for axes in (upper, lower):
                axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
                axes.grid(axis="y", lw=0.3)
                axes.set_xlim(-0.6, len(STRATEGIES) - 0.4)
                axes.set_xticks(range(len(STRATEGIES)), STRATEGIES, rotation=60, ha="right")
            upper.set_title(f"{name}\n{conditions['cells'][name]['short']}", fontsize=8)
        grid[0][0].set_ylabel("mean update, ms\n(less is better)")
        grid[1][0].set_ylabel("samples per second\n(more is better)")
        title = head(conditions, rows)
        figure.suptitle(
            f"Sharing out a batch on mixed clusters. {title[0]}; {title[1]}", fontsize=8
        )
        plotting.save(figure, folder, "balance_measured")
    return True
