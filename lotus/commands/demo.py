"""`lotus demo`: a small training run on generated data, traced and explained."""

import argparse
import importlib.util
import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

from lotus.commands.common import arguments, options
from lotus.common.errors import LotusError
from lotus.common.terminal.stderr import say
from lotus.format.manifest import TraceSettings
from lotus.recording import launcher, traced_command
from lotus.reporters.run import end_of_trace
from lotus.reporters.run.early_import import EarlyImport
from lotus.workloads.catalogue import DEFAULT, FOLDER, WORKLOADS, Workload

NAME = "demo"
HELP = "trace the training of a small model on generated data, and print the report"


def _line(workload: Workload) -> str:
    """Return a workload's line of the help, at most 80 columns wide."""
    text = f"{workload.name:21} {workload.about}"
    return textwrap.fill(text, 80, initial_indent="  ", subsequent_indent=" " * 24)


EPILOG = f"""\
workloads:
{chr(10).join(_line(workload) for workload in WORKLOADS.values())}

examples:
  lotus demo
      the training's output, then the whole report of its run
  lotus demo --list
      each workload: what it is, how much data, which script
  lotus demo --workload segmentation
  lotus demo --workload segmentation --scale 20 --workers 8
  lotus demo --samples 1000 --workers 4 -o demo-run

Needs torch and torchvision: pip install torch torchvision pillow. Each workload
is a plain training script that does not use lotus: run it, or change it, like
your own.

writes: a run directory, as lotus trace; the data, once, in ~/.cache/lotus

exit codes: that of the training, 0 if it went well; 2 torch is not installed

see also: lotus trace, lotus report
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workload",
        choices=WORKLOADS,
        default=DEFAULT,
        metavar="NAME",
        help=f"the workload, see below (default: {DEFAULT})",
    )
    parser.add_argument("--list", action="store_true", help="list the workloads and run nothing")
    parser.add_argument(
        *("--samples", "--images"),
        type=arguments.whole(1),
        metavar="N",
        help="how many samples of data to generate (default: as --list shows)",
    )
    parser.add_argument(
        "--scale",
        type=arguments.whole(1),
        default=1,
        metavar="N",
        help="generate N times as much data (default: 1)",
    )
    parser.add_argument(
        "--workers",
        type=arguments.whole(0),
        default=2,
        metavar="N",
        help="number of worker processes (default: 2)",
    )
    parser.add_argument(
        "--batch-size",
        type=arguments.whole(1),
        metavar="N",
        help="samples in a batch (default: as --list shows)",
    )
    options.add_output(parser, "run directory to make (default: lotus-runs/SCRIPT-TIME)")
    options.add_force(parser)


def run(args: argparse.Namespace) -> int:
    if args.list:
        print(listing(), flush=True)
        return 0
    for module in ("torch", "torchvision", "PIL"):
        if importlib.util.find_spec(module) is None:
            raise LotusError(
                f"the demo needs {module}, which is not installed beside lotus; "
                "pip install torch torchvision pillow"
            )
    workload = WORKLOADS[args.workload]
    count = (args.samples or workload.count) * args.scale
    data = data_directory(workload, count)
    make = [sys.executable, str(FOLDER / "making.py"), workload.maker, str(data)]
    # In a process of its own: numpy's threads would take the signals that lotus waits for.
    if subprocess.run([*make, "--count", str(count)]).returncode:
        raise LotusError(f"the {workload.noun} could not be made in {data}; see above")
    # On few cores the model's threads would compete with the workers.
    threads = max(1, len(os.sched_getaffinity(0)) - args.workers)
    command = [sys.executable, str(workload.script), "--data", str(data)]
    command += ["--workers", str(args.workers)]
    command += ["--batch-size", str(args.batch_size or workload.batch_size)]
    command += ["--threads", str(threads)]
    say(f"lotus trace -- {shlex.join(command)}")
    directory, outcome = traced_command.trace(
        command, args.output, TraceSettings(), args.force, progress=EarlyImport
    )
    # The text of the report is printed here, so the next command makes the page.
    page = f"lotus report {shlex.quote(str(directory))} --html report.html"
    print(end_of_trace.text(directory, outcome, page, full=True))
    print(f"data set: {data}\nrun:      {directory.absolute()}", flush=True)
    return launcher.end_as(outcome)


def listing() -> str:
    """Return three lines per workload: its name, what it is, its amount of data and its script."""
    return "\n".join(
        f"{workload.name}{' (default)' * (workload.name == DEFAULT)}\n"
        f"  {workload.about}\n"
        f"  {workload.count:,} {workload.noun} ({workload.megabytes} MB) "
        f"in batches of {workload.batch_size}: {workload.script}"
        for workload in WORKLOADS.values()
    )


def data_directory(workload: Workload, count: int) -> Path:
    """Return the directory of a workload's data set with this number of samples."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    return base / "lotus" / workload.folder(count)
