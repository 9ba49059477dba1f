"""`lotus map apply`: counters per operation from another profiler's per-function profile."""

import argparse
import shlex
from pathlib import Path

from lotus.commands.common import options, output
from lotus.common.terminal.progress import progress

NAME = "map apply"
HELP = "split a profile of VTune, uProf or perf report by operation, with a mapping"
EPILOG = """\
examples:
  lotus map apply mapping.json hotspots.csv
      VTune, hotspots or microarchitecture: its figures per operation, and
      what is left over
  lotus map apply mapping.json uprof-report.csv
      AMD uProf
  perf report -n --stdio > report.txt
  lotus map apply mapping.json report.txt
      perf report
  lotus map apply mapping.json hotspots.csv --run R
      functions of several operations are split by R's times

A profile without times does not show which operation ran a function that
several use: the function is split by its time in the isolated runs of each. It
writes nothing.

exit codes: 0 shown, 2 mapping or profile cannot be read

see also: lotus map build, lotus map
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "mapping", type=Path, metavar="MAPPING", help="mapping, as lotus map build wrote it"
    )
    parser.add_argument(
        "profile",
        type=Path,
        metavar="PROFILE",
        help="profile, as VTune, uProf or perf report exported it",
    )
    parser.add_argument(
        "--run",
        type=Path,
        metavar="RUN",
        dest="traced",
        help="a traced run of the same job, whose times of operations are used (default: those of "
        "the isolated runs)",
    )
    options.add_json(parser, "map-apply")


def run(args: argparse.Namespace) -> int:
    from lotus.common.errors import LotusError
    from lotus.mapping import function_mapping
    from lotus.reading.run import load
    from lotus.reporters.base import console
    from lotus.reporters.map import attribution_report

    with progress("reading"):
        seconds = None if args.traced is None else function_mapping.seconds(load(args.traced))
    try:
        mapping = function_mapping.read(args.mapping)
    except LotusError:
        if not function_mapping.is_mapping(args.profile):
            raise
        words = shlex.join(["lotus", "map", "apply", str(args.profile), str(args.mapping)])
        raise LotusError(f"the mapping comes first, then the profile: {words}") from None
    applied = function_mapping.apply(mapping, args.profile, seconds)
    if args.json:
        output.print_document(attribution_report.document(applied))
    else:
        attribution_report.write(console.plain_console(), applied)
    return 0
