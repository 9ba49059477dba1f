"""`lotus report`: explain a recorded run."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotus.commands.common import arguments, options, output

if TYPE_CHECKING:
    from lotus.common.terminal.progress import Bar

NAME = "report"
PAGE = "report.html"  # of a run, in its directory
_IN_RUN = Path("RUN", PAGE)  # --html without a file; compared by identity
HELP = "explain a recorded run or sweep: the verdict first, then where time went"
EPILOG = """\
examples:
  lotus report lotus-runs/train-20260101-120000
      the verdict with its causes and advice, then tables: waits, operations,
      batches, workers, slowest samples
  lotus report RUN --threshold 500
      the share of batches that took over 500 ms
  lotus report
      the same for the newest run in lotus-runs
  lotus report RUN --html report.html
      the same with charts, one file for a browser
  lotus report --open
      the page of the newest run, in the browser; it is written into the run
  lotus report RUN --json | jq .verdict
      the same numbers for programs
  lotus report RUN --markdown | gh pr comment --body-file -
      the verdict for a pull request

It writes nothing but the page of --html.

exit codes: 0 reported, 2 there is no run that can be read

terms: `lotus schema report` describes each number and its unit

see also: lotus trace, lotus map, lotus whatif, lotus tune, lotus compare
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_directory", type=Path, nargs="?", metavar="RUN",
        help="run directory, or that of a sweep (default: the newest in lotus-runs)",
    )  # fmt: skip
    parser.add_argument(
        "--html", type=Path, nargs="?", const=_IN_RUN, metavar="FILE",
        help="write a page with charts, for a browser, instead of printing the report; without "
        f"FILE to {PAGE} in RUN (default: write none)",
    )  # fmt: skip
    parser.add_argument(
        "--open", action="store_true", help="open the page in the browser (implies --html)"
    )
    options.add_json(parser, "report, of a sweep report-sweep, of lotus attach attached")
    parser.add_argument(
        "--markdown",
        action="store_true",
        help="print the verdict of a run as Markdown, for an issue or a pull request",
    )
    parser.add_argument(
        "--threshold",
        type=arguments.real(0),
        default=100.0,
        metavar="MS",
        help="milliseconds above which a batch counts as slow (default: 100)",
    )
    parser.add_argument(
        "--slowest",
        type=arguments.whole(0),
        default=10,
        metavar="N",
        help="how many of the slowest samples to list (default: 10)",
    )
    options.add_loader_number(parser, "to show in full")
    options.add_backend(parser)
    options.add_trust(parser)


def run(args: argparse.Namespace) -> int:
    # pandas and rich are slow to import: not for `lotus --help`, and after the bar has begun.
    from lotus.common.errors import LotusError
    from lotus.common.terminal.progress import progress

    _find_run_and_page(args)
    if args.html is not None:
        output.destination(args.html, overwrite=True, option="--html")
    if args.markdown and args.json:
        raise LotusError("--markdown and --json are two forms of the same: choose one of them")
    output.replace_unprintable()
    with progress("reading") as bar:
        show = _read(args, bar)
    show()
    return 0


def _read(args: argparse.Namespace, bar: "Bar") -> Callable[[], None]:
    """Read what is reported and write the page; returns what prints the rest."""
    from lotus.attach.files import attached_run
    from lotus.sweep import sweep_record

    if attached_run.is_attached(args.run_directory):
        return _attached(args)
    return (_sweep if sweep_record.is_sweep(args.run_directory) else _run)(args, bar)


def _find_run_and_page(args: argparse.Namespace) -> None:
    """Fill in the run and the path of the page where the command line has none."""
    page = _IN_RUN if args.open and args.html is None else args.html
    if page is not None and page is not _IN_RUN and page.is_dir() and args.run_directory is None:
        args.run_directory, page = page, _IN_RUN  # lotus report --html RUN
    if args.run_directory is None:
        args.run_directory = options.newest_run(NAME, sweeps=True)
    args.html = args.run_directory / PAGE if page is _IN_RUN else page


