"""`lotus balance`: split the global batch of a traced job among its ranks."""

import argparse
import json
import re
import sys
from pathlib import Path

from lotus import arguments
from lotus.balance.plan import STRATEGIES

NAME = "balance"
HELP = "say how many samples of a batch each rank should take"
EPILOG = """\
In a data-parallel job every step takes as long as its slowest rank. RUN tells
what each rank's steps and its input take; lotus, the default strategy, keeps
the global batch and makes the slowest rank as quick as it can be. The other
strategies are there to be compared with it: bno is BalanceNet Orchestrator's
formula, equal the same for all, random any split.

examples:
  lotus trace -o R -- torchrun --nproc-per-node 4 train.py
  lotus balance R -o balance.json
      each rank's batch now and then, and the step it makes, with its interval
  lotus run --settings balance.json -- torchrun --nproc-per-node 4 train.py
  lotus balance R --also R2
      R2 is the same job with another batch size: a narrower interval
  lotus balance R --strategy bno
  lotus balance R --most 0=64
      rank 0 can hold no more than 64 samples
  lotus balance R --json | jq .plan.batch_sizes

It writes nothing but the plan of -o.

exit codes: 0 said (also where nothing is to be gained), 2 the run cannot be
  balanced: one rank, missing ranks, samples that cannot be shared out

see also: lotus trace, lotus run, lotus whatif --ranks, lotus tune
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_directory", type=Path, metavar="RUN", help="run directory of a job")
    add = parser.add_argument
    add("--strategy", choices=STRATEGIES, default="lotus", help="how to split (default: lotus)")
    add("-o", "--output", type=Path, metavar="FILE", help="write the plan for `lotus run`")
    add(
        "--also",
        type=Path,
        action="append",
        default=[],
        metavar="RUN",
        help="the same job with another batch size: tells what of a step is fixed (repeatable)",
    )
    add("--loader", type=arguments.whole(0, 4096), metavar="N", help="this loader, not the largest")
    add(
        "--most",
        type=_most,
        action="append",
        default=[],
        metavar="RANK=SAMPLES",
        help="a rank can hold no more (repeatable)",
    )
    add(
        "--seed",
        type=arguments.whole(0),
        default=0,
        metavar="N",
        help="of the strategy random (default: 0)",
    )
    add(
        "--link",
        type=_link,
        action="append",
        default=[],
        metavar="I-J=TIME",
        help="bno: latency between two ranks, such as 0-1=50us (repeatable)",
    )
    add(
        "--base-batch",
        type=arguments.whole(1),
        metavar="B",
        help="bno: its baseline batch size (a rank's traced batch, on average)",
    )
    add(
        "--json",
        action="store_true",
        help="print a document for programs; fields: lotus schema balance-report",
    )


def run(args: argparse.Namespace) -> int:
    from lotus import files
    from lotus.balance import plan
    from lotus.balance.balancing import Question, balance
    from lotus.errors import LotusError
    from lotus.reporters import balance as reporter
    from lotus.run import load

    for name, given, strategy in (
        ("--link", args.link, "bno"),
        ("--base-batch", args.base_batch, "bno"),
        ("--seed", args.seed, "random"),
    ):
        if given and args.strategy != strategy:
            raise LotusError(
                f"{name} is for {strategy}, this is {args.strategy}; leave it out, or add "
                f"--strategy {strategy}"
            )
    if args.output is not None:
        files.writable(args.output)
    question = Question(
        strategy=args.strategy,
        seed=args.seed,
        loader=args.loader,
        most=dict(args.most),
        links=dict(args.link),
        base=args.base_batch,
    )
    found = balance(load(args.run_directory), question, [load(one) for one in args.also])
    if args.output is not None:
        plan.write(args.output, found.plan())
    if args.json:
        print(json.dumps(reporter.document(found), indent=2, allow_nan=False))
    else:
        reporter.write(found, sys.stdout, args.run_directory, args.output)
    return 0


def _most(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,9})=(\d{1,9})", text, re.ASCII)
    if found is None or not int(found[2]):
        raise ValueError(text)
    return int(found[1]), int(found[2])


def _link(text: str) -> tuple[tuple[int, int], float]:
    found = re.fullmatch(r"(\d{1,9})-(\d{1,9})=(.+)", text, re.ASCII)
    if found is None:
        raise ValueError(text)
    return (int(found[1]), int(found[2])), arguments.nanoseconds(found[3])


_most.__name__, _link.__name__ = "limit (0=64)", "link (0-1=50us)"
