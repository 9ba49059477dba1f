"""`lotus tune`: run a command, and look for loader settings that feed it faster."""

import argparse
import contextlib
import functools
import io
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lotus.commands.common import arguments, options
from lotus.commands.common import output as outputs
from lotus.settings import tuned_file
from lotus.settings.space import Setting
from lotus.settings.tuned_file import DEFAULT

NAME = "tune"
HELP = "look for faster loader settings, in one to two minutes"
EPILOG = """\
examples:
  lotus tune -- python train.py
      each setting with its samples/s while it is tried; then the best one, its
      gain, the command that applies it, and the change of code
  lotus run --settings tuned.json -- python train.py
      the program with the best settings, its code unchanged
  lotus tune --apply -- python train.py
      continues training with the best settings, now and each time it is
      started
  lotus tune --loader Pictures --budget 2m -- python train.py
  lotus tune --objective throughput --vary threads -- python train.py

The program starts as usual. After it has iterated its loader for some batches,
lotus tries settings with the program's own data set, sampler and collate
function; batch_size stays. The best one is then checked with the program's own
steps: the program trains for some batches, with that and its own setting in
turn. Then it is ended at once: none of its `finally` blocks and atexit
functions runs, and the processes that it started get SIGTERM. With --apply it
continues instead.

Without -f a loop of less than a second is not tuned, and a file of settings is
overwritten only if lotus tune wrote it and found no gain. A setting is
recommended only if the program's own steps show it to be faster by 5 % or more,
with the whole 95 % interval above 1; where they cannot be measured, trials must
show it. Where the step uses several threads of torch, it is also timed with
fewer, which leaves cores to workers: a setting may then have torch_threads, for
torch.set_num_threads in the training process.

writes: the settings (-o)

exit codes: 0 settings were found, or the program's own are best; 1 they could
  not be written, or the program ended before it could be tuned; 130 Ctrl-C; the
  program's own if it failed by itself, and with --apply

see also: lotus run, lotus sweep, lotus whatif, lotus schema tuned.json
"""
_STRATEGIES = ("lotus", "adapt", "grid", "random")
_VARIED = ("start_method", "in_order", "threads")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    options.add_loader(parser, "tune")
    add(
        "--budget",
        type=arguments.positive_seconds,
        default=60.0,
        metavar="TIME",
        help="time for all trials together, such as 90s or 2m (default: 60s)",
    )
    add(
        "--check",
        type=arguments.seconds,
        metavar="TIME",
        help="time for checking the best setting against the program's own, with the program's "
        "step, which trials do not run; up to twice as long if few rounds fit or a gain is left "
        "open; 0s skips the check (default: a third of --budget, up to half of it if the trials "
        "end early)",
    )
    add(
        "--objective", choices=("train", "throughput"), default="train",
        help="what to maximise: samples/s with a training step between batches (train), or "
        "without (throughput) (default: train)",
    )  # fmt: skip
    add(
        "--strategy",
        choices=_STRATEGIES,
        default="lotus",
        help="how to choose the settings to try (default: lotus)",
    )
    add(
        "--vary", type=arguments.words(_VARIED), default=(), metavar="NAMES",
        help=f"also vary these, with commas between them: {', '.join(_VARIED)} (default: none)",
    )  # fmt: skip
    add(
        "--watch",
        type=arguments.whole(1),
        metavar="N",
        help="how many batches of the program to watch before the trials (default: 12)",
    )
    add(
        "--seed",
        type=arguments.whole(0, (1 << 32) - 1),
        default=0,
        metavar="N",
        help="seed of random choices (default: 0)",
    )
    add(
        "--apply",
        action="store_true",
        help="let the program continue with the best settings (default: end it)",
    )
    options.add_output(
        parser,
        f"file to write the settings to (default: {DEFAULT}; with --apply in a new directory "
        "lotus-runs/NAME-TIME, so that the same command line can be used again)",
        "FILE",
    )
    options.add_force(
        parser, "overwrite an earlier file of settings; tune a loop of less than a second, too"
    )
    options.add_json(parser, "tune")
    add(
        "--table",
        action="store_true",
        help="also print each trial and why it was tried, and the settings that were not",
    )
    add("-q", "--quiet", action="store_true", help="write the settings and print nothing")
    options.add_command(parser, NAME)


