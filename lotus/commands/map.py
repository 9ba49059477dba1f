"""`lotus map`: counters and C/C++ functions per operation of a recorded run."""

import argparse
import shlex
from typing import TYPE_CHECKING

from lotus.commands.common import arguments, options, output

if TYPE_CHECKING:
    from lotus.analysis.counters.function_profile import MapSummary
    from lotus.common.errors import LotusError
    from lotus.common.terminal.progress import Bar

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
    options.add_run(parser, optional=True)
    options.add_perf_data(parser)
    parser.add_argument(
        "--kernel",
        action="store_true",
        help="name functions of the kernel, if it allows reading its symbols",
    )
    parser.add_argument(
        "--top",
        type=arguments.whole(0),
        default=5,
        metavar="N",
        help="how many functions of each operation to show (default: 5)",
    )
    options.add_trust(parser)
    shape = parser.add_mutually_exclusive_group()
    options.add_json(shape, "map")
    shape.add_argument(
        "--csv", choices=("operations", "functions"), help="print only this table, as CSV"
    )
    parser.add_argument("second", nargs="?", help=argparse.SUPPRESS)  # an error in `run`


def run(args: argparse.Namespace) -> int:
    from lotus.common.errors import LotusError
    from lotus.common.terminal.progress import progress
    from lotus.common.terminal.stderr import say

    if args.run_directory is None:
        args.run_directory = options.newest_run(NAME)
    if args.second is not None:
        raise LotusError(_one_word(str(args.run_directory), args.second))
    with progress("joining samples") as bar:
        summary, trouble = _summary(args, bar)
    if trouble is not None:
        say(f"lotus: {trouble}")  # the counters are shown nevertheless
    # pandas and rich are slow to import: after the bar has begun.
    from lotus.reporters.base import console
    from lotus.reporters.map import map_report, map_tables

    if args.json:
        output.print_document(map_tables.document(summary))
    elif args.csv:
        print(map_tables.csv(summary, table=args.csv), end="")
    else:
        output.replace_unprintable()
        map_report.write(console.plain_console(), summary, top=args.top)
    return 0


def _summary(args: argparse.Namespace, bar: "Bar") -> "tuple[MapSummary, LotusError | None]":
    """Return what was counted, and the reason for which samples are missing."""
    from lotus.analysis.counters.function_profile import summarise_map
    from lotus.common.errors import LotusError
    from lotus.joining import sample_join
    from lotus.reading.run import load

    loaded = load(args.run_directory, args.trust)
    path = args.perf_data or args.run_directory / sample_join.PERF_DATA
    joined = trouble = None
    if args.perf_data is not None or path.exists():
        try:
            samples = sample_join.read(args.perf_data, loaded.trusted) if args.perf_data else None
            joined = sample_join.map_run(loaded, samples, args.kernel, bar)
        except LotusError as error:
            if args.perf_data is not None or not len(loaded.counters):
                raise
            trouble = error
    elif not len(loaded.counters) and not len(loaded.python_functions):
        problem = sample_join.problem_of(loaded)
        raise LotusError(
            f"{args.run_directory} has neither samples nor counters"
            + (f" ({problem})" if problem else "")
            + "; record them with: lotus trace --counters --perf -o DIRECTORY -- COMMAND "
            "(lotus report needs neither)"
        )
    return summarise_map(loaded, joined), trouble


def _one_word(first: str, second: str) -> str:
    """Return the error for two words instead of one run."""
    for verb, other in ((second, first), (first, second)):
        if verb in _VERBS:
            return f"did you mean: {shlex.join(['lotus', 'map', verb, other])}"
    return f"one run is mapped at a time: lotus map {shlex.quote(first)}"
