"""`lotus sweep`: run a command once per loader setting, and see where more workers stop helping."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lotus.commands.common import arguments, options
from lotus.settings.space import START_METHODS

if TYPE_CHECKING:
    from lotus.sweep.sweep_request import SweepRequest

NAME = "sweep"
HELP = "run a command with several loader settings, to find how many workers help"
EPILOG = """\
examples:
  lotus sweep --workers 1,2,4,8 -o S -- python train.py --epochs 1
      a line for each run; then how many workers are enough, and why
  lotus report S --html s.html
  lotus sweep --workers 2,4 --prefetch 2,8 --repeat 5 -o S -- python train.py
  lotus sweep --resume S
      continues after Ctrl-C, and repeats the runs that failed

Each setting is applied to the program's loaders when it makes them, without a
change of its code; parameters that no option names stay as the program sets
them. Each round runs every setting once, in an order drawn for that round.
Ctrl-C ends the program and the sweep.

writes: a directory: sweep.json, and in runs/ a run directory and the program's
  output of each run

exit codes: 0 no run failed, 1 some failed, 2 it could not start, 130 Ctrl-C

see also: lotus report, lotus tune, lotus compare
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _add_varied(parser)
    add(
        "--repeat",
        type=arguments.whole(1, 10_000),
        metavar="N",
        help="how many runs to make of each setting (default: 3)",
    )
    add(
        "--seed",
        type=arguments.whole(0, (1 << 32) - 1),
        metavar="N",
        help="seed of the order of runs (default: a random one, kept in sweep.json)",
    )
    add(
        "--loader", type=arguments.loader, metavar="N|NAME",
        help="vary only this loader: its number by first iteration, or the class of its data set "
        "(default: every loader of the program)",
    )  # fmt: skip
    add(
        "--iterable-safe", action="store_true",
        help="declare that an iterable data set yields the same samples with any number of workers",
    )  # fmt: skip
    add(
        "--batches",
        type=arguments.batches,
        metavar="A:B",
        help="record only batches A to B - 1 of each epoch (default: all)",
    )
    add(
        "--counters", metavar="SETS",
        help="hardware events to count, as for lotus trace --counters, or none (default: the most "
        "telling ones that this machine can count together)",
    )  # fmt: skip
    add("--perf", action="store_true", help="also sample C and C++ functions, with perf record")
    options.add_output(parser, "directory of the sweep (default: lotus-runs/SCRIPT-TIME)")
    add(
        "--resume",
        type=Path,
        metavar="DIR",
        help="continue the sweep in this directory; needs no other option (default: begin one)",
    )
    add(
        "--show-output", action="store_true",
        help="let the program write to the terminal instead of a file beside each run",
    )  # fmt: skip
    add("-q", "--quiet", action="store_true", help="print nothing but errors")
    options.add_command(parser, NAME)


def _add_varied(parser: argparse.ArgumentParser) -> None:
    """Add the settings that can be varied."""
    add = parser.add_argument
    add(
        "--workers", type=arguments.numbers(0, 4096), metavar="N,...",
        help="numbers of workers, num_workers (default: 1,2,4,... up to the number of cores)",
    )  # fmt: skip
    add(
        "--prefetch",
        type=arguments.numbers(1, 4096),
        metavar="N,...",
        help="batches that each worker makes ahead, prefetch_factor (default: the program's)",
    )
    add(
        "--pin-memory",
        type=arguments.switches,
        metavar="on,off",
        help="with pinned memory, without, or both in turn (default: the program's)",
    )
    add(
        "--persistent",
        type=arguments.switches,
        metavar="on,off",
        help="with workers that are kept between epochs, without, or both in turn (default: the "
        "program's)",
    )
    add("--persistent-workers", dest="persistent", type=arguments.switches, help=argparse.SUPPRESS)
    add(
        "--start-method", type=arguments.words(START_METHODS), metavar="METHOD,...",
        help=f"how workers are started: {', '.join(START_METHODS)} (default: the program's)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from lotus.common.terminal.progress import progress
    from lotus.reporters.sweep import sweep_progress
    from lotus.sweep import sweep_plan, sweep_record, sweep_runner, sweep_summary

    request = _request(args)
    if args.resume is not None:
        path = args.resume
        request.check_resumed(sweep_record.load(path))
        command = sweep_plan.command_of(sweep_record.load(path), options.command(args))
    else:
        hint = "try `lotus sweep --workers 1,2,4 -- python train.py`"
        command = options.required_command(args, NAME, hint)
        path = sweep_plan.begin(args.output, command, request.plan(), args.seed)
    shown = sweep_runner.Progress()
    if not args.quiet:
        sweep = sweep_record.load(path)
        shown = sweep_progress.LiveProgress(sys.stderr.isatty(), sweep.varied)
        sweep_progress.intend(sweep)
    try:
        swept = sweep_runner.run(path, command, shown, args.show_output)
    except KeyboardInterrupt:  # between two runs
        sweep_progress.stopped(path)
        return 130
    if swept.signal is not None:
        sweep_progress.stopped(path, in_a_run=True)
        return 128 + swept.signal
    if not args.quiet:
        with progress("reading runs") as advance:
            summary = sweep_summary.summarise(swept.sweep, advance)
        sweep_progress.conclude(summary)
    sweep_progress.list_failures(swept)
    return 1 if swept.failed or swept.refused else 0


def _request(args: argparse.Namespace) -> "SweepRequest":
    from lotus.sweep.sweep_request import SweepRequest

    return SweepRequest(
        values={
            "num_workers": args.workers,
            "prefetch_factor": args.prefetch,
            "pin_memory": args.pin_memory,
            "persistent_workers": args.persistent,
            "start_method": args.start_method,
        },
        repeat=args.repeat,
        seed=args.seed,
        loader=args.loader,
        batches=args.batches,
        counters=args.counters,
        perf=args.perf,
        iterable_safe=args.iterable_safe,
        output=args.output,
    )
