"""`lotus demo`: a small training run on made pictures, traced and explained."""

import argparse
import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path

import lotus.workloads
from lotus import closing, launch
from lotus.errors import LotusError
from lotus.manifest import Settings
from lotus.streams import say

NAME = "demo"
HELP = "train a small ResNet on a made data set, traced, and print the report"
EPILOG = """\
examples:
  lotus demo
  lotus demo --images 1000 --workers 4 -o demo-run

Needs torch and torchvision: pip install 'lotus-profiler[demo]'. The pictures are made once and
kept in the user's cache directory.
"""

_WORKLOADS = Path(lotus.workloads.__path__[0])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--images", type=_positive, default=512, metavar="N", help="default: 512")
    parser.add_argument("--workers", type=_count, default=2, metavar="N", help="default: 2")
    parser.add_argument("--batch-size", type=_positive, default=32, metavar="N", help="default: 32")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="run directory (lotus-runs/...)"
    )
    parser.add_argument("-f", "--force", action="store_true", help="overwrite an earlier run")


def run(args: argparse.Namespace) -> int:
    for module in ("torch", "torchvision", "PIL"):
        if importlib.util.find_spec(module) is None:
            raise LotusError(
                f"the demo needs {module}, which is not installed beside lotus; "
                "pip install 'lotus-profiler[demo]'"
            )
    data = data_directory(args.images)
    make = [sys.executable, str(_WORKLOADS / "jpegs.py"), str(data), "--images", str(args.images)]
    # In a process of its own: numpy's threads would take the signals that lotus waits for.
    if subprocess.run(make).returncode:
        raise LotusError(f"the pictures could not be made in {data}; see above")
    # On few cores the model's threads and the workers would stand in each other's way.
    threads = max(1, len(os.sched_getaffinity(0)) - args.workers)
    command = [sys.executable, str(_WORKLOADS / "image_classification.py"), "--data", str(data)]
    command += ["--workers", str(args.workers), "--batch-size", str(args.batch_size)]
    command += ["--threads", str(threads)]
    say(f"lotus trace -- {shlex.join(command)}")
    directory, outcome = launch.trace(command, args.output, Settings(), args.force)
    print(closing.text(directory, outcome, f"lotus report {shlex.quote(str(directory))}", True))
    print(f"data set: {data}\nrun:      {directory.absolute()}", flush=True)
    return launch.end_as(outcome)


def data_directory(images: int) -> Path:
    """Return where the demo's data set of so many pictures is kept."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    return base / "lotus" / f"jpegs-1-{images}"


def _positive(text: str) -> int:
    if _count(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above zero")
    return int(text)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)
