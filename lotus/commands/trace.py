"""`lotus trace`: run a command and record its data loading."""

import argparse
import contextlib
import shlex
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotus.commands.common import arguments, options
from lotus.common.errors import LotusError
from lotus.common.terminal.stderr import say
from lotus.format.manifest import LEVELS, TraceSettings
from lotus.inside.trace.config import RANGES
from lotus.recording import launcher, traced_command
from lotus.reporters.run import end_of_trace
from lotus.reporters.run.early_import import EarlyImport

if TYPE_CHECKING:
    from lotus.recording.recorders import Sidecar

NAME = "trace"
HELP = "run a command and record its data loading"
EPILOG = """\
examples:
  lotus trace -- python train.py --epochs 1
      the program's own output, a verdict in a few lines, and the next command
  lotus trace -o my-run --level op+cpu -- torchrun --nproc-per-node 2 train.py
      also the CPU time and storage of each operation, for both ranks
  lotus trace -o job-$(hostname) -- torchrun --nnodes 2 ... train.py
      on each host of a job; then `lotus merge job-* -o whole`
  lotus trace --counters --perf -o my-run -- python train.py
      then `lotus map my-run` shows counters and C/C++ functions
  lotus trace --op mypackage.data:decode -- python -m mypackage.train
  lotus trace --batches 100:200 --max-log 500MB -- bash train.sh

The command keeps its terminal, its output, its exit code and its signals.
`-m MODULE` and `-c CODE` directly after `--` run under the python on PATH.

writes: a run directory: run.json (what ran), events/ (a log per process),
  and with --perf and --py-spy the files that these recorded

exit codes: the command's own; 126, 127 it cannot be started; 2 lotus refuses
  an option, and the command was not started

see also: lotus report, lotus top, lotus map, lotus doctor
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_output(parser, "run directory to make (default: lotus-runs/SCRIPT-TIME)")
    options.add_force(parser)
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="print nothing from lotus, not even that tracing had to stop (lotus report shows it)",
    )
    _add_extent(parser)
    _add_recorders(parser)
    parser.add_argument(
        "--live",
        action="store_true",
        help="print the progress on stderr while the program runs: a line every 10 s, and one when "
        "nothing moves any more (lotus top DIR, in another terminal, shows more)",
    )
    options.add_command(parser, NAME)


def _add_extent(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how much of the data loading is recorded."""
    parser.add_argument(
        "--level",
        choices=LEVELS,
        default="op",
        help="how much to record; each level includes those before it (default: op)",
    )
    parser.add_argument(
        "--batches",
        type=arguments.batches,
        metavar="A:B",
        help="record only batches A to B - 1 of each epoch (default: all)",
    )
    parser.add_argument(
        "--every",
        type=arguments.whole(1),
        default=1,
        metavar="N",
        help="record only every N-th batch (default: 1, every batch)",
    )
    parser.add_argument(
        "--max-log",
        type=arguments.size,
        metavar="SIZE",
        help="stop recording a process at this size of its log, such as 500MB (default: no limit)",
    )
    parser.add_argument(
        "--op",
        action="append",
        default=[],
        type=arguments.qualified_name,
        metavar="PKG.MOD:NAME",
        dest="ops",
        help="also time this function or method (repeatable)",
    )


def _add_recorders(parser: argparse.ArgumentParser) -> None:
    """Add the options that record more beside it, or for other tools."""
    parser.add_argument(
        "--counters",
        nargs="?",
        const="auto",
        metavar="SETS",
        help="count hardware events exactly per operation: topdown, topdown2, cache, branch, "
        "tlb, memory, generic, software, or perf's names of events; without SETS, the most telling "
        "ones that this machine can count together (default: count nothing)",
    )
    parser.add_argument(
        "--perf", action="store_true", help="also sample C and C++ functions, with perf record"
    )
    parser.add_argument(
        "--perf-events",
        metavar="EVENTS",
        help="events of perf to sample (implies --perf; default: the best event that this machine "
        "can sample)",
    )
    parser.add_argument(
        "--perf-frequency",
        type=arguments.whole(1),
        metavar="HZ",
        help="samples of perf a second on each CPU (default: 997)",
    )
    parser.add_argument(
        "--perf-kernel", action="store_true", help="also sample the kernel (implies --perf)"
    )
    parser.add_argument(
        "--py-spy",
        action="store_true",
        help="also sample Python functions and lines, with py-spy, 100 times a second",
    )
    parser.add_argument(
        "--nvtx",
        action="store_true",
        help="also name the waits, fetches, operations and collates as NVTX ranges, which Nsight "
        "Systems shows",
    )
    parser.add_argument(
        "--itt", action="store_true", help="also name them as ITT tasks, which VTune shows"
    )


def run(args: argparse.Namespace) -> int:
    command = options.required_command(args, NAME, _hint_of_dashes(args.counters))
    counters: str | None = None
    recorders: list[Sidecar] = []
    cpu: dict[str, Any] = {}
    sampled = args.perf or args.perf_events or args.perf_kernel
    if args.counters is not None or sampled or args.py_spy:
        # Imported only here: it probes what this machine can measure.
        from lotus.recording import measurement_plan

        try:
            plan = measurement_plan.plan(
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
    ranges = tuple(name for name in RANGES if getattr(args, name))
    settings = TraceSettings(
        args.level, args.batches, args.every, args.max_log, tuple(args.ops), counters, cpu, ranges
    )
    directory, outcome = traced_command.trace(
        command,
        args.output,
        settings,
        args.force,
        recorders,
        _ticker if args.live else None if args.quiet else EarlyImport,
        args.quiet,
    )
    if not args.quiet:
        with contextlib.suppress(KeyboardInterrupt):  # the program has ended by now
            if outcome.exit_code == 2 and (word := _misplaced(command)):
                say(
                    f"lotus: {word} stands after the command and was passed to it; "
                    "options of lotus go before the command"
                )
            following = f"lotus report {shlex.quote(str(directory))}"
            say(end_of_trace.text(directory, outcome, following), style=end_of_trace.styled)
    return launcher.end_as(outcome)


def _ticker(directory: Path) -> AbstractContextManager[object]:
    """Print progress on stderr while the program runs."""
    from lotus.reporters.live.ticker import Ticker  # imports the readers of logs

    return Ticker(directory)


def _hint_of_dashes(counters: str | None) -> str:
    """Return a hint for `lotus trace --counters python train.py`, which reads python as a set."""
    if counters is None or counters == "auto":
        return ""
    if not shutil.which(counters) and not Path(counters).is_file():
        return ""
    return "put `--` before the command: lotus trace --counters -- " + counters + " ..."


def _misplaced(command: Sequence[str]) -> str:
    """Return the first word of the command that is an option of lotus.

    The program may have the same option, so this is reported only if it exits with code 2, as
    argparse does for an unknown option.
    """
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    options = {option for action in parser._actions for option in action.option_strings}
    return next((word for word in command[1:] if word.partition("=")[0] in options), "")
