"""`lotus top`: what a run does now or did last, or what an untraced process does."""

import argparse
import sys
import tempfile
from pathlib import Path

from lotus.commands.common import arguments, options

NAME = "top"
HELP = "show what a run is doing, once a second, or what a killed run did last"
EPILOG = """\
examples:
  lotus top lotus-runs/train-20260101-120000
      throughput, waits, what each worker does; q or Ctrl-C ends lotus top,
      the run goes on
  lotus top --once RUN
      the same as text, once
  lotus top --stacks RUN
      with the Python stack of each process
  lotus top --json RUN | jq -r .verdict.kind
      moving, hung, slow, step, dead, ...
  lotus top 4711
      a running program that was not traced, by its PID: what lotus attach
      sees of it, every five seconds

It reads shared memory, files and /proc from outside and does not slow the
program. --stacks runs py-spy, which reads the processes' memory without
stopping them, so a stack may be inconsistent. It writes nothing.

exit codes: 0 shown, 2 there is no run that can be read

see also: lotus trace --live, lotus report
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser, "run directory, or the PID of a running process", optional=True)
    parser.add_argument(
        "--once",
        action="store_true",
        help="print the state once and exit (default: refresh it on a terminal until q)",
    )
    options.add_json(parser, "top")
    parser.add_argument(
        "--interval",
        type=arguments.real(0.1, 3600),
        default=1.0,
        metavar="S",
        help="seconds between two refreshes (default: 1)",
    )
    parser.add_argument(
        "--stacks",
        action="store_true",
        help="also show Python stacks, which py-spy reads from a few processes at each refresh",
    )


def run(args: argparse.Namespace) -> int:
    from lotus.reporters.live import top_screen

    pid = _process(args.run_directory)
    if pid is not None:
        return _look_at(pid, args)
    if args.run_directory is None:
        args.run_directory = options.newest_run(NAME)
    if args.once or args.json or not sys.stdout.isatty():
        top_screen.once(args.run_directory, args.json, args.stacks)
        return 0
    top_screen.follow(args.run_directory, args.interval, args.stacks)
    return 0


_WINDOW_S = 5.0  # in which a process is sampled, at least


def _process(named: Path | None) -> int | None:
    """Return the pid, if one was given instead of a run directory."""
    number = "" if named is None or named.exists() else str(named)
    return int(number) if number.isdecimal() else None


def _look_at(pid: int, args: argparse.Namespace) -> int:
    """Show what samples reveal of a process, once or until it ends."""
    from lotus.analysis.attached.verdict.sampled_verdict import summarise, with_verdict
    from lotus.attach import observation
    from lotus.attach.files import attached_run
    from lotus.commands.common import output
    from lotus.common.errors import LotusError
    from lotus.reporters.base.console import plain_console
    from lotus.reporters.run.attached import attached_report

    if args.stacks:
        raise LotusError(f"the stacks of a process are shown by: py-spy dump --pid {pid}")
    once = args.once or args.json or not sys.stdout.isatty()
    output.replace_unprintable()
    shown = False
    while True:
        # Nothing is kept; use `lotus attach` for that.
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder, "run")
            try:
                observation.attach(pid, max(args.interval, _WINDOW_S), directory)
                summary = with_verdict(summarise(attached_run.load(directory), str(pid)))
            except LotusError:
                if shown and not Path("/proc", str(pid)).exists():
                    return 0  # it ended too early for another screen
                raise
        if args.json:
            output.print_document(attached_report.document(summary))
        else:
            console = plain_console()
            if not once:
                console.clear()
            attached_report.write(console, summary)
        shown = True
        # It ended, or Ctrl-C was pressed; or it ended between two looks.
        over = summary.evidence.facts["state"] != "watched" or not Path("/proc", str(pid)).exists()
        if once or over:
            return 0
