"""`lotus balance`: split the global batch of a traced job among its ranks."""

import argparse
import json
import re
import sys
from pathlib import Path

from lotus import arguments
from lotus.balance.plan import STRATEGIES
from lotus.commands.whatif import nanoseconds

NAME = "balance"
HELP = "say how many samples of a batch each rank should take"
EPILOG = """\
examples:
  lotus trace -o R -- torchrun --nproc-per-node 4 train.py
  lotus balance R -o balance.json
  lotus run --settings balance.json -- torchrun --nproc-per-node 4 train.py
  lotus balance R --also R2               R2: the same job with another batch size
  lotus balance R --strategy bno          BalanceNet Orchestrator's formula
  lotus balance R --most 0=64             rank 0 cannot hold more than 64 samples

lotus keeps the global batch and makes the slowest rank as quick as it can be, by what each rank's
steps and input were traced to take. The other strategies are there to be compared with.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_directory", type=Path, metavar="RUN", help="of a job of many ranks")
    add = parser.add_argument
    add("--strategy", choices=STRATEGIES, default="lotus", help="(lotus)")
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
    add("--seed", type=arguments.whole(0), default=0, metavar="N", help="of random (0)")
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
    add("--json", action="store_true", help="print a document for programs")


def run(args: argparse.Namespace) -> int:
    from lotus import files
    from lotus.balance import plan
    from lotus.balance.balancing import Question, balance
    from lotus.reporters import balance as reporter
    from lotus.run import load

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
    return (int(found[1]), int(found[2])), nanoseconds(found[3])


_most.__name__, _link.__name__ = "limit (0=64)", "link (0-1=50us)"
