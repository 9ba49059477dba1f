"""The command that tries the advice, and the predicted gain."""

import os
import shlex

from lotus.advise.alternatives.known_operations import has_alternatives
from lotus.analysis.summary import LoaderSummary, Summary
from lotus.analysis.verdict.advice.advice import PROGRAM
from lotus.analysis.verdict.advice.remedy import PERSISTENT, PINNED, PREFETCH, WORKERS, Remedy
from lotus.analysis.verdict.causes.cores.few_cores import AFFINITY
from lotus.analysis.verdict.causes.cores.other_programs import OTHERS
from lotus.analysis.verdict.causes.making.work import OPERATION
from lotus.analysis.verdict.causes.run.outside import OUTSIDE
from lotus.analysis.verdict.verdict import Cause
from lotus.common import tunable_loop
from lotus.common.text.formatting import factor, plain
from lotus.format.run_directory import RUNS

_NARROW = 0.02  # an interval of less is not shown
_WIDE = 5.0  # times the lower end: an interval says next to nothing
_TELLS_NOTHING = 100.0  # the same: it says nothing
_ALIKE = 0.9  # of a gain: another one is as good as the same
_NO_TRIAL = (OTHERS.kind, AFFINITY.kind)  # nothing in the program is to be changed
_NOT_PREDICTED = "not predictable from this run"
_NEW = ("NEW", *(f"NEW{number}" for number in range(2, 10)))  # of a run to compare with
_SWEPT = {WORKERS: "--workers", PREFETCH: "--prefetch"}
_SWITCHED = {PERSISTENT: "--persistent", PINNED: "--pin-memory"}


def expected(remedy: Remedy) -> str:
    """Return the predicted gain in words, or that none is shown or predicted.

    "" for a change of code, of which nothing is predicted.
    """
    gain = remedy.expected
    if not gain.is_possible:
        return _NOT_PREDICTED if remedy.setting or remedy.environment else ""
    by = "by this run's times" if gain.by_sums else "by a replay of its batches"
    between = f"{factor(gain.low)} to {factor(gain.high)} times as fast"
    if gain.high > _TELLS_NOTHING * gain.low and not gain.at_best:
        return f"cannot be told {by}: these are too few"
    if gain.high > _WIDE * gain.low and not gain.at_best:
        return f"{between}, {by}: these are too few to say more"
    if not gain.is_shown and not gain.at_best:
        return f"not shown to help {by} ({between}): try it first"
    text = f"{'at most ' if gain.at_best else ''}{factor(gain.gain)} times as fast"
    if not remedy.setting.get(WORKERS, 1):
        # A replay does not know that workers no longer slow down the steps.
        return f"at least {factor(gain.low)} times as fast, {by}"
    if gain.high - gain.low >= _NARROW and not gain.at_best:
        text += f" ({factor(gain.low)} to {factor(gain.high)})"
    return f"{text}, {by}"


def expected_in_run(remedy: Remedy, loader: LoaderSummary, summary: Summary) -> str:
    """Return the predicted gain as `expected`, and that of all loops if the loader's are a part."""
    text, gain, time = expected(remedy), remedy.expected.gain, summary.time
    if not text or time is None or not gain > 1.0:
        return text
    of_all = time.gain_of_loops(loader.scope.loader, gain)
    if not of_all < _ALIKE * gain:
        return text
    return f"{text}; all loops together {factor(of_all)} times"


def trial_command(summary: Summary) -> str:
    """Return the command that tries the first cause's advice; "" if there is nothing to try.

    There is none for a command that was not recorded or was redacted, nor for a loop that is too
    short for `lotus tune`.
    """
    judged = summary.verdict
    if judged is None or judged.kind == OUTSIDE.kind:
        return ""
    loader = summary.loaders[0]
    causes = loader.verdict.causes
    by_environment = bool(causes) and bool(causes[0].remedy.environment)
    if loader.verdict.kind not in ("input-bound", "start-up-bound") and not by_environment:
        return ""
    if not causes or causes[0].kind in _NO_TRIAL:
        return ""
    verbs, before = _verbs(summary, loader, causes[0])
    manifest = summary.manifest
    ends = (manifest.get(name) for name in ("exit_code", "signal"))
    if manifest.get("state") == "ended" and all(end is None for end in ends):
        return (
            "lotus.tune(loader)" if verbs.startswith("lotus tune") else ""
        )  # lotus.trace recorded it
    after = ""
    if verbs == "lotus trace":
        output, compare = _compare(summary)
        verbs, after = verbs + output, f", then: {compare}"
    return f"{_folder(summary)}{before}{verbs} -- {summary.program}{after}"


def alternatives_command(summary: Summary) -> str:
    """Return the command that measures other implementations of what the first cause is.

    "" where none is known, or where a setting is to be tried first.
    """
    if " -- " not in trial_command(summary):
        return ""
    first = summary.loaders[0].verdict.causes[0]
    if first.kind != OPERATION.kind or first.remedy.setting or first.remedy.environment:
        return ""
    if not has_alternatives(first.title):
        return ""
    return f"{_folder(summary)}lotus advise -- {summary.program}"


def _verbs(summary: Summary, loader: LoaderSummary, cause: Cause) -> tuple[str, str]:
    """Return the verb with its options, and the environment variables to put before it."""
    remedy = cause.remedy
    if remedy.environment:
        variables = (f"{name}={value} " for name, value in remedy.environment.items())
        return "lotus trace", "".join(variables)
    stateful = loader.scope.settings.get("snapshot_every_n_steps") is not None
    if not remedy.setting or stateful:  # settings are not applied to a StatefulDataLoader
        return "lotus trace", ""
    of = f" --loader {loader.scope.loader}" if len(summary.loaders) > 1 else ""
    (name, value), *_ = remedy.setting.items()
    if name in _SWITCHED:
        workers = f" --workers {loader.scope.num_workers}"
        return f"lotus sweep{of}{workers} {_SWITCHED[name]} on,off --repeat 2", ""
    if not tunable_loop.too_short(summary.loaders[0].longest_epoch_s):
        return f"lotus tune{of}", ""
    now = loader.scope.num_workers if name == WORKERS else loader.scope.settings.get(name) or 2
    persistent = " --persistent on" if name == WORKERS and PERSISTENT in remedy.setting else ""
    return f"lotus sweep{of} {_SWEPT[name]} {now},{value}{persistent} --repeat 2", ""


def _compare(summary: Summary) -> tuple[str, str]:
    """Return where to record, and the command that compares this run with that one."""
    in_runs = os.path.basename(os.path.dirname(os.path.abspath(summary.path))) == RUNS
    ended = summary.manifest.get("state") == "ended" and not summary.manifest.get("exit_code")
    if in_runs and ended:  # a bare `lotus compare` leaves out others
        return "", "lotus compare"
    new = next((name for name in _NEW if not os.path.exists(name)), _NEW[0])
    return f" -o {new}", f"lotus compare {plain(shlex.quote(summary.path))} {new}"


def _folder(summary: Summary) -> str:
    """Return what to put before the program's command so that it runs in its folder; "" there.

    A folder of another machine, which does not exist here, is left out.
    """
    folder = summary.manifest.get("cwd") if summary.program != PROGRAM else None
    if not isinstance(folder, str) or not os.path.isdir(folder) or os.path.samefile(folder, "."):
        return ""
    return f"env -C {plain(shlex.quote(folder))} "
