"""Draws the results of modes_measured.py: loss by epochs and by time of training."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from tools.bench import plotting
from tools.bench.ranks.modes_table import Row, head, lines, runs

# Of Okabe and Ito; markers and dashes tell the same once more.
LOOKS = (("#000000", "o", "-"), ("#d55e00", "s", "-"), ("#0072b2", "^", "--"),
         ("#009e73", "D", "-."), ("#cc79a7", "v", ":"))  # fmt: skip


def draw(conditions: Mapping[str, Any], rows: Sequence[Row], folder: Path) -> bool:
    """Write modes_measured.png and .svg; return False without matplotlib."""
    pyplot = plotting.pyplot()
    if pyplot is None:
        return False
    every, table = runs(rows), lines(rows, list(conditions["modes"]))
    looks = dict(zip(conditions["modes"], LOOKS, strict=False))
    with pyplot.rc_context(plotting.STYLE):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 4), sharey=True,
                                                layout="constrained")  # fmt: skip
        for line in table:
            colour, marker, dash = looks[line.mode]
            middle = [spread.median for spread in line.loss]
            epochs = range(1, len(middle) + 1)
            left.plot(epochs, middle, dash, marker=marker, ms=4, color=colour, label=line.mode)
            low, high = [spread.low for spread in line.loss], [spread.high for spread in line.loss]
            left.fill_between(epochs, low, high, color=colour, alpha=0.12, lw=0)
            mine = [run for (_, mode), run in every.items() if mode == line.mode]
            for place, run in enumerate(mine):
                spent = list(accumulate(row.seconds or 0.0 for row in run))
                right.plot(spent, [row.loss for row in run], dash, marker=marker, ms=4,
                           color=colour, lw=1, label=line.mode if place == 0 else None)  # fmt: skip
        left.set_xlabel("epochs (median of the rounds, least to greatest)")
        left.set_ylabel("loss on pictures that are not trained on")
        right.set_xlabel("seconds of training (each round)")
        for axes in (left, right):
            axes.grid(lw=0.3)
        left.set_xticks(range(1, max((len(line.loss) for line in table), default=1) + 1))
        left.legend(frameon=False)
        title = head(conditions, rows)
        figure.suptitle(f"Modes of training on a mixed cluster. {title[0]}\n{title[1]}", fontsize=8)
        plotting.save(figure, folder, "modes_measured")
    return True
