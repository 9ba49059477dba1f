"""`lotus sweep`: run a command once per loader setting, and see where more workers stop helping."""

import argparse
import shlex
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotus import arguments

if TYPE_CHECKING:
    from lotus.sweep import Sweep
    from lotus.sweep_plan import Plan

NAME = "sweep"
HELP = "run a command under several loader settings: when do more workers stop helping"
EPILOG = """\
examples:
  lotus sweep --workers 1,2,4,8 -o S -- python train.py --epochs 1
      a line a run while it goes on; then how many workers are enough, and why
  lotus report S --html s.html
  lotus sweep --workers 2,4 --prefetch 2,8 --repeat 5 -o S -- python train.py
  lotus sweep --resume S
      goes on after Ctrl-C, and makes runs again that failed

Each setting is put on the program's loaders where it makes them, without a
change of its code; what no option names stays as the program has it. Runs are
made in rounds, each with all settings in an order of its own. Ctrl-C ends the
program and the sweep.

writes: a directory: sweep.json, and in runs/ a run directory and the program's
  output of each run

exit codes: 0 all runs count, 1 some failed, 2 it could not begin, 130 Ctrl-C

see also: lotus report, lotus tune, lotus compare
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lotus sweep [options] -- COMMAND ..."
    add = parser.add_argument
    add(
        "--workers", type=_numbers(0), metavar="N,...",
        help="numbers of workers (default: 1,2,4,... up to the cores there are)",
    )  # fmt: skip
    add(
        "--prefetch",
        type=_numbers(1),
        metavar="N,...",
        help="batches each worker makes ahead (default: the program's)",
    )
    add(
        "--pin-memory",
        type=_switches,
        metavar="on,off",
        help="with pinned memory, or without (default: the program's)",
    )
    add(
        "--persistent",
        type=_switches,
        metavar="on,off",
        help="workers that stay between epochs, or not (default: the program's)",
    )
    add(
        "--start-method", type=_methods, metavar="METHOD,...",
        help="how workers start: fork, spawn, forkserver (default: the program's)",
    )  # fmt: skip
    add(
        "--repeat",
        type=arguments.whole(1, 10_000),
        metavar="N",
        help="runs of each setting (default: 3)",
    )
    add(
        "--seed",
        type=arguments.whole(0, (1 << 32) - 1),
        metavar="N",
        help="seed of the order of runs (default: drawn, and kept in sweep.json)",
    )
    add(
        "--loader", type=arguments.loader, metavar="N|NAME",
        help="set this loader only: its number by first iteration, or its data set's class "
        "(default: every loader of the program)",
    )  # fmt: skip
    add(
        "--iterable-safe", action="store_true",
        help="say that an iterable data set gives the same samples with any number of workers",
    )  # fmt: skip
    add(
        "--batches",
        type=arguments.batches,
        metavar="A:B",
        help="record batches A up to B of each epoch only (default: all)",
    )
    add(
        "--counters", metavar="SETS",
        help="what to count, as lotus trace --counters; none for nothing (default: the most "
        "telling events that this machine has)",
    )  # fmt: skip
    add("--perf", action="store_true", help="sample C and C++ functions in each run as well")
    add(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="directory of the sweep (default: lotus-runs/SCRIPT-TIME)",
    )
    add("--resume", type=Path, metavar="DIR", help="go on with this sweep; needs no other option")
    add(
        "--show-output", action="store_true",
        help="let the program write to the terminal, not to a file beside each run",
    )  # fmt: skip
    add("-q", "--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    from lotus import sweep, sweep_plan, sweeping
    from lotus.errors import LotusError
    from lotus.reporters import sweep_progress as reporter
    from lotus.streams import say

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if args.resume is not None:
        path = args.resume
        _agrees(args, sweep.load(path))
        command = sweep_plan.command_of(sweep.load(path), command)
    elif not command:
        raise LotusError(
            "no command to sweep; try `lotus sweep --workers 1,2,4 -- python train.py`"
        )
    else:
        path = sweep_plan.begin(args.output, command, _plan(args), args.seed)
    again = f"lotus sweep --resume {shlex.quote(str(path))}"
    shown = (
        sweeping.Progress()
        if args.quiet
        else reporter.Live(sys.stderr.isatty(), sweep.load(path).varied)
    )
    if not args.quiet:
        reporter.intend(sweep.load(path))
    try:
        swept = sweeping.run(path, command, shown, args.show_output)
    except KeyboardInterrupt:  # between two runs
        say(f"lotus: stopped; go on with: {again}", _line())
        return 130
    if swept.signal is not None:
        text = "lotus: stopped, the run that was going on does not count; go on with: "
        say(text + again, _line())
        return 128 + swept.signal
    runs = swept.sweep.manifest["runs"]
    refused = sum(one.get("refused") is True for one in runs)
    failed = sum(one["state"] == "failed" for one in runs) - refused
    if not args.quiet:
        reporter.conclude(swept.sweep)
    if failed:
        say(f"lotus: {failed} of {len(runs)} runs failed; try them again by: {again}")
    if refused:
        say(
            f"lotus: {refused} of {len(runs)} runs cannot succeed, as the loader refuses their "
            "setting (see above)"
        )
    return 1 if failed or refused else 0


def _line() -> str:
    """The end of the line on which a terminal shows ^C."""
    return "\n" if sys.stderr is not None and sys.stderr.isatty() else ""


def _plan(args: argparse.Namespace) -> "Plan":
    from lotus import settings, sweep_plan
    from lotus.tune.space import Value

    asked: dict[str, tuple[Value, ...] | None] = {
        "num_workers": args.workers or _up_to(int(settings.machine()["cores"])),
        "prefetch_factor": args.prefetch,
        "pin_memory": args.pin_memory,
        "persistent_workers": args.persistent,
        "start_method": args.start_method,
    }
    given = {name: values for name, values in asked.items() if values is not None}
    return sweep_plan.Plan(
        settings=sweep_plan.combined(given),
        varied=tuple(given),
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


def _agrees(args: argparse.Namespace, found: "Sweep") -> None:
    """Raise LotusError where an option says otherwise than the sweep that is to go on."""
    from lotus.errors import LotusError

    known = found.manifest.get("plan")
    plan = known if isinstance(known, dict) else {}
    asked: dict[str, tuple[object, object]] = {}  # option -> what it says, what the sweep has
    for option, given, name in (
        ("--workers", args.workers, "num_workers"),
        ("--prefetch", args.prefetch, "prefetch_factor"),
        ("--pin-memory", args.pin_memory, "pin_memory"),
        ("--persistent", args.persistent, "persistent_workers"),
        ("--start-method", args.start_method, "start_method"),
    ):
        if given is not None:
            workers = name in ("num_workers", "pin_memory")
            of = [one for one in found.settings() if workers or one.num_workers]
            varied = {getattr(one, name) for one in of} if name in found.varied else set()
            asked[option] = set(given), varied
    others: tuple[tuple[str, object, object], ...] = (
        ("--repeat", args.repeat, plan.get("repeat")),
        ("--seed", args.seed, found.manifest.get("seed")),
        ("--loader", _loader(args), plan.get("loader")),
        ("--batches", args.batches, plan.get("batches")),
        ("--counters", args.counters, plan.get("counters") or "none"),
        ("--perf", args.perf or None, plan.get("perf")),
        ("--iterable-safe", args.iterable_safe or None, plan.get("iterable_safe")),
        ("--output", args.output and args.output.resolve(), found.path.resolve()),
    )
    asked |= {option: (one, there) for option, one, there in others if one is not None}
    other = [option for option, (one, there) in asked.items() if one != there]
    if other:
        raise LotusError(
            f"{', '.join(other)}: not as in the sweep of {found.path}, which goes on as it began; "
            "leave it out, or begin another sweep with -o"
        )


def _up_to(cores: int) -> tuple[int, ...]:
    """1, 2, 4, ... and the cores themselves."""
    powers = [1 << power for power in range(20) if 1 << power < cores]
    return (*powers, max(cores, 1))


def _list(text: str) -> list[str]:
    words = list(dict.fromkeys(word.strip() for word in text.split(",")))
    if not all(words):
        raise ValueError(text)
    return words


def _numbers(least: int) -> Callable[[str], tuple[int, ...]]:
    def numbers(text: str) -> tuple[int, ...]:
        found = tuple(int(word) for word in _list(text))
        if not all(least <= one <= 4096 for one in found):
            raise ValueError(text)
        return tuple(sorted(set(found)))

    numbers.__name__ = f"list of numbers from {least} on"
    return numbers


def _switches(text: str) -> tuple[bool, ...]:
    known = {"on": True, "off": False}
    return tuple(known[word] for word in _of(text, known))


def _methods(text: str) -> tuple[str, ...]:
    from lotus.tune.space import START_METHODS

    return tuple(_of(text, START_METHODS))


def _of(text: str, known: Collection[str]) -> list[str]:
    words = _list(text)
    if any(word not in known for word in words):
        raise ValueError(text)
    return words


_switches.__name__, _methods.__name__ = "list of on and off", "list of start methods"
