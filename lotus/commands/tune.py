"""`lotus tune`: run a command, and find the settings that feed it fastest."""

import argparse
import io
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from lotus import arguments
from lotus.settings import DEFAULT

NAME = "tune"
HELP = "find the loader settings that feed a program fastest, in about a minute"
EPILOG = """\
examples:
  lotus tune -- python train.py
      each setting with its samples/s while it is tried; then the best, how
      much it gains, and the change of code
  lotus run --settings tuned.json -- python train.py
      the program with what was found, its code unchanged
  lotus tune --apply -- python train.py
      goes on training with what was found
  lotus tune --loader Pictures --budget 2m -- python train.py
  lotus tune --objective throughput --vary threads -- python train.py

The program starts as usual. When it has iterated its loader for some batches,
settings are tried in its place, on its own data set, sampler and collate
function; batch_size stays. What is found is held against the program's own
steps: it trains on for some batches, with that and its own setting in turn.
Then it is ended at once: no `finally` and no atexit function of it runs, the
processes that it has started get SIGTERM. With --apply it goes on instead.

writes: the settings (-o)

exit codes: 0 settings were found, or the own ones are best; 1 they could not be
  written; 130 Ctrl-C; the program's own where it ended by itself or --apply

see also: lotus run, lotus sweep, lotus whatif, lotus schema tuned.json
"""
_STRATEGIES = ("lotus", "adapt", "grid", "random")
_VARIED = ("start_method", "in_order", "threads")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lotus tune [options] -- COMMAND ..."
    add = parser.add_argument
    add(
        "--loader", type=arguments.loader, metavar="N|NAME",
        help="this loader: its number by first iteration, its data set's class, or the FILE:LINE "
        "that makes it (default: the one of most samples)",
    )  # fmt: skip
    add(
        "--budget",
        type=_seconds,
        default=60.0,
        metavar="TIME",
        help="time for all trials, as 90s or 2m (default: 60s)",
    )
    add(
        "--check",
        type=_some_seconds,
        metavar="TIME",
        help="then the program trains on this long with what was found and with its own in turn, "
        "as trials do not run its step; 0s: not at all (default: a third of --budget)",
    )
    add(
        "--objective", choices=("train", "throughput"), default="train",
        help="samples/s with the program's step between batches (train), or without "
        "(default: train)",
    )  # fmt: skip
    add(
        "--strategy",
        choices=_STRATEGIES,
        default="lotus",
        help="who chooses what to try (default: lotus)",
    )
    add(
        "--vary", type=_names, default=(), metavar="NAMES",
        help=f"try these as well, by commas: {', '.join(_VARIED)} (default: none)",
    )  # fmt: skip
    add(
        "--watch",
        type=arguments.whole(1),
        metavar="N",
        help="batches of the program itself first (default: 12)",
    )
    add(
        "--seed",
        type=arguments.whole(0, (1 << 32) - 1),
        default=0,
        metavar="N",
        help="seed of what is left to chance (default: 0)",
    )
    add(
        "--apply",
        action="store_true",
        help="let the program go on with what was found (default: it is ended)",
    )
    add(
        "-o", "--output", type=Path, default=DEFAULT, metavar="FILE",
        help=f"file of settings to write (default: {DEFAULT})",
    )  # fmt: skip
    add(
        "--json",
        action="store_true",
        help="print a document for programs; fields: lotus schema tune",
    )
    add("-q", "--quiet", action="store_true", help="write the settings, print nothing of them")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    from lotus import launch, tuning
    from lotus.errors import LotusError
    from lotus.streams import say
    from lotus.tune import recorded

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise LotusError("no command to tune; try `lotus tune -- python train.py`")

    def tried(program: tuning.PipedProgram) -> Any:
        # pandas, for which the program has not to wait before it starts
        from lotus.reporters.tuning import Live
        from lotus.tune import checking
        from lotus.tune.search import search

        live = Live(sys.stderr.isatty())
        if not args.quiet:
            what = program.watched.loader.words()
            say(f"lotus: {what} was watched; settings are tried now, in {args.budget:g} s")
        try:
            found = search(
                program,
                strategy=args.strategy,
                budget_s=args.budget,
                objective=args.objective,
                seed=args.seed,
                vary=args.vary,
                on_progress=None if args.quiet else live,
            )
        finally:
            live.clear()
        found = recorded.with_operations(found, program.run, program.workers)
        seconds = args.budget / 3 if args.check is None else args.check
        return checking.check(found, program, seconds, None if args.quiet else live.trains)

    def report(result: Any, written: Path | None) -> None:
        from lotus.reporters import tuning as reporter

        if args.quiet and written is not None:
            return
        text = io.StringIO()
        width = shutil.get_terminal_size().columns
        reporter.write(result, command, written, text, width)
        say(text.getvalue())

    done = tuning.tune(
        command,
        tried,
        output=args.output,
        loader=args.loader,
        watch=args.watch,
        apply=args.apply,
        on_found=report if args.apply and not args.json else None,
        record=recorded.begin,
    )
    if done.found is not None and args.json:
        from lotus.reporters.tuning import document

        print(json.dumps(document(done.found, done.written), indent=2, allow_nan=False))
    elif done.found is not None and not args.apply:
        report(done.found, done.written)
    if done.problem:
        say(f"lotus: {done.problem}")
    if done.unwritten:
        more = "the line for the code is above, `lotus tune -o FILE` finds it again"
        if done.written is not None:
            file = shlex.quote(str(done.written))
            more = f"the settings are in {done.written}; keep them with: cp {file} FILE"
        say(f"lotus: {done.unwritten}; {more}")
    if done.found is not None and done.ended_by_us:
        return 130 if done.found.interrupted else int(bool(done.unwritten))
    return launch.end_as(done.outcome)


def _some_seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(s|m|min|)", text)
    if found is None or not 0 <= float(found[1]) < 1e6:
        raise ValueError(text)
    return float(found[1]) * (60 if found[2].startswith("m") else 1)


def _seconds(text: str) -> float:
    found = _some_seconds(text)
    if not found:
        raise ValueError(text)
    return found


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name)
    if not names or any(name not in _VARIED for name in names):
        raise ValueError(text)
    return names


for _kind, _name in (
    (_seconds, "time (60s)"),
    (_some_seconds, "time (20s)"),
    (_names, "NAMES"),
):
    _kind.__name__ = _name
