"""`lotus advise`: the possible gain of better data loading, measured in a program."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lotus.commands.common import arguments, options
from lotus.commands.common import output as outputs
from lotus.common.errors import LotusError

NAME = "advise"
DEFAULT = Path("advice.json")
HELP = "measure how much faster data loading could make a program, and try alternatives"
EPILOG = """\
examples:
  lotus advise -- python train.py
      at most how many times as fast the loop would be with data always ready,
      and the share of each stall, with 95 % intervals; then other ways to do
      what its operations do: their CPU time, what they change in the output,
      and how fast the loop is with them
  lotus run --settings advice.json -- python train.py
      puts in those that were faster and change no value; the names of others
      are allowed with --allow
  lotus advise --ceilings -- python train.py
      the first of these only
  lotus advise --ceilings --loader Pictures --budget 5m -- python train.py
  lotus advise --ceilings --json -- python train.py
  lotus advise --only uint8_tensors --only draft_decode -- python train.py
  lotus advise --skip Upload -- python train.py
      the operation Upload of its pipeline is not run again

The program starts as usual. After it has iterated its loader for some batches,
it trains on in blocks, in turn: with its loader as it is, with batches that it
had before (data always ready), and with the samples of a few batches again and
again (their files are in memory). Then it is ended at once: none of its
`finally` blocks and atexit functions runs, and the processes that it started
get SIGTERM. Meanwhile its model is trained on repeated data: have it write to a
place that you can throw away.

Without --ceilings there are blocks with known equivalents of its operations,
which lotus can put in as well. Then the program is started once more, up to its
first batch: all known equivalents run on copies of inputs that its operations
had, and it is ended again. Operations that write files, use the network or
start processes are not run again, as far as Python sees that.

writes: the file of -o, where equivalents made the loop faster

exit codes: 0 the ceilings were measured; 1 they could not be; 130 Ctrl-C; the
  program's own if it ended by itself

see also: lotus run, lotus plan, lotus tune, lotus whatif, lotus schema advise
"""
_MOST_S = 300.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--ceilings",
        action="store_true",
        help="measure only how much could be gained, and try no alternatives (default: both)",
    )
    options.add_loader(parser, "measure")
    add(
        "--budget",
        type=arguments.positive_seconds,
        default=60.0,
        metavar="TIME",
        help="time for all blocks together, such as 90s or 5m, which is the most (default: 60s)",
    )
    add(
        "--watch",
        type=arguments.whole(1),
        metavar="N",
        help="how many batches of the program to watch before the blocks (default: 12)",
    )
    add(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="try this alternative; repeat it for more (default: all)",
    )
    add(
        "--skip",
        action="append",
        default=[],
        metavar="NAME",
        help="leave out this alternative, or do not run this operation again (default: none)",
    )
    options.add_output(parser, f"file of settings to write (default: {DEFAULT})", "FILE")
    options.add_force(parser, "overwrite an earlier file of settings")
    options.add_json(parser, "advise")
    options.add_command(parser, NAME)


def run(args: argparse.Namespace) -> int:
    from lotus.advise.alternatives import applied_alternatives, ceiling_run, tried_alternatives
    from lotus.advise.ceilings import ceiling_blocks
    from lotus.common.terminal.stderr import say
    from lotus.recording import launcher
    from lotus.reporters.advise import alternatives_report, applied_report, ceilings_report
    from lotus.reporters.base.console import plain_console
    from lotus.settings import tuned_file
    from lotus.tune.session import program_pipe

    command = options.required_command(args, NAME)
    output, again = args.output or DEFAULT, _again(args, command)
    if not args.ceilings:
        outputs.destination(output, overwrite=args.force)
    if args.budget > _MOST_S:
        raise LotusError(f"--budget {args.budget:g}s: give at most 5m")

    def measure_blocks(program: program_pipe.PipedProgram) -> Any:
        live = ceilings_report.CeilingProgress(sys.stderr.isatty())
        what = program.watched.title()
        say(f"lotus: {what} was watched; blocks are now measured for at most {args.budget:g} s")
        try:
            return ceiling_blocks.measure(
                program, args.budget, live, alternatives=not args.ceilings, again=again
            )
        finally:
            live.clear()

    names = tried_alternatives.chosen(args.only, args.skip)
    done = ceiling_run.measure(
        command,
        measure_blocks,
        names=None if args.ceilings else names,
        loader=args.loader,
        watch=args.watch,
    )
    applied = tuned = None
    if done.ceilings is not None and not args.json:
        ceilings_report.write(plain_console(), done.ceilings)
    if done.problem:
        say(f"lotus: {done.problem}")
    if done.allows_trials and not args.ceilings:
        say("lotus: the program is started again, to try other ways to do what it does")
        bar = alternatives_report.TrialProgress(sys.stderr.isatty())
        try:
            applied = done.try_alternatives(names, args.skip, args.loader, bar)
        finally:
            bar.clear()
        if done.ceilings is not None:
            tuned = applied_alternatives.settings(done.ceilings, applied, command)
        if tuned is not None:
            tuned_file.write(output, tuned)
    written = None if tuned is None else output
    if done.ceilings is not None and args.json:
        outputs.print_document(
            ceilings_report.document(done.ceilings, others=applied, output=written)
        )
    elif applied is not None and not args.json:
        ceiling = None if done.ceilings is None else done.ceilings.speedup
        alternatives_report.write(plain_console(), applied, ceiling=ceiling)
        if done.ceilings is not None:
            applied_report.write(
                plain_console(),
                done.ceilings,
                others=applied,
                words=command,
                again=again,
                output=written,
            )
        else:
            applied_report.write_problem(plain_console(), done.problem)
    if done.ceilings is not None and done.ended_by_us:
        return 130 if done.is_interrupted else 0
    return launcher.end_as(done.outcome)


def _again(args: argparse.Namespace, command: Sequence[str]) -> str:
    """Return the command that measures once more, with the same options and the most time."""
    words = ["lotus", NAME, "--budget", "5m"]
    for option in ("ceilings", "json", "force"):
        words += [f"--{option}"] * getattr(args, option)
    for option in ("loader", "watch", "output"):
        value = getattr(args, option)
        words += [] if value is None else [f"--{option}", str(value)]
    for option in ("only", "skip"):
        for name in getattr(args, option):
            words += [f"--{option}", name]
    return shlex.join([*words, "--", *command])
