"""`lotus export`: a recorded run for other viewers and programs."""

import argparse
import textwrap
from pathlib import Path

from lotus.commands.common import options, output
from lotus.export.export_request import Format
from lotus.export.formats import FORMATS

NAME = "export"
HELP = "write a recorded run for another viewer: timeline, flame graph, tables"


def _line(format: Format) -> str:
    """Return a format's line of the help, at most 80 columns wide."""
    text = f"{format.name:12} {format.about}"
    return textwrap.fill(text, 80, initial_indent="  ", subsequent_indent=" " * 15)


EPILOG = f"""\
formats:
{chr(10).join(map(_line, FORMATS.values()))}

examples:
  lotus export RUN --format perfetto
      prints the path of the file, and where to open it
  lotus export RUN --format chrome --with trace.json -o both.json
  lotus export RUN --format folded --weight instructions -o - | flamegraph.pl
  lotus export RUN --format csv -o tables

It writes that file, or directory, and nothing else.

exit codes: 0 written, 2 not written, or there is no run that can be read

see also: lotus trace, lotus report --html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser, optional=True)
    parser.add_argument(
        "--format",
        required=True,
        choices=FORMATS,
        help="what to write; see below (required)",
    )
    options.add_output(
        parser,
        "file to write, or directory of tables; - is the standard output (default: the name of RUN "
        "with an ending, in this directory)",
        "FILE",
    )
    parser.add_argument(
        "--with",
        dest="torch_trace",
        type=Path,
        metavar="TRACE",
        help="chrome: merge this trace of torch.profiler (.json or .json.gz) into the timeline "
        "(default: none)",
    )
    parser.add_argument(
        "--weight",
        metavar="EVENT",
        help="folded, speedscope: the width of stacks, which is time or a counted or sampled event "
        "(default: the sampled event, or time)",
    )
    options.add_force(parser, "overwrite an earlier export")
    options.add_trust(parser)


def run(args: argparse.Namespace) -> int:
    from lotus.common.terminal.progress import progress
    from lotus.common.terminal.stderr import printable, say
    from lotus.export import formats
    from lotus.export.export_request import ExportRequest

    if args.run_directory is None:
        args.run_directory = options.newest_run(NAME)
    format = FORMATS[args.format]
    path = output.destination(
        args.output or formats.default_path(format, args.run_directory),
        overwrite=args.force,
        directory=not format.ending,
        stdout=True,
    )
    request = ExportRequest(args.format, path, args.torch_trace, args.weight, args.force)
    formats.check(request)
    with progress("exporting") as advance:
        from lotus.reading.run import load  # pandas is slow to import

        exported = formats.export(load(args.run_directory, args.trust), request, advance)
    for note in exported.notes:
        say(f"lotus: {note}")
    if exported.path is not None:
        print(printable(f"{exported.path}\n{exported.next}"), flush=True)
    return 0
