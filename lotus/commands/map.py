"""`lotus map`: counters and C/C++ functions per operation of a recorded run."""

import argparse
import shlex
import sys
from pathlib import Path

NAME = "map"
_VERBS = ("apply", "build", "validate")
HELP = "show hardware counters and C/C++ functions per operation of a recorded run"
EPILOG = """\
examples:
  lotus trace --counters --perf -o R -- python train.py
  lotus map R
      per operation: time, counters, and the functions it spends them in
  lotus map R --json | jq .functions
      all functions of all events, for programs
  lotus map R --perf-data other.data
      samples that perf recorded by itself: perf record -k CLOCK_MONOTONIC
  lotus map validate R
      how far samples are from exact counts

It writes nothing.

exit codes: 0 shown, 2 there are neither samples nor counters in the run

see also: lotus trace, lotus map validate, lotus map build, lotus map apply
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_directory", type=Path, metavar="RUN", help="run directory, as lotus trace made it"
    )
    parser.add_argument(
        "--perf-data", type=Path, metavar="FILE", help="samples to join (default: RUN/perf.data)"
    )
    parser.add_argument(
        "--kernel", action="store_true", help="name the kernel's functions, where it tells them"
    )
    parser.add_argument(
        "--top",
        type=int,
        default=5,
        metavar="N",
        help="functions to show of an operation (default: 5)",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument(
        "--json",
        action="store_true",
        help="print a document for programs; fields: lotus schema map",
    )
    shape.add_argument("--csv", choices=("operations", "functions"), help="print this table as CSV")
    parser.add_argument("second", nargs="?", help=argparse.SUPPRESS)  # told of in `run`


def run(args: argparse.Namespace) -> int:
    # pandas is slow to import: not for `lotus --help`.
    from lotus import mapped
    from lotus.analysis.functions import summarise_map
    from lotus.errors import LotusError
    from lotus.reporters import map_tables, mapping
    from lotus.run import load
    from lotus.streams import progress, say

    if args.second is not None:
        raise LotusError(_one_word(str(args.run_directory), args.second))
    loaded = load(args.run_directory)
    path = args.perf_data or args.run_directory / mapped.PERF_DATA
    found = None
    if args.perf_data is not None or path.exists():
        try:
            with progress("joining samples") as told:
                given = mapped.read(args.perf_data) if args.perf_data else None
                found = mapped.map_run(loaded, given, args.kernel, told)
        except LotusError as error:
            if args.perf_data is not None or not len(loaded.counters):
                raise
            say(f"lotus: {error}")  # what was counted is there all the same
    elif not len(loaded.counters) and not len(loaded.python_functions):
        problem = mapped.problem_of(loaded)
        raise LotusError(
            f"{args.run_directory} has neither samples nor counters"
            + (f" ({problem})" if problem else "")
            + "; record them with: lotus trace --counters --perf -o DIRECTORY -- COMMAND "
            "(lotus report needs neither)"
        )
    summary = summarise_map(loaded, found)
    if args.json:
        print(map_tables.text(summary))
    elif args.csv:
        print(map_tables.csv(summary, args.csv), end="")
    else:
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # a terminal that has no µ shows a question mark
        mapping.write(summary, sys.stdout, args.top)
    return 0


def _one_word(first: str, second: str) -> str:
    """What is wrong with two words where a run is wanted."""
    for verb, other in ((second, first), (first, second)):
        if verb in _VERBS:
            return f"did you mean: {shlex.join(['lotus', 'map', verb, other])}"
    return f"one run is mapped at a time: lotus map {shlex.quote(first)}"