def run(args: argparse.Namespace) -> int:
    from lotus.common.terminal.stderr import say
    from lotus.recording import launcher
    from lotus.tune.search import loop_length, trial_recording
    from lotus.tune.session import program_pipe, subprocess_tuning

    command = options.required_command(args, NAME)

    def search_settings(program: program_pipe.PipedProgram) -> Any:
        if not args.force:
            loop_length.check(program.watched)
        # These import pandas, for which the program should not wait before it starts.
        from lotus.reporters.tune.tune_report import TuneProgress
        from lotus.tune.search import checked_search
        from lotus.tune.search.search import SearchPlan

        live = TuneProgress(sys.stderr.isatty())

        def announce(setting: Setting) -> None:
            live.clear()  # the line of the last trial
            live.trains(setting)

        plan = SearchPlan(
            strategy=args.strategy,
            budget_s=args.budget,
            objective=args.objective,
            seed=args.seed,
            vary=args.vary,
        )
        if args.quiet:
            return checked_search.find(program, plan, args.check)
        what = program.watched.title()
        say(f"lotus: {what} was watched; settings are now tried for {args.budget:g} s")
        try:
            return checked_search.find(program, plan, args.check, live, announce)
        finally:
            live.clear()

    report = functools.partial(_report, args, command)
    with _output(args, command) as output:
        done = subprocess_tuning.tune(
            command,
            search_settings,
            output=output,
            loader=args.loader,
            watch=args.watch,
            apply=args.apply,
            on_found=report if args.apply and not args.json else None,
            record=trial_recording.begin,
        )
    if done.result is not None and args.json:
        from lotus.reporters.tune import tune_report

        outputs.print_document(tune_report.document(done.result, output=done.written))
    elif done.result is not None and not args.apply:
        report(done.result, done.written)
    if done.problem:
        say(f"lotus: {done.problem}")
    if done.unwritten:
        hint = "the line for the code is above, `lotus tune -o FILE` finds it again"
        if done.written is not None:
            file = shlex.quote(str(done.written))
            hint = f"the settings are in {done.written}; keep them with: cp {file} FILE"
        say(f"lotus: {done.unwritten}; {hint}")
    if done.result is not None and done.ended_by_us:
        return 130 if done.result.interrupted else int(bool(done.unwritten))
    untuned = bool(done.problem) and done.result is None and not args.apply
    if untuned and not done.ended_by_us and done.outcome.exit_code == 0:
        return 1  # the program ended by itself, before anything could be tuned
    return launcher.end_as(done.outcome)


def _report(
    args: argparse.Namespace, command: Sequence[str], result: Any, written: Path | None
) -> None:
    """Say what was found; with -q only if it could not be written."""
    from lotus.common.terminal.stderr import say
    from lotus.reporters.base.console import plain_console
    from lotus.reporters.tune import tune_report

    if args.quiet and written is not None:
        return
    text = io.StringIO()
    console = plain_console(text, shutil.get_terminal_size().columns)
    tune_report.write(
        console, result, words=command, output=written, table=args.table, options=_options(args)
    )
    say(text.getvalue())


def _options(args: argparse.Namespace) -> list[object]:
    """Return the words that make another call search the same."""
    words: list[object] = []
    if args.loader is not None:
        words += ["--loader", args.loader]
    if args.objective != "train":
        words += ["--objective", args.objective]
    if args.vary:
        words += ["--vary", ",".join(args.vary)]
    if args.output is not None:
        words += ["-o", args.output]
    words += ["--apply"] if args.apply else []
    return words + (["-f"] if args.force else [])


@contextlib.contextmanager
def _output(args: argparse.Namespace, command: Sequence[str]) -> Iterator[Path]:
    """Yield the file for the settings; remove a directory made for it that stays empty."""
    if args.output is not None or not args.apply:
        path = args.output or DEFAULT
        outputs.destination(path, overwrite=args.force or tuned_file.is_without_gain(path))
        yield path
        return
    from lotus.format import run_directory

    folder = run_directory.make_plain(command)
    try:
        yield folder / DEFAULT.name
    finally:
        with contextlib.suppress(OSError):  # not empty
            folder.rmdir()
