"""Draws the pictures of notebooks/img from what stands in traces/.

python tools/pictures.py
"""

from pathlib import Path

import matplotlib

from lotus import plot
from lotus.sweep import sweep_record

matplotlib.use("Agg")

ROOT = Path(__file__).resolve().parents[1]
INCHES = 6.0  # twice the width of a column, as figures are made


def main() -> None:
    from matplotlib import pyplot

    swept = sweep_record.load(ROOT / "traces" / "classification")
    two = next(setting for setting in swept.settings() if setting.num_workers == 2)
    run = swept.loaded(two)[0]
    folder = ROOT / "notebooks" / "img"
    for draw in (plot.timeline, plot.operations, plot.causes, plot.batches):
        figure = draw(run).get_figure()
        figure.savefig(folder / f"{draw.__name__}.png", dpi=130, metadata={"Software": None})
    figure = pyplot.figure(figsize=(2 * INCHES, 5.6), layout="constrained")
    parts = (plot.samples_per_second, plot.waits, plot.cpu_seconds, plot.cores)
    for draw, ax in zip(parts, figure.subplots(2, 2).flat, strict=True):
        draw(swept, ax)
    figure.savefig(folder / "sweep.png", dpi=90, metadata={"Software": None})
    for path in sorted(folder.glob("*.png")):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
