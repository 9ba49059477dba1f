"""pyperf's Runner for the benchmarks here: it adds the commit, and defaults to a process a value.

pyperf times, repeats, and stores its measurements as JSON (`-o FILE`, `--append FILE`), which
`python -m pyperf stats`, `hist` and `compare_to` read. docs/testing.md says how two commits are
compared.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyperf

from tools.bench import provenance
from tools.bench.large_runs import write_run


def runner(
    name: str,
    processes: int,
    values: int = 1,
    loops: int = 1,
    hand_on: Callable[[Any], Sequence[object]] = lambda args: (),
) -> pyperf.Runner:
    """Return a Runner of the module `name` of tools.bench.

    `hand_on` gives the words that its workers get of the command line. With one value a process
    nothing is warm but the page cache; with more, the first one is thrown away.
    """

    def add(words: list[str], args: Any) -> None:
        words += map(str, hand_on(args))

    return pyperf.Runner(
        processes=processes,
        values=values,
        warmups=int(values > 1),
        loops=loops,
        metadata={"lotus_commit": provenance.commit()},
        program_args=("-m", f"tools.bench.{name}"),
        add_cmdline_args=add,
    )


def parsed(new_runner: pyperf.Runner) -> Any:
    """Read the command line, and print what is measured, once for all workers."""
    args = new_runner.parse_args()
    if not args.worker:
        print(provenance.header(pyperf), flush=True)
    return args


def reader(
    name: str,
    processes: int,
    events: Sequence[int],
    batch: Sequence[int],
    hand_on: Callable[[Any], Sequence[object]] = lambda args: (),
) -> pyperf.Runner:
    """Return a Runner with options for the large runs that it reads; `runs` makes these runs.

    Without the options they are runs of so many `events`, each in batches of these sizes.
    """
    new_runner = runner(
        name,
        processes,
        hand_on=lambda args: [
            *("--runs", args.runs, "--events", *args.events, "--batch", *args.batch),
            *hand_on(args),
        ],
    )
    add = new_runner.argparser.add_argument
    add("--events", type=int, nargs="+", default=list(events))
    add("--batch", type=int, nargs="+", default=list(batch))
    add("--runs", type=Path, help=argparse.SUPPRESS)
    return new_runner


def runs(args: Any) -> Iterator[tuple[str, Path]]:
    """Yield (description, path) of each large run; the first process writes them."""
    with tempfile.TemporaryDirectory() as folder:
        if not args.worker:
            args.runs = Path(folder)
        for events in args.events:
            for size in args.batch:
                path = args.runs / f"run-{events}-{size}"
                if not args.worker:
                    # In a process of its own, so that its memory is not part of the peak.
                    with ProcessPoolExecutor(1) as pool:
                        pool.submit(write_run, path, events, size).result()
                yield f"{events:,} events in batches of {size}", path


def peak(benchmark: pyperf.Benchmark, of: str = "mem_max_rss") -> int:
    """Return the largest resident set of all processes of a benchmark, in bytes."""
    return max(run.get_metadata()[of] for run in benchmark.get_runs() if of in run.get_metadata())
