"""`lotus compare`: compare runs or sweeps."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from lotus.commands.common import arguments, options, output

if TYPE_CHECKING:
    from lotus.common.errors import LotusError
    from lotus.common.terminal.progress import Bar
    from lotus.compare.comparison import Comparison
    from lotus.compare.gate import RegressionGate

NAME = "compare"
HELP = "compare runs or sweeps: what differs, and how sure that is"
EPILOG = """\
A is the baseline; every other side is compared with it. A side is a run, runs
joined by commas, a pattern in quotes, or a folder of runs: repeats of one
program. Record three or more of each, alternating: a single run does not show
how much runs vary. Sweeps are compared setting by setting. Runs of lotus attach
are compared by shares of their time, which do not show which side is faster.

examples:
  lotus compare
      the two newest runs of one program in lotus-runs, B is the newer one
  lotus compare before after
      faster or slower, by how much with its 95 % interval, then which part
  lotus compare before-1,before-2,before-3 after-1,after-2,after-3
  lotus compare 'runs/before-*' 'runs/after-*' --html compare.html
  lotus compare 'main-*' 'branch-*' --fail-above 5%
      exit code 1 if the whole interval is slower by more than 5 %
  lotus compare 'main-*' 'branch-*' --fail-above 10% --metric operation:Decode
  lotus compare A B --json | jq '.comparisons[0].verdict.text'

It writes nothing but the page of --html.

exit codes: 0 compared; with --fail-above: 0 not shown to be slower by more,
  1 slower by more, 2 it could not be judged

see also: lotus trace, lotus report, lotus sweep
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sides", nargs="*", metavar="A B",
        help="two sides or more, the first is the baseline (default: the two newest runs of one "
        "program in lotus-runs, the older first)",
    )  # fmt: skip
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="also write a page with charts, for a browser (default: write none)",
    )
    options.add_json(parser, "compare")
    options.add_backend(parser)
    parser.add_argument(
        "--fail-above",
        type=arguments.share,
        metavar="X%",
        help="exit with code 1 if the whole 95 %% interval of a side is slower than the "
        "baseline by more than X %% (default: exit with 0)",
    )
    parser.add_argument(
        "--metric",
        metavar="ID",
        help="what --fail-above judges: the id of a line in --json, such as operation:NAME "
        "(default: throughput)",
    )


def run(args: argparse.Namespace) -> int:
    from lotus.common.errors import LotusError
    from lotus.common.terminal.progress import progress
    from lotus.common.terminal.stderr import say

    if not args.sides:
        from lotus.reading import recent_runs

        args.sides = [str(path) for path in recent_runs.two_newest()]
        say(f"lotus: the two newest runs of one program: A {args.sides[0]}, B {args.sides[1]}")
    if len(args.sides) < 2:
        raise LotusError("there is only one side; type: lotus compare A B")
    if args.metric is not None and args.fail_above is None:
        raise LotusError("--metric says what --fail-above judges; add: --fail-above 5%")
    if args.html is not None:
        output.destination(args.html, overwrite=True, option="--html")
    with progress("reading operations") as bar:
        comparisons, gate, trouble = _compare(args, bar)
    # pandas and rich are slow to import: after the bar has begun.
    from lotus.reporters.base import console
    from lotus.reporters.compare import comparison_report

    if args.json:
        output.print_document(comparison_report.document(comparisons, gate=gate))
    else:
        output.replace_unprintable()
        comparison_report.write(console.plain_console(), comparisons, gate=gate)
    if trouble is not None:
        raise trouble
    return int(gate is not None and gate.failed)


def _compare(
    args: argparse.Namespace, bar: "Bar"
) -> "tuple[list[Comparison], RegressionGate | None, LotusError | None]":
    """The comparisons, what --fail-above makes of them, and why it makes nothing of them; writes
    the page.
    """
    from lotus.analysis.common import reduction_backends
    from lotus.common.errors import LotusError
    from lotus.compare import gate as compare_gate
    from lotus.compare import sides

    partials = reduction_backends.chosen(args.backend, args.scheduler)
    comparisons = list(sides.comparisons(args.sides, partials, bar))
    gate = trouble = None
    if args.fail_above is not None:
        try:
            gate = compare_gate.judge(comparisons, args.metric or "throughput", args.fail_above)
        except LotusError as error:  # the comparison is shown nevertheless
            trouble = error
    if args.html is not None:
        from lotus.reporters.compare import comparison_page

        comparison_page.save(args.html, comparisons, gate)
    return comparisons, gate, trouble
