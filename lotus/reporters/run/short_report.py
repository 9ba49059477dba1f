"""The end of `lotus trace`: the report in some twenty plain lines."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from lotus.analysis.common.loader_titles import title_of
from lotus.analysis.summary import LoaderSummary, Summary, summarise
from lotus.analysis.verdict.causes.cause_row import STEP
from lotus.analysis.verdict.causes.edges import TRACING
from lotus.analysis.verdict.causes.outside import OUTSIDE
from lotus.analysis.verdict.ruled_out import LITTLE
from lotus.analysis.verdict.verdict import Cause, Verdict
from lotus.common.formatting import amount, duration, plain, plural, share, shorten
from lotus.reporters.ranks import rank_report
from lotus.reporters.run import coverage, next_steps, time_bars, trial

_WIDTH, _MOST_CAUSES, _MOST_LOSSES = 78, 4, 3
_MOST_LINES = 21  # of the verdict; rates and what is missing come after it


def short_report(run: Any) -> list[str]:
    """Return the verdict, its causes and the next step of a `Run`, as lines without colour."""
    return lines(summarise(run, slowest=0))


def lines(summary: Summary) -> list[str]:
    """Return the same lines from a summary."""
    first = [part for line in coverage.open_waits(summary) for part in _wrap(line)]
    if not summary.loaders:
        result = ["no DataLoader was iterated in this run"]
    else:
        judged = summary.verdict
        result = [] if judged is None else _verdict(summary, judged)
        result += _rates(summary.loaders[0])
        for line in coverage.device(summary.loaders[0]):
            result += _wrap(line)
        for other in summary.loaders[1:4]:
            words = coverage.verdict_words(other.verdict).lower()
            if other.verdict.causes and other.verdict.kind in ("input-bound", "start-up-bound"):
                words += f", {plain(other.verdict.causes[0].title)}"
            result += _wrap(f"loader {other.scope.loader} ({plain(other.scope.title)}): {words}")
        omitted = len(summary.loaders[4:]) + summary.loaders_left_out
        if omitted:
            result.append(f"and {plural(omitted, 'smaller loader')} more")
    if summary.ranks is not None and summary.ranks.stragglers:
        result += _wrap(rank_report.verdict(summary.ranks)[0])
    for line in coverage.unseen(summary):
        result += _wrap(line)
    result = [*first, *result]
    missing = list(coverage.losses(summary, slight=False))
    for line in missing[:_MOST_LOSSES]:
        result += _wrap(line)
    if len(missing) > _MOST_LOSSES:
        result.append(f"and {len(missing) - _MOST_LOSSES} more losses or notes")
    return result


def _verdict(summary: Summary, judged: Verdict) -> list[str]:
    result = _wrap(f"{coverage.verdict_words(judged)}: {judged.summary}")
    for line in (judged.doubt, *judged.flaws):
        result += _wrap(line) if line else []
    result += time_bars.lines(summary)
    of = plain(title_of(summary.loaders[0].scope.settings, iterated=False)) or "the loader"
    result.append(shorten(f"Why (share of the loop over {of})", _WIDTH))
    large = [each for each in judged.causes[1:] if each.is_silent or each.share >= LITTLE]
    large = [*judged.causes[:1], *large]  # the next step is for the first, however small
    shown = large[:_MOST_CAUSES]
    for cause in shown:
        part = share(cause.share) if _is_of_loop(cause) else ""
        result += _wrap(plain(cause.title), f"  {part:>6}  ")
    rest = 1.0 - sum(cause.share for cause in shown if _is_of_loop(cause))
    if shown and rest >= LITTLE:
        largest = _largest(large[_MOST_CAUSES:], rest / 2)
        words = f", most of it: {largest}" if largest else ""
        result += _wrap(f"the rest{words}", f"  {share(rest):>6}  ")
    gain = judged.causes[0].gain if judged.causes else math.nan
    if math.isfinite(gain):
        words = coverage.gain_words(judged.causes[0], judged)
        of = "this loop" if len(summary.loaders) > 1 else "the loop"
        result += _wrap(f"without the first cause: {of} {words}")
    if judged.as_large:
        result += _wrap(f"another cause may be as large: {plain(judged.as_large)}")
    if judged.ruled_out:
        result += _wrap(f"ruled out: {', '.join(judged.ruled_out)}")
    if judged.causes:
        first = judged.causes[0]
        result += _wrap(f"next step: {plain(first.advice)}")
        setting = first.remedy.setting or first.remedy.environment
        for words, text in (
            ("expected", trial.expected(first.remedy)),
            ("try it" if setting else "after that", trial.trial_command(summary)),
        ):
            result += _wrap(f"{words}: {text}") if text else []
    for number, words in next_steps.later_steps(judged):
        step_lines = _wrap(f"step {number}, {plain(words)}")
        result += step_lines if len(result) + len(step_lines) <= _MOST_LINES else []
    return result


def _largest(causes: Sequence[Cause], least: float) -> str:
    """What has at least this share of the loop: one of the causes, or the training step with what
    slows it; "" for nothing."""
    left = [cause for cause in causes if _is_of_loop(cause)]
    one = max(left, key=lambda cause: cause.share, default=None)
    if one is not None and one.share >= least:
        return plain(one.title)
    step = sum(cause.share for cause in left if cause.part == STEP)
    return "the training step" if step >= least > 0 else ""


def _is_of_loop(cause: Cause) -> bool:
    return cause.kind != OUTSIDE.kind and not cause.is_silent


def _rates(loader: LoaderSummary) -> list[str]:
    times = loader.times
    loop = times["loop_ns"] / max(len(loader.scope.ranks), 1)
    limits = [
        f"{who} alone {amount(times[name])}"
        for who, name in (
            ("the steps", "step_limit_samples_per_s"),
            ("the making of batches", "input_limit_samples_per_s"),
        )
        if times[name] > 0
    ]
    text = f"loop {duration(loop)}, {coverage.rate(loader)}"
    text += f" ({', '.join(limits)})" if limits else ""
    if loader.scope.num_workers:
        text += f", workers idle {share(times['workers_idle_share'])}"
    own = next((each for each in loader.verdict.causes if each.kind == TRACING.kind), None)
    text += f", lotus's own work {share(own.share)}" if own is not None else ""
    return _wrap(text)


def _wrap(text: str, begin: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=begin,
        subsequent_indent=" " * len(begin) or "  ",
        break_on_hyphens=False,
    ) or [text]
