"""`lotus map validate`: how far samples, and a mapping, are from exact counts."""

import argparse
import json
import sys
from pathlib import Path

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

The exact counts are the truth here. `calibrated` knows each thread's exact
total, and no operation's own. The mapping is given the run's samples without
their times and threads. It writes nothing.

exit codes: 0 compared, 2 there is nothing to compare

see also: lotus map, lotus map build
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_directory", type=Path, metavar="RUN", help="run directory, as lotus trace made it"
    )
    parser.add_argument(
        "--perf-data", type=Path, metavar="FILE", help="samples to join (default: RUN/perf.data)"
    )
    parser.add_argument(
        "--mapping", type=Path, metavar="FILE", help="mapping of lotus map build, to be judged too"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a document for programs; fields: lotus schema map-validate",
    )


def run(args: argparse.Namespace) -> int:
    from lotus import mapped, mappings
    from lotus.reporters import validation
    from lotus.run import load
    from lotus.streams import progress

    loaded = load(args.run_directory)
    with progress("joining samples") as told:
        given = mapped.read(args.perf_data) if args.perf_data else None
        found = mapped.map_run(loaded, given, progress=told)
    judged = mappings.judge(found, None if args.mapping is None else mappings.read(args.mapping))
    if args.json:
        print(json.dumps(validation.document(judged), indent=2, allow_nan=False))
    else:
        validation.write(judged, sys.stdout)
    return 0
