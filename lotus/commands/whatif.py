"""`lotus whatif`: replay a recorded run with other settings, on another machine."""

import argparse
import json
import math
import re
import sys
from pathlib import Path

from lotus import arguments
from lotus.errors import LotusError

NAME = "whatif"
HELP = "replay a recorded run with other loader settings, cores, storage, parts or ranks"
EPILOG = """\
A simulation of the DataLoader replays the recorded costs of the batches. The
run itself is simulated as well and stands beside what was measured: so far off
may the other answers be. With --ranks whole ranks are simulated, which wait for
each other in every step.

examples:
  lotus trace --level op+cpu -o R -- python train.py
  lotus whatif R --workers 16 --prefetch 4
      rates, waits and memory: measured, simulated, and then
  lotus whatif R --workers 16 --cores 64 --speedup ToTensor=2
  lotus whatif R --workers 32 --latency 20ms
      as if every sample came from a remote store
  lotus whatif R --also R1 --workers 4
      R1 is the same with one worker: tells how cores slow each other down
  lotus whatif R --ranks 64
      step, straggler's share and efficiency of a job of 4 ranks with 64
  lotus whatif R --ranks 64 --gradients 100MB --link-bandwidth 10GB/s
  lotus whatif R --ranks 4 --plan balance.json
      with the batches that lotus balance gave each rank

It writes nothing.

exit codes: 0 answered, 2 the run cannot be replayed, or not as asked

see also: lotus trace, lotus tune, lotus balance
"""
# What means nothing where whole ranks are simulated.
_OF_ONE_RANK = (
    "pin_memory", "persistent_workers", "in_order", "cores", "speedup", "latency", "bandwidth",
    "sample_bytes", "epochs", "batches", "also",
)  # fmt: skip
_OF_CLUSTERS = (
    "plan", "stragglers", "straggler_chance", "slower", "collective", "gradients", "link_latency",
    "link_bandwidth", "steps", "seed",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lotus whatif [options] RUN"
    parser.add_argument(
        "run_directory", type=Path, metavar="RUN", help="run directory, as lotus trace made it"
    )
    add = parser.add_argument
    add(
        "--workers",
        type=arguments.whole(0, 4096),
        metavar="N",
        help="num_workers; 0: the main process makes the batches (default: as recorded)",
    )
    add(
        "--prefetch",
        type=arguments.whole(1),
        metavar="N",
        help="prefetch_factor, batches each worker makes ahead (default: as recorded)",
    )
    on = argparse.BooleanOptionalAction
    add("--pin-memory", action=on, default=None, help="pin_memory (default: as recorded)")
    add(
        "--persistent-workers",
        action=on,
        default=None,
        help="persistent_workers (default: as recorded)",
    )
    add("--in-order", action=on, default=None, help="in_order (default: as recorded)")
    add(
        "--cores",
        type=_positive,
        metavar="N",
        help="cores of a machine with nothing else on it (default: that of the run)",
    )
    add(
        "--speedup",
        type=_speedup,
        action="append",
        default=[],
        metavar="PART=TIMES",
        help="an operation, `collate`, `data set` or `step` so many times as fast (repeatable)",
    )
    add(
        "--latency",
        type=arguments.nanoseconds,
        metavar="TIME",
        help="each sample waits so long, as 20ms (default: as recorded)",
    )
    add(
        "--bandwidth",
        type=_rate,
        metavar="RATE",
        help="of the storage, shared, as 200MB/s (default: no limit)",
    )
    add(
        "--sample-bytes",
        type=_positive,
        metavar="N",
        help="bytes read for each sample (default: as recorded)",
    )
    add(
        "--step-cores",
        type=arguments.real(0),
        default=1.0,
        metavar="N",
        help="cores that a step keeps busy, 0 where it waits for an accelerator (default: 1)",
    )
    add(
        "--batches",
        type=arguments.whole(1),
        metavar="N",
        help="batches of an epoch (default: as recorded)",
    )
    add("--epochs", type=arguments.whole(1), metavar="N", help="epochs (default: as recorded)")
    add(
        "--also",
        type=Path,
        metavar="RUN",
        help="a run of the same program with other workers: tells what busy cores cost each other",
    )
    add(
        "--loader",
        type=arguments.whole(0, 4096),
        metavar="N",
        help="this loader (default: the one of most samples)",
    )
    add(
        "--json",
        action="store_true",
        help="print a document for programs; fields: lotus schema whatif, with "
        "--ranks whatif-ranks",
    )
    add = parser.add_argument_group("jobs of many ranks").add_argument
    add(
        "--ranks",
        type=arguments.whole(1, 4096),
        metavar="N",
        help="simulate a job of so many (default: one rank's loader)",
    )
    add(
        "--plan",
        type=Path,
        metavar="FILE",
        help="batch sizes, as lotus balance -o FILE wrote them (default: as recorded)",
    )
    add(
        "--stragglers",
        type=arguments.whole(0),
        metavar="N",
        help="ranks that are slower in every step (default: 0)",
    )
    add(
        "--straggler-chance",
        type=arguments.real(0, 1),
        metavar="P",
        help="probability that a rank is slower in a step (default: 0)",
    )
    add(
        "--slower",
        type=_positive,
        metavar="TIMES",
        help="how many times as long stragglers take (default: 2)",
    )
    add("--collective", choices=("ring", "tree"), help="how gradients are averaged (default: ring)")
    add(
        "--gradients",
        type=_rate,
        metavar="SIZE",
        help="size of the gradients that are averaged, as 100MB (default: as traced)",
    )
    add(
        "--link-latency",
        type=arguments.nanoseconds,
        metavar="TIME",
        help="latency between ranks, as 20us (default: 0)",
    )
    add(
        "--link-bandwidth",
        type=_rate,
        metavar="RATE",
        help="bandwidth between ranks, as 10GB/s (default: as traced)",
    )
    add(
        "--steps",
        type=arguments.whole(1, 100_000),
        metavar="N",
        help="steps that are simulated (default: 1000)",
    )
    add("--seed", type=arguments.whole(0), metavar="N", help="seed of what is drawn (default: 0)")


def run(args: argparse.Namespace) -> int:
    others = _OF_CLUSTERS if args.ranks is None else _OF_ONE_RANK
    given = [name for name in others if getattr(args, name) not in (None, [])]
    if given:
        option = "--" + given[0].replace("_", "-")
        needs = "is for --ranks N only" if args.ranks is None else "means nothing with --ranks"
        raise LotusError(f"{option} {needs}")
    return _of_one_rank(args) if args.ranks is None else _of_ranks(args)


def _of_ranks(args: argparse.Namespace) -> int:
    from lotus.balance import plan
    from lotus.balance.clusters import STEPS, Question, answer
    from lotus.balance.measured import measure
    from lotus.reporters import cluster as reporter
    from lotus.run import load
    from lotus.tune.cluster import Stragglers

    sizes = None if args.plan is None else plan.read(args.plan).batch_sizes
    slower = 2.0 if args.slower is None else args.slower
    if args.slower is not None and not (args.stragglers or args.straggler_chance):
        raise LotusError("--slower needs --stragglers N or --straggler-chance P")
    question = Question(
        ranks=args.ranks,
        workers=args.workers,
        prefetch=args.prefetch,
        batch_sizes=sizes,
        stragglers=Stragglers(args.stragglers or 0, args.straggler_chance or 0.0, slower),
        collective=args.collective or "ring",
        gradients=args.gradients,
        link_latency_ns=args.link_latency,
        link_bandwidth=args.link_bandwidth,
        steps=args.steps or STEPS,
        seed=args.seed or 0,
    )
    answered = answer(measure(load(args.run_directory), args.loader), question)
    if args.json:
        print(json.dumps(reporter.document(answered), indent=2, allow_nan=False))
    else:
        reporter.write(answered, sys.stdout)
    return 0


def _of_one_rank(args: argparse.Namespace) -> int:
    from lotus.reporters import whatif as reporter
    from lotus.run import load
    from lotus.tune.profile import contention, profile
    from lotus.tune.whatif import Question, answer

    made = profile(load(args.run_directory), args.loader, args.step_cores)
    slower = 0.0
    if args.also is not None:
        slower = contention(made, profile(load(args.also), args.loader, args.step_cores))
    question = Question(
        num_workers=args.workers,
        prefetch_factor=args.prefetch,
        pin_memory=args.pin_memory,
        persistent_workers=args.persistent_workers,
        in_order=args.in_order,
        cores=args.cores,
        speedups=dict(args.speedup),
        latency_ns=args.latency,
        bandwidth=args.bandwidth,
        sample_bytes=args.sample_bytes,
        epochs=args.epochs,
        batches=args.batches,
        contention=slower,
    )
    answered = answer(made, question)
    if args.json:
        print(json.dumps(reporter.document(answered), indent=2, allow_nan=False))
    else:
        reporter.write(answered, sys.stdout)
    return 0


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value


def _speedup(text: str) -> tuple[str, float]:
    name, equals, times = text.rpartition("=")
    if not equals or not name:
        raise ValueError(text)
    return name, _positive(times)


_SIZES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}


def _rate(text: str) -> float:
    found = re.fullmatch(r"([0-9.]+) ?(|k|M|G|Ki|Mi|Gi)B(?:/s)?", text)
    if found is None:
        raise ValueError(text)
    return _positive(found[1]) * _SIZES[found[2]]


for _kind, _name in (
    (_positive, "number"),
    (_speedup, "PART=TIMES"),
    (arguments.nanoseconds, "time (20ms)"),
    (_rate, "rate (200MB/s)"),
):
    _kind.__name__ = _name
