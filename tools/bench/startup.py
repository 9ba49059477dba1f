"""What lotus costs before the traced program starts and after it ends.

    python tools/bench/startup.py [--repeat 20]

Interleaved runs of each command line, in random order; wall milliseconds. `lotus --help` is meant
to take less than 150 ms. It judges nothing: it prints.
"""

import argparse
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import provenance

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
    probe = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True)
    if probe.returncode == 0:
        chosen["python loads.py"] = [PYTHON, "-c", PROGRAM]
        chosen["lotus trace -q -- python loads.py"] = [*trace, "-q", "--", PYTHON, "-c", PROGRAM]
        chosen["lotus trace -- python loads.py"] = [*trace, "--", PYTHON, "-c", PROGRAM]
    return chosen


def wall_ms(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - started) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeat", type=int, default=20)
    args = parser.parse_args()
    print(f"{provenance.cpus()}, Linux {provenance.machine()['kernel']}")
    heading = f"commit {provenance.commit()}, Python {platform.python_version()}"
    print(f"{heading}, {args.repeat} runs")
    with tempfile.TemporaryDirectory() as folder:
        lines = commands(Path(folder))
        times: dict[str, list[float]] = {name: [] for name in lines}
        for round_number in range(args.repeat + 1):  # the first one only warms caches
            for name in random.sample(list(lines), len(lines)):
                taken = wall_ms(lines[name])
                if round_number:
                    times[name].append(taken)
    print(f"{'wall ms':36} {'median':>8} {'min':>8} {'max':>8}")
    for name, taken in times.items():
        print(f"{name:36} {statistics.median(taken):8.0f} {min(taken):8.0f} {max(taken):8.0f}")


if __name__ == "__main__":
    main()
