"""`lotus run`: run a command with the settings of a tuned.json, the shares of a balance.json."""

import argparse
from pathlib import Path

from lotus import launch, settings
from lotus.balance import plan as plans
from lotus.errors import LotusError
from lotus.settings import Shares, Tuned
from lotus.streams import say

NAME = "run"
HELP = "run a command with settings that were found, its code unchanged"
EPILOG = """\
examples:
  lotus run --settings tuned.json -- python train.py
      the program's own output; it differs in speed only
  lotus run --settings balance.json -- torchrun --nproc-per-node 2 train.py
      each rank takes its share of every global batch
  lotus run --settings tuned.json --settings balance.json -- bash train.sh
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
samples there is a warning.

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
    tuned, shares = _read(args.settings or [settings.DEFAULT], args.loss == "sum")
    if args.show or not command:
        for entry in tuned.loaders:
            if len(tuned.loaders) > 1:
                print(f"# {entry.loader.words()}")
            print("\n".join(settings.code_change(entry.setting)))
        if shares is not None:
            print("\n".join(settings.shares_change(shares.plan)))
        return 0
    if not args.quiet and tuned.loaders:
        for text in settings.differences(tuned, command):
            say(f"lotus: {text}")
    outcome, missing = settings.run(command, tuned, shares)
    for text in missing:
        say(f"lotus: {text}")
    return launch.end_as(outcome)


def _read(paths: list[Path], summed: bool) -> tuple[Tuned, Shares | None]:
    """What the files hold: settings (none where there is a plan only), and the plan."""
    found = [path for path in paths if plans.is_plan(path)]
    rest = [path for path in paths if path not in found]
    for kind in (found, rest):
        if len(kind) > 1:
            raise LotusError(f"{kind[0]} and {kind[1]} are of one kind; one of them can be applied")
    tuned = settings.read(rest[0]) if rest else Tuned(())
    return tuned, Shares(plans.read(found[0]), summed) if found else None
