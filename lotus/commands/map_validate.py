"""`lotus map validate`: the error of samples, and of a mapping, against exact counts."""

import argparse
from pathlib import Path

from lotus.commands.common import options, output

NAME = "map validate"
HELP = "compare exact counts with those joined from samples and from a mapping"
EPILOG = """\
examples:
  lotus trace --counters --perf --perf-kernel -o R -- python train.py
  lotus map validate R
      the error of each operation's count, and whether its 95 % interval holds
  lotus map build -o mapping.json -- python train.py
  lotus map validate R --mapping mapping.json
      the mapping's errors beside them

The exact counts are taken as the truth. `calibrated` uses each thread's exact
total, but no operation's own count. The mapping is applied to the run's samples
without their times and threads. It writes nothing.

exit codes: 0 compared, 2 there is nothing to compare

see also: lotus map, lotus map build
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    options.add_perf_data(parser)
    parser.add_argument(
        "--mapping",
        type=Path,
        metavar="FILE",
        help="a mapping of lotus map build, whose errors are shown too (default: none)",
    )
    options.add_json(parser, "map-validate")
    options.add_trust(parser)


def run(args: argparse.Namespace) -> int:
    from lotus.common.terminal.progress import progress
    from lotus.joining import sample_join
    from lotus.mapping import function_mapping
    from lotus.reading.run import load
    from lotus.reporters.base import console
    from lotus.reporters.map import validation_report

    with progress("joining samples") as advance:
        loaded = load(args.run_directory, args.trust)
        samples = sample_join.read(args.perf_data, loaded.trusted) if args.perf_data else None
        joined = sample_join.map_run(loaded, samples, progress=advance)
    judged = function_mapping.judge(
        joined, None if args.mapping is None else function_mapping.read(args.mapping)
    )
    if args.json:
        output.print_document(validation_report.document(judged))
    else:
        validation_report.write(console.plain_console(), judged)
    return 0
