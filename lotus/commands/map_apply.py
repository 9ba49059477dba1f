"""`lotus map apply`: counters per operation from another profiler's per-function profile."""

import argparse
import json
import shlex
import sys
from pathlib import Path

NAME = "map apply"
HELP = "give a profile of VTune, uProf or perf report to operations, by a mapping"
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

A profile without times cannot tell which operation ran a function that several
use: it is split by the time it had in each one's isolated runs. It writes
nothing.

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
        "--run", type=Path, metavar="RUN", dest="traced",
        help="a traced run of the same job, for the seconds that each operation took (default: as "
        "in the isolated runs)",
    )  # fmt: skip
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a document for programs; fields: lotus schema map-apply",
    )


def run(args: argparse.Namespace) -> int:
    from lotus import mappings
    from lotus.errors import LotusError
    from lotus.reporters import attribution
    from lotus.run import load

    seconds = None if args.traced is None else mappings.seconds(load(args.traced))
    try:
        mapping = mappings.read(args.mapping)
    except LotusError:
        if not mappings.is_mapping(args.profile):
            raise
        words = shlex.join(["lotus", "map", "apply", str(args.profile), str(args.mapping)])
        raise LotusError(f"the mapping comes first, then the profile: {words}") from None
    applied = mappings.apply(mapping, args.profile, seconds)
    if args.json:
        print(json.dumps(attribution.document(applied), indent=2, allow_nan=False))
    else:
        attribution.write(applied, sys.stdout)
    return 0
