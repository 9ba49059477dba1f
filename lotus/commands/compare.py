"""`lotus compare`: hold runs or sweeps against each other."""

import argparse
import math
import sys
from pathlib import Path

NAME = "compare"
HELP = "hold runs or sweeps against each other: what differs, and how sure that is"
EPILOG = """\
A is the baseline; each other side is held against it. A side is a run, runs
joined by commas, a pattern in quotes, or a folder of runs: repeats of one
program. Record three or more of each, in turns: one run cannot tell how much
runs differ from each other. Sweeps are compared setting by setting.

examples:
  lotus compare before after
      faster or slower, by how much with its 95 % interval, then which part
  lotus compare before-1,before-2,before-3 after-1,after-2,after-3
  lotus compare 'runs/before-*' 'runs/after-*' --html compare.html
  lotus compare 'main-*' 'branch-*' --fail-above 5%
      exit code 1 where it is slower by more than 5 %, surely
  lotus compare 'main-*' 'branch-*' --fail-above 10% --metric operation:Decode
  lotus compare A B --json | jq '.comparisons[0].verdict.text'

It writes nothing but the page of --html.

exit codes: 0 compared; with --fail-above: 0 not shown to be slower by more,
  1 slower by more, 2 it could not be judged

see also: lotus trace, lotus report, lotus sweep
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sides", nargs="+", metavar="A B", help="two sides or more, the first is the baseline"
    )
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write a page with charts too, to open in a browser",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a document for programs; fields: lotus schema compare",
    )
    parser.add_argument(
        "--fail-above", type=_share, metavar="X%",
        help="exit with 1 if a side is slower than the baseline by more than X %%, with all of its "
        "95 %% interval",
    )  # fmt: skip
    parser.add_argument(
        "--metric", metavar="ID",
        help="what --fail-above judges: the id of a line in --json, as operation:NAME (default: "
        "throughput)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    # pandas and rich are slow to import: not for `lotus --help`.
    from lotus import comparing
    from lotus.analysis import compare_gate
    from lotus.errors import LotusError
    from lotus.files import writable
    from lotus.reporters import compare

    if len(args.sides) < 2:
        raise LotusError("there is one side only; type: lotus compare A B")
    if args.metric is not None and args.fail_above is None:
        raise LotusError("--metric says what --fail-above judges; add: --fail-above 5%")
    if args.html is not None:
        writable(args.html, "--html")
    found = list(comparing.comparisons(args.sides))
    gate = trouble = None
    if args.fail_above is not None:
        try:
            gate = compare_gate.judge(found, args.metric or "throughput", args.fail_above)
        except LotusError as error:  # what was found is shown all the same
            trouble = error
    if args.html is not None:
        from lotus.reporters import compare_page

        compare_page.write(args.html, found, gate)
    if args.json:
        print(compare.text(found, gate))
    else:
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # a terminal that has no µ shows a question mark
        compare.write(found, sys.stdout, gate)
    if trouble is not None:
        raise trouble
    return int(gate is not None and gate.failed)


def _share(text: str) -> float:
    """5% or 0.05 as 0.05."""
    number = text.strip()
    value = float(number[:-1]) / 100 if number.endswith("%") else float(number)
    if not number.endswith("%") and value >= 1:
        raise ValueError(text)  # 5 of what?
    if not 0 <= value < math.inf:
        raise ValueError(text)
    return value


_share.__name__ = "share (as 5%)"
