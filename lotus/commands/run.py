"""`lotus run`: run a command with the settings of a tuned.json, the shares of a balance.json."""

import argparse
import re
from pathlib import Path

from lotus import arguments, launch, settings
from lotus.balance import plan as plans
from lotus.errors import LotusError
from lotus.settings import Mode, Shares, Tuned
from lotus.streams import printable, say

NAME = "run"
HELP = "run a command with settings that were found, its code unchanged"
EPILOG = """\
examples:
  lotus run --settings tuned.json -- python train.py
      the program's own output; it differs in speed only
  lotus run --settings balance.json -- torchrun --nproc-per-node 2 train.py
      each rank takes its share of every global batch
  lotus run --settings tuned.json --settings balance.json -- bash train.sh
  lotus run --mode local --every 8 -- torchrun --nproc-per-node 4 train.py
      each rank goes on alone, parameters are averaged every 8 batches
  lotus run --settings tuned.json -- lotus trace -- python train.py
  lotus run --settings tuned.json --print
      the line to change in the code: DataLoader(..., num_workers=4)

The command keeps its terminal, its output, its exit code and its signals. It is
not recorded, and lotus writes nothing. Without a command it is as with --print.

With balance.json each rank takes its share of the same global batches, each
sample once an epoch, and gradients are weighted so that an update is that of
the whole global batch. For that a rank's loss must be the mean over its
samples; --loss sum says that it is their sum. All ranks must be started this
way. Where one of them cannot, all go on as the program is written, and it is
said why: a loader without torch's own DistributedSampler, a model that is not
in DistributedDataParallel, a communication hook that may not average, other
ranks or another model than the plan is for, a rank that does not answer before
its first batch. Of batch norm that takes its statistics from each rank's own
samples there is a warning. With --rebalance-every shares go on following what
each rank's steps take: they move if that saves 5 % of a step and is no chance.

--mode says how ranks come to one model. sync averages gradients in each step,
as DistributedDataParallel does, and bears unequal numbers of batches (Join).
local averages parameters every H batches instead; hybrid averages gradients in
groups of ranks, and parameters between them. In async each rank goes on, and
changes are averaged in the background; batches go to the rank that asks next.
All but sync learn otherwise than the program does: compare the loss. They
follow the model from loader to loader; async deals out batches of the first,
and gives each rank as many where ranks meet in each step. Ranks have one model
at the end of an epoch: a program that leaves its loop before, or reads a batch
ahead, has ranks that differ. lotus balance RUN predicts what each mode takes.
Where a rank cannot, all go on as the program is written.

exit codes: the command's own; 126, 127 it cannot be started; 2 a file of
  settings cannot be read, and the command was not started

see also: lotus tune, lotus balance, lotus trace
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lotus run [options] -- COMMAND ..."
    parser.add_argument(
        "--settings",
        type=Path,
        action="append",
        metavar="FILE",
        help="file that `lotus tune` or `lotus balance` wrote; one of each may be given (default: "
        f"{settings.DEFAULT})",
    )
    parser.add_argument(
        "--loss",
        choices=("mean", "sum"),
        default="mean",
        help="with balance.json: what a rank's loss is of its samples (default: mean)",
    )
    parser.add_argument(
        "--rebalance-every",
        type=arguments.whole(1),
        metavar="K",
        help="with balance.json: let shares change after every K steps, by what each rank's steps "
        "took (50 or more where steps vary)",
    )
    parser.add_argument(
        "--mode",
        choices=settings.MODES,
        help="how the ranks come to one model (default: as the program is written)",
    )
    mode = settings.Mode("sync")
    parser.add_argument(
        "--every",
        type=arguments.whole(1),
        metavar="H",
        help=f"local, hybrid: average parameters after every H batches (default: {mode.every})",
    )
    parser.add_argument(
        "--after",
        type=arguments.whole(0),
        metavar="K",
        help="local, hybrid: go on as sync for the first K steps (default: 0)",
    )
    parser.add_argument(
        "--groups",
        type=_groups,
        metavar="0,1/2,3",
        help="hybrid: ranks that average gradients (default: those of one host)",
    )
    parser.add_argument(
        "--staleness",
        type=arguments.whole(0),
        metavar="S",
        help=f"async: steps until a rank waits for the others (default: {mode.staleness})",
    )
    parser.add_argument(
        "--print",
        action="store_true",
        dest="show",
        help="print the change of code that does the same, run nothing",
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="do not say what differs from where the settings were found",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    mode = _mode(args)
    given = args.settings or ([] if mode is not None else [settings.DEFAULT])
    tuned, shares = _read(given, args)
    if mode is not None and mode.name != "sync" and shares is not None:
        raise LotusError(
            f"--mode {mode.name} goes without shares: a plan of lotus balance is for gradients "
            "that are averaged in each step; leave out one of the two"
        )
    if args.show or not command:
        for entry in tuned.loaders:
            if len(tuned.loaders) > 1:
                print(printable(f"# {entry.loader.words()}"))
            print("\n".join(settings.code_change(entry.setting)))
        if shares is not None:
            print("\n".join(settings.shares_change(shares.plan)))
        return 0
    if not args.quiet and tuned.loaders:
        for text in settings.differences(tuned, command):
            say(f"lotus: {text}")
    outcome, missing = settings.run(command, tuned, shares, mode)
    for text in missing:
        say(f"lotus: {text}")
    return launch.end_as(outcome)


def _mode(args: argparse.Namespace) -> Mode | None:
    """What the options say. Raises LotusError where one is not for this mode."""
    of: dict[str, tuple[str, ...]] = {"every": ("local", "hybrid"), "after": ("local", "hybrid")}
    of |= {"groups": ("hybrid",), "staleness": ("async",)}
    given = {name: getattr(args, name) for name in of if getattr(args, name) is not None}
    for name in given:
        if args.mode not in of[name]:
            raise LotusError(f"--{name} is for --mode {' and --mode '.join(of[name])}")
    return None if args.mode is None else Mode(args.mode, **given)


def _groups(text: str) -> tuple[tuple[int, ...], ...]:
    if not re.fullmatch(r"\d{1,6}([,/]\d{1,6})*", text, re.ASCII):
        raise ValueError(text)
    found = tuple(tuple(int(rank) for rank in group.split(",")) for group in text.split("/"))
    ranks = [rank for group in found for rank in group]
    if sorted(ranks) != list(range(len(ranks))):
        raise ValueError(text)
    return found


_groups.__name__ = "list of groups with every rank once (0,1/2,3)"


def _read(paths: list[Path], args: argparse.Namespace) -> tuple[Tuned, Shares | None]:
    """What the files hold: settings (none where there is a plan only), and the plan."""
    found = [path for path in paths if plans.is_plan(path)]
    rest = [path for path in paths if path not in found]
    for kind in (found, rest):
        if len(kind) > 1:
            raise LotusError(f"{kind[0]} and {kind[1]} are of one kind; one of them can be applied")
    tuned = settings.read(rest[0]) if rest else Tuned(())
    if not found:
        if args.rebalance_every:
            raise LotusError("--rebalance-every needs a plan: --settings balance.json")
        return tuned, None
    plan, every = plans.read(found[0]), args.rebalance_every or 0
    return tuned, Shares(plan, args.loss == "sum", rebalance_every=every)
