"""`lotus run`: run a command with the settings of tuned.json or the shares of balance.json."""

import argparse
import shlex
from pathlib import Path

from lotus.commands.common import arguments, options
from lotus.common.errors import LotusError
from lotus.common.terminal.stderr import say
from lotus.recording import launcher
from lotus.settings import requested_settings, settings_run, tuned_file

NAME = "run"
HELP = "run a command with settings from tune, advise, plan or balance"
EPILOG = """\
examples:
  lotus run --settings tuned.json -- python train.py
      the program's own output; it differs in speed only
  lotus run --settings plan.json -- python train.py
      caches the part of each sample that lotus plan found worth it
  lotus run --settings balance.json -- torchrun --nproc-per-node 2 train.py
      each rank takes its share of every global batch
  lotus run --settings advice.json --allow uint8_tensors -- python train.py
      makes samples in quicker ways, one of which rounds pixels differently
  lotus run --settings tuned.json --settings balance.json -- bash train.sh
  lotus run --settings tuned.json --settings advice.json -- python train.py
      the settings of one, with the samples made as the other says
  lotus run --mode local --every 8 -- torchrun --nproc-per-node 4 train.py
      each rank trains on its own, parameters are averaged every 8 batches
  lotus run --settings tuned.json -- lotus trace -- python train.py
  lotus run --settings tuned.json --print
      the line to change in the code: DataLoader(..., num_workers=4)

The command keeps its terminal, its output, its exit code and its signals. It is
not recorded, and lotus writes nothing but the samples that plan.json has it
cache (lotus cache ls). Without a command it acts like --print.

Cached samples: batches and random numbers stay equal bit for bit. If the data
set turns out not to allow that, lotus prints why, and the data set makes its
samples as before. The first cached sample of each process, then one in 500, is
made anew and compared; if it differs, none are cached. If files, code or
parameters change, samples are made anew.

Where a setting has torch_threads, torch's threads are set in the process that
iterates the loader, when it does so first; the program may set them again.

With balance.json each rank takes its share of the same global batches, each
sample once an epoch, and gradients are weighted so that an update equals that
of the whole global batch. A rank's loss must be the mean over its samples; use
--loss sum if it is their sum. Start all ranks this way. If one of them cannot
take its share, all run the program as it is written, and lotus prints why:

- a loader without torch's own DistributedSampler
- a model that is not in DistributedDataParallel
- a communication hook that may not average
- other ranks or another model than in the plan
- a rank that does not answer before its first batch

lotus warns about batch norm that takes its statistics from each rank's own
samples. With --rebalance-every (experimental) shares follow the time of each
rank's steps: they change if that saves 5 % of a step beyond chance.

--mode sets how ranks synchronise the model:

  sync    averages gradients in each step, as DistributedDataParallel does, and
          allows unequal numbers of batches (Join)
  local   averages parameters every H batches instead
  hybrid  averages gradients in groups of ranks, and parameters between groups
  async   (experimental) averages changes in the background; a rank waits for
          the others only as --staleness says, and the next batch goes to the
          rank that is free

All modes but sync learn differently from the program: compare the loss. They
apply to every loader that the model trains on; async hands out the batches of
the first loader only, and the same number to each rank if ranks meet in each
step. All ranks hold the same model at the end of an epoch, unless the program
leaves its loop early or reads a batch ahead. If a rank cannot use the mode, all
run the program as it is written. lotus balance RUN predicts the step time of
each mode.

exit codes: the command's own; 126, 127 it cannot be started; 2 a file of
  settings cannot be read, or is for another script, and the command was not
  started

see also: lotus tune, lotus advise, lotus plan, lotus balance, lotus cache ls,
  lotus trace
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--settings",
        type=Path,
        action="append",
        metavar="FILE",
        help="file that `lotus tune`, advise, plan or balance wrote; repeat it to combine files "
        f"that change different things (default: {tuned_file.DEFAULT})",
    )
    parser.add_argument(
        "--loss",
        choices=("mean", "sum"),
        default="mean",
        help="with balance.json: how a rank's loss combines its samples (default: mean)",
    )
    parser.add_argument(
        "--rebalance-every",
        type=arguments.whole(1),
        metavar="K",
        help="experimental, with balance.json: adapt shares to the ranks' step times every K "
        "steps; use 50 or more if step times vary (default: never)",
    )
    _add_mode(parser)
    parser.add_argument(
        "--print",
        action="store_true",
        dest="show",
        help="print the change of code that has the same effect, and run nothing",
    )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="NAME",
        help="with advice.json: put in this alternative too, which may change the values of "
        "samples; repeat it for more (default: those that change nothing)",
    )
    options.add_force(parser, "apply settings although they were made for another script")
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="do not print how this machine and program differ from those of the settings",
    )
    options.add_command(parser, NAME)


def _add_mode(parser: argparse.ArgumentParser) -> None:
    """Add how ranks synchronise, with the options of the modes."""
    parser.add_argument(
        "--mode",
        choices=settings_run.MODES,
        help="how the ranks synchronise the model; async is experimental (default: as the program "
        "is written)",
    )
    mode = settings_run.ModeOptions("sync")
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
        help="local, hybrid: train like sync for the first K steps (default: 0)",
    )
    parser.add_argument(
        "--groups",
        type=arguments.groups,
        metavar="0,1/2,3",
        help="hybrid: groups of ranks that average gradients among themselves (default: the ranks "
        "of each host)",
    )
    parser.add_argument(
        "--staleness",
        type=arguments.whole(0),
        metavar="S",
        help="async: how many steps a rank may be ahead before it waits for the others (default: "
        f"{mode.staleness})",
    )


def run(args: argparse.Namespace) -> int:
    command = options.command(args)
    given = {name: getattr(args, name) for name in settings_run.MODES_OF_OPTION}
    requested = requested_settings.read(
        args.settings or (),
        settings_run.mode_of(args.mode, given),
        summed=args.loss == "sum",
        rebalance_every=args.rebalance_every or 0,
    )
    if args.show or not command:
        for line in requested.code_changes():
            print(line)
        return 0
    other = "" if args.force else requested.other_program(command)
    if other:
        shown = "".join(f"--settings {shlex.quote(str(path))} " for path in args.settings or ())
        raise LotusError(
            f"{other}, so nothing was started; -f applies them all the same: lotus run -f "
            f"{shown}-- {shlex.join(command)}; `lotus tune -- COMMAND` makes settings for "
            "another script"
        )
    if not args.quiet:
        for text in requested.notes(command):
            say(f"lotus: {text}")
    for name in requested.left_out(args.allow):
        say(f"lotus: {name} is left out, as it may change values; --allow {name} puts it in")
    outcome, missing = settings_run.run(
        command, requested.tuned, requested.shares, requested.mode, args.allow
    )
    for text in missing:
        say(f"lotus: {text}")
    return launcher.end_as(outcome)