def _run(args: argparse.Namespace, bar: "Bar") -> Callable[[], None]:
    from lotus.analysis.common import reduction_backends
    from lotus.analysis.common.remade_loaders import number_of
    from lotus.analysis.counters.function_profile import summarise_map
    from lotus.analysis.summary import summarise
    from lotus.common.errors import LotusError
    from lotus.common.terminal.stderr import say
    from lotus.joining import sample_join
    from lotus.reading.run import load
    from lotus.reporters.base.console import plain_console
    from lotus.reporters.run import markdown_report, run_document, terminal

    loaded = load(args.run_directory, args.trust)
    if args.loader is not None:
        args.loader = number_of(loaded, args.loader)
    partials = reduction_backends.chosen(args.backend, args.scheduler)(loaded)
    measured, notes = None, []
    try:
        joined = sample_join.map_if_sampled(loaded, bar.doing("joining samples"))
    except LotusError as error:  # the times are shown nevertheless
        joined, notes = None, [str(error)]
    if joined is not None or len(getattr(loaded, "counters", ())):
        measured = summarise_map(loaded, joined)
    bar.doing("reading operations")
    summary = summarise(loaded, args.threshold * 1e6, args.slowest, args.loader, bar, partials)
    numbers = [shown.scope.loader for shown in summary.loaders]
    if args.loader is not None and args.loader not in numbers:
        names = ", ".join(str(loader) for loader in sorted(numbers)) or "none"
        raise LotusError(f"there is no loader {args.loader} in this run; there are: {names}")
    if args.html is not None:  # it reads them again
        from lotus.reporters.run import run_page

        run_page.save(loaded, summary, args.html, measured, args.loader)

    def show() -> None:
        if args.json:
            output.print_document(run_document.document(summary, measured=measured))
        elif args.markdown:
            print(markdown_report.markdown(summary), end="")
        elif args.html is None:
            terminal.write(plain_console(), summary, loader=args.loader, measured=measured)
        _announce_page(args)
        for note in () if args.json else notes:
            say(f"lotus: {note}")

    return show


def _sweep(args: argparse.Namespace, bar: "Bar") -> Callable[[], None]:
    from lotus.common.errors import LotusError
    from lotus.reporters.sweep import sweep_page, sweep_report
    from lotus.sweep import sweep_record
    from lotus.sweep.sweep_summary import summarise

    if args.markdown:
        raise LotusError("--markdown is for a run: this is a sweep (lotus report SWEEP --html)")
    summary = summarise(sweep_record.load(args.run_directory), bar.doing("reading runs"))
    document = sweep_report.document(summary)
    return _shown(args, summary, document, sweep_page, sweep_report)


def _attached(args: argparse.Namespace) -> Callable[[], None]:
    from lotus.analysis.attached.verdict.sampled_verdict import summarise
    from lotus.attach.files import attached_run
    from lotus.common.errors import LotusError
    from lotus.reporters.run.attached import attached_page, attached_report

    if args.markdown:
        raise LotusError("--markdown is for a recorded run: this one was sampled (--html, --json)")
    summary = summarise(attached_run.load(args.run_directory), str(args.run_directory))
    document = attached_report.document(summary)
    return _shown(args, summary, document, attached_page, attached_report)


def _shown(
    args: argparse.Namespace, summary: Any, document: Any, pages: Any, report: Any
) -> Callable[[], None]:
    """Write the page, by the reporters of one kind of run; returns what prints the rest."""
    from lotus.reporters.base import console, page

    if args.html is not None:
        heading, sections = pages.heading(summary), pages.sections(summary)
        page.save(args.html, f"lotus: {heading.title}", heading, sections, document)

    def show() -> None:
        if args.json:
            output.print_document(document)
        elif args.html is None:
            report.write(console.plain_console(), summary)
        _announce_page(args)

    return show


def _announce_page(args: argparse.Namespace) -> None:
    """Print where the page was written, and open it with --open."""
    from lotus.common.terminal import browser
    from lotus.common.terminal.stderr import say

    if args.html is None:
        return
    if not args.json:  # the document stands alone
        print(f"written: {args.html}" + ("" if args.open else " (open it in a browser)"))
    if args.open and (instead := browser.open_page(args.html)):
        say(f"lotus: {instead}")
