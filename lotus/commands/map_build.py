"""`lotus map build`: the functions that each operation calls, from isolated runs of a pipeline."""

import argparse
import shlex
import tempfile
from pathlib import Path

from lotus.commands.common import arguments, options, output

NAME = "map build"
HELP = "run each operation of a pipeline alone, and map it to its functions"
EPILOG = """\
examples:
  lotus map build -o mapping.json -- python train.py
      per operation: runs, samples, how many functions; then what to type next
  lotus map apply mapping.json vtune-hotspots.csv

The program starts as usual. At its first batch lotus calls each operation alone
on copies of the program's own samples, under perf; then it ends the program.
perf must be installed: see lotus doctor.

writes: the mapping (-o), and with --keep what perf recorded

exit codes: 0 written, 2 not written

see also: lotus map apply, lotus map validate
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("mapping.json"),
        metavar="FILE",
        help="file to write the mapping to; an earlier one is overwritten (default: mapping.json)",
    )
    options.add_loader_number(parser, "whose operations are run")
    parser.add_argument(
        "--samples",
        type=arguments.whole(0),
        default=16,
        metavar="N",
        help="how many inputs to keep for each operation (default: 16)",
    )
    parser.add_argument(
        "--runs",
        type=arguments.whole(0),
        default=20,
        metavar="N",
        help="how many isolated runs to make of each operation (default: 20)",
    )
    parser.add_argument(
        "--minimum-runs",
        type=arguments.whole(0),
        default=2,
        metavar="N",
        help="in how many runs a function must have been seen to be kept (default: 2)",
    )
    parser.add_argument(
        "--wanted",
        type=arguments.real(0),
        default=0.95,
        metavar="P",
        help="probability, between 0 and 1, with which a function of 20 microseconds should be "
        "seen (default: 0.95)",
    )
    parser.add_argument(
        "--budget",
        type=arguments.seconds,
        default=5.0,
        metavar="TIME",
        help="time for each operation, such as 5s or 2m (default: 5s)",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep the samples of perf in this directory (default: remove them)",
    )
    options.add_command(parser, NAME)


def run(args: argparse.Namespace) -> int:
    from lotus.common.terminal.stderr import say
    from lotus.mapping import function_mapping, isolated_runner
    from lotus.reporters.base import console
    from lotus.reporters.map import isolation_report

    command = options.required_command(args, NAME)
    output.destination(args.output, overwrite=True)
    plan = isolated_runner.IsolationPlan(
        samples=args.samples, runs=args.runs, wanted=args.wanted, budget_s=args.budget
    )
    # No bar: the terminal is the program's while it runs.
    say(
        "lotus: the program runs to its first batch; then its operations are isolated, about "
        f"{args.budget:g} s each"
    )
    with tempfile.TemporaryDirectory(prefix="lotus-map-") as scratch:
        isolation = isolated_runner.isolate(
            command, args.keep or Path(scratch), plan, loader=args.loader
        )
    built = function_mapping.build(isolation, args.minimum_runs)
    function_mapping.write(built, args.output)
    isolation_report.write(console.plain_console(), built, isolation=isolation)
    say(f"next: lotus map apply {shlex.quote(str(args.output))} PROFILE")
    return 0
