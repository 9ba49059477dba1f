"""`lotus export`: a recorded run for other viewers and programs."""

import argparse
from pathlib import Path

NAME = "export"
HELP = "write a recorded run for another viewer: timeline, flame graph, tables"
EPILOG = """\
formats:
  perfetto     timeline, to open at https://ui.perfetto.dev
  chrome       timeline as JSON, for older viewers; --with adds a trace of
               torch.profiler
  speedscope   flame graphs per rank and worker, for https://www.speedscope.app
  folded       stacks for flamegraph.pl and inferno: operation;library;function
  pprof        profile for `go tool pprof`, every event as a sample type
  parquet      all tables of the run, for pandas, polars, duckdb (needs pyarrow)
  csv          all tables of the run

examples:
  lotus export RUN --format perfetto
      the file that was written, and where to open it
  lotus export RUN --format chrome --with trace.json -o both.json
  lotus export RUN --format folded --weight instructions -o - | flamegraph.pl
  lotus export RUN --format csv -o tables

It writes that file, or directory, and nothing else.

exit codes: 0 written, 2 it was not, or there is no run that can be read

see also: lotus trace, lotus report --html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from lotus.export.formats import FORMATS

    parser.add_argument(
        "run_directory", type=Path, metavar="RUN", help="run directory, as lotus trace made it"
    )
    parser.add_argument(
        "--format",
        required=True,
        choices=tuple(FORMATS),
        metavar="FORMAT",
        help=f"{', '.join(FORMATS)}; see below",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="file to write, or directory of tables; -: standard output (default: RUN's name and "
        "an ending, in this directory)",
    )
    parser.add_argument(
        "--with",
        dest="torch_trace",
        type=Path,
        metavar="TRACE",
        help="chrome: merge this trace of torch.profiler (.json or .json.gz) into the timeline",
    )
    parser.add_argument(
        "--weight",
        metavar="EVENT",
        help="folded, speedscope: time, or a counted or sampled event (default: the sampled event, "
        "else time)",
    )
    parser.add_argument("-f", "--force", action="store_true", help="overwrite an earlier export")


def run(args: argparse.Namespace) -> int:
    # pandas is slow to import: not for `lotus --help`.
    from lotus.export import formats
    from lotus.run import load
    from lotus.streams import printable, progress, say

    asked = formats.Asked(args.format, args.output, args.torch_trace, args.weight, args.force)
    formats.check(asked, args.run_directory)
    with progress("exporting") as told:
        done = formats.export(load(args.run_directory), asked, told)
    for note in done.notes:
        say(f"lotus: {note}")
    if done.path is not None:
        print(printable(f"{done.path}\n{done.next}"), flush=True)
    return 0
