"""`lotus plan`: whether caching samples pays, which part of them, and where."""

import argparse
import signal
from pathlib import Path

from lotus.commands.common import arguments, options
from lotus.commands.common import output as outputs

NAME = "plan"
HELP = "say whether caching samples pays, and write the settings for it"
DEFAULT = Path("plan.json")
EPILOG = """\
examples:
  lotus plan -- python train.py
      for each cut between two operations: whether its value is the same each
      time, how long it takes to make, its size, also compressed; then what to
      cache, and the gain
  lotus plan --ram 20GB --disk 100GB --folder /data/cache -- python train.py
  lotus plan --known -- python train.py
      what the operations take by earlier plans; nothing is measured
  lotus run --settings plan.json -- python train.py
      caches samples as planned: batches stay equal bit for bit

The program starts as usual, up to its first batch. Then samples from its whole
data set are made several times in its main process, with other random numbers,
and cached and read again in memory. After that it is ended at once: none of its
`finally` blocks and atexit functions runs.

Where a cut is worth a cache, the program is started once more and trains, for
about --budget. Blocks of its own batches and steps are timed in turn: without
the cache, while samples are written to it, and with these samples from it. So
the gain of a sample and the cost of writing are measured; whole epochs are
computed from them. What all --epochs save together decides whether it pays,
with the 95 % interval for a training like one of these rounds: it does, it does
not, or it is not known. Then it is ended at once again.

Ctrl-C ends the timing; rounds that were complete by then count. What a plan
that was killed leaves in memory, `lotus cache ls` lists, and the next plan
removes.

What operations take is recorded, by their code, parameters and input, for later
plans of any program: these print what they predict beside what they measure.

writes: the file of -o, if caching samples pays, or if that is not known;
  ~/.cache/lotus/costs, the times of operations

exit codes: 0 it was measured, also if caching does not pay, or predicted; 1
  samples of this loader cannot be cached, or nothing is known by --known; 2
  the program could not be measured; 130 Ctrl-C, in which case a file is only
  written if caching pays

see also: lotus advise, lotus run, lotus tune, lotus schema plan
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--ram",
        type=arguments.size_or_zero,
        metavar="SIZE",
        help="memory for samples, such as 20GB, once for all workers; 0: none (default: half of "
        "what is available and the program does not need)",
    )
    add(
        "--disk",
        type=arguments.size_or_zero,
        metavar="SIZE",
        help="disk space for samples, such as 100GB; 0: none (default: half of what is free)",
    )
    add(
        "--folder",
        type=Path,
        metavar="DIR",
        help="where on disk samples are cached (default: ~/.cache/lotus/samples)",
    )
    add(
        "--epochs",
        type=arguments.whole(1),
        default=10,
        metavar="N",
        help="how many epochs there are to come; the first one writes (default: 10)",
    )
    options.add_loader(parser, "measure")
    add(
        "--samples",
        type=arguments.whole(2, 10_000),
        default=24,
        metavar="N",
        help="how many samples to measure, for at most a minute (default: 24)",
    )
    add(
        "--budget",
        type=arguments.seconds,
        default=60.0,
        metavar="TIME",
        help="time for all blocks of training together, up to twice as long if too few fit; if "
        "none do, it says what would be enough; 0s: they are not timed (default: 60s)",
    )
    add(
        "--known",
        action="store_true",
        help="measure nothing: predict the time of each operation from what earlier plans have "
        "measured on this machine, of this or other programs",
    )
    options.add_output(parser, f"file of settings to write (default: {DEFAULT})", "FILE")
    options.add_force(parser, "overwrite an earlier file of settings")
    options.add_json(parser, "plan")
    options.add_command(parser, NAME)


def run(args: argparse.Namespace) -> int:
    from lotus.advise.caches import planned_cache
    from lotus.common.terminal.stderr import say
    from lotus.reporters.advise import plan_report
    from lotus.reporters.base.console import plain_console
    from lotus.settings import tuned_file

    command = options.required_command(args, NAME)
    if args.known:
        say("lotus: the program runs to its first batch; nothing is measured")
        known = planned_cache.predict(command, args.loader)
        if args.json:
            outputs.print_document(plan_report.document(known))
        else:
            plan_report.write(plain_console(), known, words=command, output=None)
        return 0 if known.costs is not None and known.costs.with_prediction else 1
    output = args.output or DEFAULT
    outputs.destination(output, overwrite=args.force)
    say("lotus: the program runs to its first batch; then its samples are measured")
    planning = planned_cache.attempt(
        command,
        planned_cache.CacheLimits(args.ram, args.disk, args.folder),
        loader=args.loader,
        samples=args.samples,
        epochs=args.epochs,
        budget_s=args.budget,
    )
    tuned = planned_cache.settings(planning, command)
    if tuned is not None:
        tuned_file.write(output, tuned)
    written = None if tuned is None else output
    if args.json:
        outputs.print_document(plan_report.document(planning, output=written))
    else:
        plan_report.write(plain_console(), planning, words=command, output=written)
    if planning.interrupted:
        return 128 + signal.SIGINT
    return 0 if planning.data.refused is None else 1
