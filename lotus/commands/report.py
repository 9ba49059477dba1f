"""`lotus report`: explain a recorded run."""

import argparse
import json
import sys
from pathlib import Path

from lotus import arguments

NAME = "report"
HELP = "explain a recorded run or sweep: the verdict first, then where time went"
EPILOG = """\
examples:
  lotus report lotus-runs/train-20260101-120000
      the verdict with its causes and advice, then tables: waits, operations,
      batches, workers, slowest samples
  lotus report RUN --threshold 500
      the share of batches that took over 500 ms
  lotus report RUN --html report.html
      the same with charts, one file for a browser
  lotus report RUN --json | jq .verdict
      the same numbers for programs

It writes nothing but the page of --html.

exit codes: 0 reported, 2 there is no run that can be read

see also: lotus trace, lotus map, lotus whatif, lotus tune, lotus compare
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_directory", type=Path, metavar="RUN", help="run directory, or that of a sweep"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write a page with charts, to open in a browser"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a document for programs; fields: lotus schema report, of a sweep report-sweep",
    )
    parser.add_argument(
        "--threshold",
        type=arguments.real(0),
        default=100.0,
        metavar="MS",
        help="show the share of batches above this many milliseconds (default: 100)",
    )
    parser.add_argument(
        "--slowest",
        type=arguments.whole(0),
        default=10,
        metavar="N",
        help="how many slow samples to list (default: 10)",
    )
    parser.add_argument(
        "--loader",
        type=arguments.whole(0),
        metavar="N",
        help="show this loader in full (default: the one of most samples)",
    )


def run(args: argparse.Namespace) -> int:
    # pandas and rich are slow to import: not for `lotus --help`.
    from lotus import files, sweep

    if args.html is not None:
        files.writable(args.html, "--html")
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # a terminal that has no µ shows a question mark
    return _sweep(args) if sweep.is_sweep(args.run_directory) else _run(args)


def _run(args: argparse.Namespace) -> int:
    from lotus import mapped
    from lotus.analysis.functions import summarise_map
    from lotus.analysis.summary import summarise
    from lotus.errors import LotusError
    from lotus.reporters import tables, terminal
    from lotus.run import load
    from lotus.streams import progress, say

    loaded = load(args.run_directory)
    summary = summarise(loaded, args.threshold * 1e6, args.slowest, args.loader)
    known = [one.scope.loader for one in summary.loaders]
    if args.loader is not None and args.loader not in known:
        names = ", ".join(str(loader) for loader in sorted(known)) or "none"
        raise LotusError(f"there is no loader {args.loader} in this run; there are: {names}")
    measured, notes = None, []
    try:
        with progress("joining samples") as told:
            joined = mapped.map_if_sampled(loaded, told)
    except LotusError as error:  # the times are there all the same
        joined, notes = None, [str(error)]
    if joined is not None or len(getattr(loaded, "counters", ())):
        measured = summarise_map(loaded, joined)
    if args.html is not None:
        from lotus.reporters import html

        html.write(loaded, summary, args.html, measured, args.loader)
    if args.json:
        print(tables.text(summary, measured))
        return 0
    if args.html is None:
        terminal.write(summary, sys.stdout, args.loader, measured)
    else:
        print(_written(args.html))
    for note in notes:
        say(f"lotus: {note}")
    return 0


def _sweep(args: argparse.Namespace) -> int:
    from lotus import sweep
    from lotus.analysis.sweep import summarise
    from lotus.reporters import page, sweep_page
    from lotus.reporters import sweep as reporter
    from lotus.streams import progress

    with progress("reading runs") as told:
        summary = summarise(sweep.load(args.run_directory), told)
    document = reporter.document(summary)
    if args.html is not None:
        heading, sections = sweep_page.heading(summary), sweep_page.sections(summary)
        page.write(args.html, f"lotus: {heading.title}", heading, sections, document)
    if args.json:
        print(json.dumps(document, indent=2, allow_nan=False))
    elif args.html is None:
        reporter.write(summary, sys.stdout)
    else:
        print(_written(args.html))
    return 0


def _written(path: Path) -> str:
    return f"written: {path} (open it in a browser)"
