"""Measures the start of lotus: before the traced program starts, and after it ends.

    python -m tools.bench.speed.startup [options of pyperf]

Each command runs twenty times, in ten processes of pyperf. Printed are the mean and the standard
deviation, milliseconds. The goal for `lotus --help` is less than 150 ms.
"""

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

from tools.bench import pyperf_runner

PYTHON = sys.executable
LOTUS = [PYTHON, "-m", "lotus"]

# A run with some data in it, whose report is a part of what `lotus trace` takes.
PROGRAM = """
from torch.utils.data import DataLoader
for batch in DataLoader(list(range(64)), batch_size=4):
    pass
"""


def commands(folder: Path) -> dict[str, list[str]]:
    """Command lines by what they show."""
    trace = [*LOTUS, "trace", "-f", "-o", str(folder / "run")]
    chosen = {
        "python -c pass": [PYTHON, "-c", "pass"],
        "import lotus": [PYTHON, "-c", "import lotus"],
        "lotus --help": [*LOTUS, "--help"],
        "lotus trace --help": [*LOTUS, "trace", "--help"],
        "true": ["true"],
        "lotus trace -q -- true": [*trace, "-q", "--", "true"],
        "lotus trace -- true": [*trace, "--", "true"],
    }
    if importlib.util.find_spec("torch") is not None:
        chosen["python loads.py"] = [PYTHON, str(folder / "loads.py")]
        chosen["lotus trace -q -- python loads.py"] = [
            *trace,
            "-q",
            "--",
            PYTHON,
            str(folder / "loads.py"),
        ]
        chosen["lotus trace -- python loads.py"] = [*trace, "--", PYTHON, str(folder / "loads.py")]
    return chosen


def main() -> None:
    runner = pyperf_runner.runner(
        "speed.startup", processes=10, values=2, hand_on=lambda args: ["--runs", args.runs]
    )
    runner.argparser.add_argument("--runs", type=Path, help=argparse.SUPPRESS)
    args = pyperf_runner.parsed(runner)
    with tempfile.TemporaryDirectory() as folder:
        if not args.worker:
            args.runs = Path(folder)
            (args.runs / "loads.py").write_text(PROGRAM)
        for name, command in commands(args.runs).items():
            runner.bench_command(name, command)


if __name__ == "__main__":
    main()
