"""`lotus map build`: which functions each operation runs, from isolated runs of a pipeline."""

import argparse
import shlex
import sys
import tempfile
from pathlib import Path

NAME = "map build"
HELP = "run each operation of a pipeline by itself, and map it to its functions"
EPILOG = """\
examples:
  lotus map build -o mapping.json -- python train.py
      per operation: runs, samples, how many functions; then what to type next
  lotus map apply mapping.json vtune-hotspots.csv

The program starts as usual. At its first batch its operations are taken over
and called on copies of its own samples, each by itself, under perf; then the
program is ended. perf must be installed: see lotus doctor.

writes: the mapping (-o), and with --keep what perf recorded

exit codes: 0 written, 2 it was not

see also: lotus map apply, lotus map validate
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lotus map build [options] -- COMMAND ..."
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("mapping.json"), metavar="FILE",
        help="mapping to write (default: mapping.json)",
    )  # fmt: skip
    parser.add_argument(
        "--loader",
        type=int,
        metavar="N",
        help="this loader's operations (default: the one of most samples)",
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=16,
        metavar="N",
        help="inputs kept of each operation (default: 16)",
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=20,
        metavar="N",
        help="isolated runs of each operation (default: 20)",
    )
    parser.add_argument(
        "--minimum-runs", type=int, default=2, metavar="N",
        help="runs in which a function must have been seen (default: 2)",
    )  # fmt: skip
    parser.add_argument(
        "--wanted", type=float, default=0.95, metavar="P",
        help="wanted probability to catch a function of 20 microseconds (default: 0.95)",
    )  # fmt: skip
    parser.add_argument(
        "--budget",
        type=float,
        default=5.0,
        metavar="S",
        help="seconds for each operation (default: 5)",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep the recorded samples in this directory (default: they are removed)",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    from lotus import files, isolating, mappings
    from lotus.errors import LotusError
    from lotus.reporters import isolation as reporter
    from lotus.streams import say

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise LotusError("no command to map; try `lotus map build -- python train.py`")
    files.writable(args.output)  # before the work, not after it
    # No bar: the terminal is the program's while it runs.
    say(
        "lotus: the program runs to its first batch; then its operations are isolated, about "
        f"{args.budget:g} s each"
    )
    with tempfile.TemporaryDirectory(prefix="lotus-map-") as scratch:
        found = isolating.isolate(
            command,
            args.keep or Path(scratch),
            loader=args.loader,
            samples=args.samples,
            runs=args.runs,
            wanted=args.wanted,
            budget_s=args.budget,
        )
    built = mappings.build(found, args.minimum_runs)
    mappings.write(built, args.output)
    reporter.write(built, found, sys.stdout)
    say(f"next: lotus map apply {shlex.quote(str(args.output))} PROFILE")
    return 0
