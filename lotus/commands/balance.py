"""`lotus balance`: split the global batch of a traced job among its ranks."""

import argparse
from pathlib import Path

from lotus.commands.common import arguments, options, output
from lotus.common.terminal.progress import progress
from lotus.settings.share_plan import STRATEGIES

NAME = "balance"
HELP = "compute how many samples of a global batch each rank should take"
EPILOG = """\
In a data-parallel job every step takes as long as its slowest rank. RUN, a
trace of the job, shows how long each rank's steps and its input take. The
default strategy, lotus, keeps the global batch and makes the slowest rank as
fast as possible. The other strategies are for comparison: bno is the formula of
BalanceNet Orchestrator, equal gives every rank the same, random draws one.

examples:
  lotus trace -o R -- torchrun --nproc-per-node 4 train.py
  lotus balance R -o balance.json
      each rank's batch now and with the plan, and the predicted step with its
      interval; on a busy machine fewer than half of these intervals held
  lotus run --settings balance.json -- torchrun --nproc-per-node 4 train.py
  lotus balance R --also R2
      R2 is the same job with another batch size: a narrower interval
  lotus balance R --strategy bno
  lotus balance R --most 0=64
      rank 0 can hold no more than 64 samples
  lotus balance R --json | jq .plan.batch_sizes

It writes nothing but the plan of -o.

exit codes: 0 computed (also if nothing is to be gained), 2 the run cannot be
  balanced: one rank, missing ranks, samples that cannot be shared out

see also: lotus trace, lotus run, lotus whatif --ranks, lotus tune
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser, "run directory of a job of several ranks", optional=True)
    add = parser.add_argument
    add(
        "--strategy",
        choices=STRATEGIES,
        default="lotus",
        help="how to split the global batch (default: lotus)",
    )
    options.add_output(
        parser, "write the plan for `lotus run` to this file (default: write none)", "FILE"
    )
    add(
        "--also",
        type=Path,
        action="append",
        default=[],
        metavar="RUN",
        help="a run of the same job with another batch size, which shows what part of a step does "
        "not depend on the batch size (repeatable)",
    )
    options.add_loader_number(parser, "to balance", 4096)
    add(
        "--most",
        type=arguments.rank_limit,
        action="append",
        default=[],
        metavar="RANK=SAMPLES",
        help="largest batch that a rank can hold, in samples (repeatable; default: no limit)",
    )
    add(
        "--seed",
        type=arguments.whole(0),
        default=0,
        metavar="N",
        help="seed of the strategy random (default: 0)",
    )
    add(
        "--link",
        type=arguments.link_latency,
        action="append",
        default=[],
        metavar="I-J=TIME",
        help="latency between two ranks for the strategy bno, such as 0-1=50us (repeatable; "
        "default: 0)",
    )
    add(
        "--base-batch",
        type=arguments.whole(1),
        metavar="B",
        help="baseline batch size for the strategy bno, in samples (default: the mean traced "
        "batch of a rank)",
    )
    options.add_json(parser, "balance-report")


def run(args: argparse.Namespace) -> int:
    from lotus.balance.split import SplitOptions, balance
    from lotus.common.errors import LotusError
    from lotus.reading.run import load
    from lotus.reporters.base import console
    from lotus.reporters.ranks import balance_report
    from lotus.settings import share_plan

    for name, value, strategy in (
        ("--link", args.link, "bno"),
        ("--base-batch", args.base_batch, "bno"),
        ("--seed", args.seed, "random"),
    ):
        if value and args.strategy != strategy:
            raise LotusError(
                f"{name} is for {strategy}, this is {args.strategy}; leave it out, or add "
                f"--strategy {strategy}"
            )
    if args.run_directory is None:
        args.run_directory = options.newest_run(NAME)
    if args.output is not None:
        output.destination(args.output, overwrite=True)
    question = SplitOptions(
        strategy=args.strategy,
        seed=args.seed,
        loader=args.loader,
        most=dict(args.most),
        links=dict(args.link),
        base=args.base_batch,
    )
    with progress("reading"):
        balanced = balance(load(args.run_directory), question, [load(path) for path in args.also])
    if args.output is not None:
        share_plan.write(args.output, balanced.plan())
    if args.json:
        output.print_document(balance_report.document(balanced))
    else:
        balance_report.write(
            console.plain_console(), balanced, run=args.run_directory, written=args.output
        )
    return 0
