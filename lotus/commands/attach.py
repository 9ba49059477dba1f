"""`lotus attach`: a verdict on a program that runs already."""

import argparse

from lotus.commands.common import arguments, options, output

NAME = "attach"
HELP = "sample a running program from outside: a verdict without a restart"
EPILOG = """\
Nothing is installed in the program and no code runs in it: py-spy reads its
Python stacks, and /proc tells what its threads wait for. PID is the training's
process; for a worker, lotus takes its parent, and for torchrun all ranks.

examples:
  lotus attach 4711
      the verdict after 20 s, marked as sampled, with its next step
  lotus attach
      the same for the only process with torch
  lotus attach 4711 --seconds 60
      with narrower intervals
  lotus attach 4711 --perf
      and C and C++ functions, and counters of the threads
  lotus attach 4711 --json | jq .verdict.causes[0]
      the same for programs

It writes a run directory, by default lotus-runs/SCRIPT-TIME, which lotus
report shows again.

exit codes: 0 shown, 2 the process cannot be watched, or too little of it was
seen for a verdict

see also: lotus trace, lotus top, lotus report
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "pid", type=arguments.pid, nargs="?", metavar="PID",
        help="process to look at (default: the only one with torch)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds",
        type=arguments.real(1, 600),
        default=20.0,
        metavar="S",
        help="how long to look (default: 20)",
    )
    parser.add_argument(
        "--perf",
        action="store_true",
        help="also show C and C++ functions of each operation, and counters of the threads",
    )
    options.add_output(parser, "run directory (default: lotus-runs/SCRIPT-TIME)")
    options.add_force(parser)
    options.add_json(parser, "attached")


def run(args: argparse.Namespace) -> int:
    from lotus.attach import observation
    from lotus.common.terminal.progress import progress
    from lotus.common.terminal.stderr import say

    with progress("watching") as advance:
        directory = observation.attach(
            args.pid, args.seconds, args.output, args.force, advance, args.perf
        )
    # pandas and rich are slow to import: not before the program was watched.
    from lotus.analysis.attached.verdict.sampled_verdict import summarise, with_verdict
    from lotus.attach.files import attached_run
    from lotus.reporters.base.console import plain_console
    from lotus.reporters.run.attached import attached_report

    summary = with_verdict(summarise(attached_run.load(directory), str(directory)))
    if args.json:
        output.print_document(attached_report.document(summary))
        return 0
    output.replace_unprintable()
    attached_report.write(plain_console(), summary, in_full=False)
    say(f"next: {attached_report.next_command(summary, str(directory))}")
    return 0
