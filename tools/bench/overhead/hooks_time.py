"""Times what hooks.py counts: batches of a data set that does nothing, at each level.

    python -m tools.bench.overhead.hooks_time [options of pyperf]

Each value is that of a process of its own, and the time of a batch of 128 samples with two
operations each. `LOTUS_HOOKS=python` in the environment and `--inherit-environ=LOTUS_HOOKS` measure
the hooks in Python. Printed are mean and standard deviation. Does not import torch.
"""

import tempfile

from tools.bench import pyperf_runner
from tools.bench.overhead import hooks

BATCHES = 2000


def seconds(loops: int, level: str) -> float:
    """Return how long so many batches take."""
    with tempfile.TemporaryDirectory() as run:
        return hooks.work(level, loops, run)


def main() -> None:
    runner = pyperf_runner.runner("overhead.hooks_time", processes=5, loops=BATCHES)
    args = pyperf_runner.parsed(runner)
    if not args.worker:
        print(hooks.build(), flush=True)
    for level in [*hooks.LEVELS, *hooks.LEFT_OUT]:
        runner.bench_time_func(level, seconds, level)


if __name__ == "__main__":
    main()
