"""`lotus sweep`: run a command once per loader setting, and see where more workers stop helping."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotus.commands.common import arguments, options
from lotus.settings.space import START_METHODS

if TYPE_CHECKING:
    from lotus.sweep.sweep_plan import SweepPlan
    from lotus.sweep.sweep_record import Sweep

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
    from lotus.common.progress import progress
    from lotus.common.stderr import say
    from lotus.reporters.sweep import sweep_progress
    from lotus.sweep import sweep_plan, sweep_record, sweep_runner, sweep_summary

    if args.resume is not None:
        path = args.resume
        _check_resumed(args, sweep_record.load(path))
        command = sweep_plan.command_of(sweep_record.load(path), options.command(args))
    else:
        hint = "try `lotus sweep --workers 1,2,4 -- python train.py`"
        command = options.required_command(args, NAME, hint)
        path = sweep_plan.begin(args.output, command, _plan(args), args.seed)
    again = f"lotus sweep --resume {shlex.quote(str(path))}"
    shown = (
        sweep_runner.Progress()
        if args.quiet
        else sweep_progress.LiveProgress(sys.stderr.isatty(), sweep_record.load(path).varied)
    )
    if not args.quiet:
        sweep_progress.intend(sweep_record.load(path))
    try:
        swept = sweep_runner.run(path, command, shown, args.show_output)
    except KeyboardInterrupt:  # between two runs
        say(f"lotus: stopped; continue with: {again}", _line())
        return 130
    if swept.signal is not None:
        text = "lotus: stopped, the unfinished run does not count; continue with: "
        say(text + again, _line())
        return 128 + swept.signal
    runs = swept.sweep.manifest["runs"]
    refused = sum(run.get("refused") is True for run in runs)
    failed = sum(run["state"] == "failed" for run in runs) - refused
    if not args.quiet:
        with progress("reading runs") as advance:
            summary = sweep_summary.summarise(swept.sweep, advance)
        sweep_progress.conclude(summary)
    if failed:
        say(f"lotus: {failed} of {len(runs)} runs failed; repeat them with: {again}")
    if refused:
        say(
            f"lotus: {refused} of {len(runs)} runs cannot succeed, as the loader refuses their "
            "setting (see above)"
        )
    return 1 if failed or refused else 0


def _line() -> str:
    """Return what ends the line on which a terminal shows ^C."""
    return "\n" if sys.stderr is not None and sys.stderr.isatty() else ""


def _plan(args: argparse.Namespace) -> "SweepPlan":
    from lotus.settings import tuned_file
    from lotus.settings.space import Value
    from lotus.sweep import sweep_plan

    parameters: dict[str, tuple[Value, ...] | None] = {
        "num_workers": args.workers or _up_to(int(tuned_file.machine()["cores"])),
        "prefetch_factor": args.prefetch,
        "pin_memory": args.pin_memory,
        "persistent_workers": args.persistent,
        "start_method": args.start_method,
    }
    varied = {name: values for name, values in parameters.items() if values is not None}
    return sweep_plan.SweepPlan(
        settings=sweep_plan.combined(varied),
        varied=tuple(varied),
        repeat=args.repeat or 3,
        loader=_loader(args),
        batches=args.batches,
        counters=_counters(args),
        perf=args.perf,
        iterable_safe=args.iterable_safe,
    )


def _loader(args: argparse.Namespace) -> dict[str, Any] | None:
    if args.loader is None:
        return None
    return {"number" if isinstance(args.loader, int) else "dataset": args.loader}


def _counters(args: argparse.Namespace) -> str | None:
    return None if args.counters == "none" else args.counters or "auto"


def _check_resumed(args: argparse.Namespace, sweep: "Sweep") -> None:
    """Raise LotusError if an option differs from the sweep that is to be continued."""
    from lotus.common.errors import LotusError

    known = sweep.manifest.get("plan")
    plan = known if isinstance(known, dict) else {}
    values: dict[str, tuple[object, object]] = {}  # option -> its value, that of the sweep
    for option, value, name in (
        ("--workers", args.workers, "num_workers"),
        ("--prefetch", args.prefetch, "prefetch_factor"),
        ("--pin-memory", args.pin_memory, "pin_memory"),
        ("--persistent", args.persistent, "persistent_workers"),
        ("--start-method", args.start_method, "start_method"),
    ):
        if value is not None:
            # These mean something without workers too.
            always = name in ("num_workers", "pin_memory")
            settings = [setting for setting in sweep.settings() if always or setting.num_workers]
            varied = {getattr(setting, name) for setting in settings}
            values[option] = set(value), varied if name in sweep.varied else set()
    further: tuple[tuple[str, object, object], ...] = (
        ("--repeat", args.repeat, plan.get("repeat")),
        ("--seed", args.seed, sweep.manifest.get("seed")),
        ("--loader", _loader(args), plan.get("loader")),
        ("--batches", args.batches, plan.get("batches")),
        ("--counters", args.counters, plan.get("counters") or "none"),
        ("--perf", args.perf or None, plan.get("perf")),
        ("--iterable-safe", args.iterable_safe or None, plan.get("iterable_safe")),
        ("--output", args.output and args.output.resolve(), sweep.path.resolve()),
    )
    values |= {option: (value, there) for option, value, there in further if value is not None}
    differing = [option for option, (value, there) in values.items() if value != there]
    if differing:
        raise LotusError(
            f"{', '.join(differing)}: not as in the sweep of {sweep.path}, which continues "
            "unchanged; leave it out, or begin another sweep with -o"
        )


def _up_to(cores: int) -> tuple[int, ...]:
    """Return 1, 2, 4, ... and the number of cores."""
    powers = [1 << power for power in range(20) if 1 << power < cores]
    return (*powers, max(cores, 1))
