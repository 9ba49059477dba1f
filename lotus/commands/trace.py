"""`lotus trace`: run a command and record its data loading."""

import argparse
import contextlib
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotus import arguments, closing, launch
from lotus.errors import LotusError
from lotus.manifest import LEVELS, Settings
from lotus.streams import say

if TYPE_CHECKING:
    from lotus.siblings import Sibling

NAME = "trace"
HELP = "run a command and record its data loading"
EPILOG = """\
examples:
  lotus trace -- python train.py --epochs 1
      the program's own output, a verdict in a few lines, and what to type next
  lotus trace -o my-run --level op+cpu -- torchrun --nproc-per-node 2 train.py
      CPU time and storage of each operation too, of both ranks
  lotus trace -o job-$(hostname) -- torchrun --nnodes 2 ... train.py
      on each host of a job; then `lotus merge job-* -o whole`
  lotus trace --counters --perf -o my-run -- python train.py
      then `lotus map my-run` shows counters and C/C++ functions
  lotus trace --op mypackage.data:decode -- python -m mypackage.train
  lotus trace --batches 100:200 --max-log 500MB -- bash train.sh

The command keeps its terminal, its output, its exit code and its signals.
`-m MODULE` and `-c CODE` directly after `--` run under the python on PATH.

writes: a run directory: run.json (what ran), events/ (a log per process),
  and with --perf and --py-spy what these recorded

exit codes: the command's own; 126, 127 it cannot be started; 2 lotus refuses
  an option, and the command was not started

see also: lotus report, lotus top, lotus map, lotus doctor
"""

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lotus trace [options] -- COMMAND ..."
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="run directory to make (default: lotus-runs/SCRIPT-TIME)",
    )
    parser.add_argument("-f", "--force", action="store_true", help="overwrite an earlier run in it")
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print nothing of lotus at the end"
    )
    parser.add_argument(
        "--level",
        choices=LEVELS,
        default="op",
        help="what is recorded, each with those before it (default: op)",
    )
    parser.add_argument(
        "--batches",
        type=arguments.batches,
        metavar="A:B",
        help="record batches A up to B of each epoch only (default: all)",
    )
    parser.add_argument(
        "--every",
        type=arguments.whole(1),
        default=1,
        metavar="N",
        help="record each N-th batch only (default: 1, every batch)",
    )
    parser.add_argument(
        "--max-log",
        type=_size,
        metavar="SIZE",
        help="stop recording a process at this size of its log, as 500MB (default: no limit)",
    )
    parser.add_argument(
        "--op",
        action="append",
        default=[],
        type=_callable,
        metavar="PKG.MOD:NAME",
        dest="ops",
        help="time this function or method too (repeatable)",
    )
    parser.add_argument(
        "--counters",
        nargs="?",
        const="auto",
        metavar="SETS",
        help="count hardware events exactly per operation: topdown, cache, branch, tlb, memory, "
        "generic, software, or perf's names of events (default: the most telling that fit)",
    )
    parser.add_argument(
        "--perf", action="store_true", help="sample C and C++ functions with perf record beside it"
    )
    parser.add_argument(
        "--perf-events",
        metavar="EVENTS",
        help="sample these events of perf (implies --perf; default: the best that samples here)",
    )
    parser.add_argument(
        "--perf-frequency",
        type=arguments.whole(1),
        metavar="HZ",
        help="samples a second and CPU (default: 997)",
    )
    parser.add_argument(
        "--perf-kernel", action="store_true", help="sample the kernel too (implies --perf)"
    )
    parser.add_argument(
        "--py-spy",
        action="store_true",
        help="sample Python functions and lines with py-spy, 100 times a second",
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="say on stderr how it goes while it runs: a line each 10 s, and where nothing moves "
        "any more (lotus top DIR, elsewhere, shows more)",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        hint = _hint_of_dashes(args.counters)
        raise LotusError(f"no command to trace; {hint or 'try `lotus trace -- python train.py`'}")
    counters: str | None = None
    recorders: list[Sibling] = []
    cpu: dict[str, Any] = {}
    sampled = args.perf or args.perf_events or args.perf_kernel
    if args.counters is not None or sampled or args.py_spy:
        from lotus import measuring  # only then: it looks at what this machine can do

        try:
            plan = measuring.plan(
                args.counters,
                bool(sampled),
                args.perf_events,
                args.perf_frequency,
                args.perf_kernel,
                args.py_spy,
                None if args.quiet else say,
            )
        except LotusError as error:
            if hint := _hint_of_dashes(args.counters):
                raise LotusError(f"{error}; {hint}") from None
            raise
        for note in () if args.quiet else plan.notes:
            say(f"lotus: {note}")
        counters, recorders, cpu = plan.counters, plan.recorders, plan.cpu
    settings = Settings(
        args.level, args.batches, args.every, args.max_log, tuple(args.ops), counters, cpu
    )
    directory, outcome = launch.trace(
        command, args.output, settings, args.force, recorders, args.live
    )
    if not args.quiet:
        with contextlib.suppress(KeyboardInterrupt):  # the program has ended by now
            if outcome.exit_code == 2 and (word := _misplaced(command)):
                say(
                    f"lotus: {word} stands after the command and was given to it; "
                    "what is meant for lotus goes before the command"
                )
            say(closing.text(directory, outcome, f"lotus report {shlex.quote(str(directory))}"))
    return launch.end_as(outcome)


def _hint_of_dashes(counters: str | None) -> str:
    """For `lotus trace --counters python train.py`, which takes the program for a set."""
    if counters is None or counters == "auto":
        return ""
    if not shutil.which(counters) and not Path(counters).is_file():
        return ""
    return "put `--` before the command: lotus trace --counters -- " + counters + " ..."


def _misplaced(command: Sequence[str]) -> str:
    """The first word of the command that is an option of ours.

    It may be the program's too: so this is told only where the program ended with code 2, as
    argparse ends it for an option that it does not know.
    """
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    options = {option for action in parser._actions for option in action.option_strings}
    return next((word for word in command[1:] if word.partition("=")[0] in options), "")


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", text.strip(), re.IGNORECASE)
    if not match or (match[3] and not match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 500MB or 2GB")
    units = _BINARY_UNITS if match[3] else _UNITS
    size = int(float(match[1]) * units[match[2].upper()])
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text!r} leaves no room for anything")
    return size


def _callable(text: str) -> str:
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no callable such as package.module:function")
    return text
