"""`lotus whatif`: replay a recorded run with other settings, on another machine."""

import argparse
from pathlib import Path
from typing import Any

from lotus.commands.common import arguments, options, output
from lotus.common.errors import LotusError
from lotus.common.terminal.progress import progress

NAME = "whatif"
HELP = "simulate a recorded run with other loader settings, cores, storage or ranks"
EPILOG = """\
A simulation of the DataLoader replays the recorded costs of the batches. The
run itself is simulated too and shown beside the measured values. If these
differ by more than 15 %, no answer is given. Even if they agree, an answer may
be off by up to 29 %. With --ranks whole ranks are simulated, which wait for
each other in every step.

examples:
  lotus trace --level op+cpu -o R -- python train.py
  lotus whatif R --workers 16 --prefetch 4
      rates, waits and memory: measured, simulated, and with these settings
  lotus whatif R --workers 16 --cores 64 --speedup ToTensor=2
  lotus whatif R --workers 32 --latency 20ms
      as if every sample came from a remote store
  lotus whatif R --also R1 --workers 4
      R1 is the same with one worker: shows how cores slow each other down
  lotus whatif R --ranks 64
      step, share of stragglers and efficiency of the traced job on 64 ranks
  lotus whatif R --ranks 64 --gradients 100MB --link-bandwidth 10GB/s
  lotus whatif R --ranks 4 --plan balance.json
      with the batches that lotus balance gave each rank

It writes nothing.

exit codes: 0 answered, 2 the run cannot be replayed, or not with these options

see also: lotus trace, lotus tune, lotus balance
"""
# Options without a meaning if whole ranks are simulated.
_ONE_RANK_OPTIONS = (
    "pin_memory", "persistent_workers", "in_order", "cores", "speedup", "latency", "bandwidth",
    "sample_bytes", "epochs", "batches", "also",
)  # fmt: skip
_JOB_OPTIONS = (
    "plan", "stragglers", "straggler_chance", "slower", "collective", "gradients", "link_latency",
    "link_bandwidth", "steps", "seed",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lotus whatif [options] [RUN]"
    options.add_run(parser, optional=True)
    _add_setting(parser)
    _add_machine(parser)
    add = parser.add_argument
    add(
        "--batches",
        type=arguments.whole(1),
        metavar="N",
        help="number of batches in an epoch (default: as recorded)",
    )
    add(
        "--epochs",
        type=arguments.whole(1),
        metavar="N",
        help="number of epochs (default: as recorded)",
    )
    add(
        "--also",
        type=Path,
        metavar="RUN",
        help="a run of the same program with another number of workers, which shows how busy cores "
        "slow each other down (default: they do not)",
    )
    options.add_loader_number(parser, "to replay", 4096)
    options.add_json(parser, "whatif, with --ranks whatif-ranks")
    _add_job(parser)


def _add_setting(parser: argparse.ArgumentParser) -> None:
    """Add the options that are parameters of a DataLoader."""
    add, on = parser.add_argument, argparse.BooleanOptionalAction
    add(
        "--workers",
        type=arguments.whole(0, 4096),
        metavar="N",
        help="num_workers; with 0 the main process makes the batches (default: as recorded)",
    )
    add(
        "--prefetch",
        type=arguments.whole(1),
        metavar="N",
        help="prefetch_factor, the batches that each worker makes ahead (default: as recorded)",
    )
    add("--pin-memory", action=on, default=None, help="pin_memory (default: as recorded)")
    add(
        "--persistent",
        dest="persistent_workers",
        action=on,
        default=None,
        help="persistent_workers (default: as recorded)",
    )
    add(  # as earlier versions had it
        "--persistent-workers", action=on, default=None, help=argparse.SUPPRESS
    )
    add("--in-order", action=on, default=None, help="in_order (default: as recorded)")


def _add_machine(parser: argparse.ArgumentParser) -> None:
    """Add the options that change the cores, the storage or a part of the program."""
    add = parser.add_argument
    add(
        "--cores",
        type=arguments.positive,
        metavar="N",
        help="cores of a machine that runs nothing else (default: the machine of the run)",
    )
    add(
        "--speedup",
        type=arguments.speedup,
        action="append",
        default=[],
        metavar="PART=TIMES",
        help="make a part this many times as fast: an operation, `collate`, `data set` or `step` "
        "(repeatable)",
    )
    add(
        "--latency",
        type=arguments.nanoseconds,
        metavar="TIME",
        help="time that each sample waits for storage, such as 20ms (default: as recorded)",
    )
    add(
        "--bandwidth",
        type=arguments.rate,
        metavar="RATE",
        help="bandwidth of the storage, shared by all workers, such as 200MB/s (default: no limit)",
    )
    add(
        "--sample-bytes",
        type=arguments.positive,
        metavar="N",
        help="bytes read for each sample (default: as recorded)",
    )
    add(
        "--step-cores",
        type=arguments.real(0),
        default=1.0,
        metavar="N",
        help="cores that a training step keeps busy, 0 if it waits for an accelerator (default: 1)",
    )


def _add_job(parser: argparse.ArgumentParser) -> None:
    """Add the options that simulate whole ranks, which wait for each other."""
    add = parser.add_argument_group("jobs of many ranks").add_argument
    add(
        "--ranks",
        type=arguments.whole(1, 4096),
        metavar="N",
        help="simulate a job of this many ranks (default: the loader of one rank)",
    )
    add(
        "--plan",
        type=Path,
        metavar="FILE",
        help="batch sizes of ranks, as lotus balance -o FILE wrote them (default: as recorded)",
    )
    add(
        "--stragglers",
        type=arguments.whole(0),
        metavar="N",
        help="how many ranks are slower in every step (default: 0)",
    )
    add(
        "--straggler-chance",
        type=arguments.probability,
        metavar="P",
        help="probability, from 0 to 1, that a rank is slower in a step (default: 0)",
    )
    add(
        "--slower",
        type=arguments.positive,
        metavar="TIMES",
        help="how many times as long a slower rank takes (default: 2)",
    )
    add(
        "--collective",
        choices=("ring", "tree"),
        help="algorithm that averages gradients (default: ring)",
    )
    add(
        "--gradients",
        type=arguments.size,
        metavar="SIZE",
        help="size of the gradients that are averaged, such as 100MB (default: as traced)",
    )
    add(
        "--link-latency",
        type=arguments.nanoseconds,
        metavar="TIME",
        help="latency between two ranks, such as 20us (default: 0)",
    )
    add(
        "--link-bandwidth",
        type=arguments.rate,
        metavar="RATE",
        help="bandwidth between two ranks, such as 10GB/s (default: as traced)",
    )
    add(
        "--steps",
        type=arguments.whole(1, 100_000),
        metavar="N",
        help="how many steps to simulate (default: 1000)",
    )
    add("--seed", type=arguments.whole(0), metavar="N", help="seed of random choices (default: 0)")


def run(args: argparse.Namespace) -> int:
    other_options = _JOB_OPTIONS if args.ranks is None else _ONE_RANK_OPTIONS
    used = [name for name in other_options if getattr(args, name) not in (None, [])]
    if used:
        option = "--" + used[0].replace("_", "-")
        needs = "is for --ranks N only" if args.ranks is None else "means nothing with --ranks"
        raise LotusError(f"{option} {needs}")
    if args.run_directory is None:
        args.run_directory = options.newest_run(NAME)
    return _replay_loader(args) if args.ranks is None else _simulate_job(args)


def _simulate_job(args: argparse.Namespace) -> int:
    from lotus.balance.job_whatif import STEPS, JobChange, answer_of_run, stragglers
    from lotus.reporters.ranks import job_report

    question = JobChange(
        ranks=args.ranks,
        workers=args.workers,
        prefetch=args.prefetch,
        stragglers=stragglers(args.stragglers, args.straggler_chance, args.slower),
        collective=args.collective or "ring",
        gradients=None if args.gradients is None else float(args.gradients),
        link_latency_ns=args.link_latency,
        link_bandwidth=args.link_bandwidth,
        steps=args.steps or STEPS,
        seed=args.seed or 0,
    )
    with progress("reading"):
        answered = answer_of_run(args.run_directory, question, args.loader, args.plan)
    return _print(args, answered, job_report)


def _replay_loader(args: argparse.Namespace) -> int:
    from lotus.reporters.tune import whatif_report
    from lotus.tune.simulation.what_if import WhatIfQuestion, answer_of_run

    question = WhatIfQuestion(
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
    )
    with progress("reading"):
        answered = answer_of_run(
            args.run_directory, question, args.loader, args.step_cores, args.also
        )
    return _print(args, answered, whatif_report)


def _print(args: argparse.Namespace, answered: Any, report: Any) -> int:
    from lotus.reporters.base.console import plain_console

    if args.json:
        output.print_document(report.document(answered))
    else:
        report.write(plain_console(), answered)
    return 0
