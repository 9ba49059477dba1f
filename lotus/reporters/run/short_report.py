"""The end of `lotus trace`: the report in some twenty plain lines."""

import dataclasses
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lotus.analysis.common.loader_titles import title_of
from lotus.analysis.summary import LoaderSummary, Summary, summarise
from lotus.analysis.verdict.causes.cause_row import STEP
from lotus.analysis.verdict.causes.training_step import TRACING
from lotus.analysis.verdict.rest_of_causes import is_of_loop, left_share
from lotus.analysis.verdict.ruled_out import LITTLE
from lotus.analysis.verdict.verdict import Cause, Verdict
from lotus.common.formatting import amount, duration, plain, plural, share, shorten
from lotus.reporters.ranks import rank_report
from lotus.reporters.run import coverage, next_steps, time_bars, trial

_WIDTH = 78
MOST_LINES = 24  # with the next command 25, as many as a terminal shows


@dataclass(frozen=True)
class _Room:
    """The most that is said of each kind."""

    causes: int = 4
    later_steps: int = 2
    bars: int = 8
    remarks: int = 3
    losses: int = 3
    loaders: int = 3
    ruled_out: bool = True
    gains: bool = True  # without the first cause, and of steps and making of batches alone


# From all to the least, which still has the verdict, its first cause and its next step: what is
# least missed, and stands in `lotus report` as well, is left out first.
_ROOMS = (
    _Room(),
    _Room(later_steps=1),
    _Room(later_steps=1, bars=5),
    _Room(later_steps=1, bars=5, causes=3),
    _Room(later_steps=0, bars=5, causes=3, loaders=1),
    _Room(later_steps=0, bars=5, causes=2, loaders=1, losses=1),
    _Room(later_steps=0, bars=4, causes=2, loaders=1, losses=1, ruled_out=False),
    _Room(
        causes=1,
        later_steps=0,
        bars=3,
        remarks=1,
        losses=1,
        loaders=0,
        ruled_out=False,
        gains=False,
    ),
)


def short_report(run: Any, most: int = MOST_LINES) -> list[str]:
    """Return the verdict, its causes and the next step of a `Run`, as lines without colour.

    `most`: lines, up to which details are left out where there are more. The first cause's advice
    is never shortened, so a long one can take a few lines more.
    """
    return lines(summarise(run, slowest=0), most)


def lines(summary: Summary, most: int = MOST_LINES) -> list[str]:
    """Return the same lines from a summary."""
    for room in _ROOMS:
        result = _lines(summary, room)
        if _fits(result, most):
            return _fuller(summary, room, most) or result
    return result


def _fuller(summary: Summary, room: _Room, most: int) -> list[str]:
    """Return the lines with bars and causes where they fit in what a room leaves; [] if not."""
    best: list[str] = []
    for name in ("bars", "causes"):
        for count in range(getattr(room, name) + 1, getattr(_ROOMS[0], name) + 1):
            more: dict[str, Any] = {name: count}
            larger = dataclasses.replace(room, **more)
            result = _lines(summary, larger)
            if not _fits(result, most):
                break
            room, best = larger, result
    return best


def _fits(lines_of_room: Sequence[str], most: int) -> bool:
    return sum(map(_height, lines_of_room)) <= most


def _height(line: str) -> int:
    """Return how many lines it takes on a terminal: commands, which are copied, are not wrapped."""
    return max(math.ceil(len(line) / _WIDTH), 1)


def _lines(summary: Summary, room: _Room) -> list[str]:
    result = [part for line in coverage.open_waits(summary) for part in _wrap(line)]
    if not summary.loaders:
        result += _wrap(coverage.no_loader(summary))
    else:
        judged = summary.verdict
        result += [] if judged is None else _verdict(summary, judged, room)
        result += _rates(summary.loaders[0], room.gains)
        for line in coverage.device(summary.loaders[0]):
            result += _wrap(line)
        result += _other_loaders(summary, room.loaders)
    if summary.ranks is not None and summary.ranks.stragglers:
        result += _wrap(rank_report.verdict(summary.ranks)[0])
    for line in coverage.unseen(summary):
        result += _wrap(line)
    missing = list(coverage.losses(summary, slight=False))
    for line in missing[: room.losses]:
        result += _wrap(line)
    if len(missing) > room.losses:
        result.append(f"and {len(missing) - room.losses} more losses or notes")
    return result


def _other_loaders(summary: Summary, most: int) -> list[str]:
    result = []
    for other in summary.loaders[1 : 1 + most]:
        words = coverage.verdict_words(other.verdict).lower()
        if other.verdict.causes and other.verdict.kind in ("input-bound", "start-up-bound"):
            words += f", {plain(other.verdict.causes[0].title)}"
        result += _wrap(f"loader {other.scope.loader} ({plain(other.scope.title)}): {words}")
    omitted = len(summary.loaders[1 + most :]) + summary.loaders_left_out
    if omitted:
        result.append(f"and {plural(omitted, 'smaller loader')}")
    return result


def _verdict(summary: Summary, judged: Verdict, room: _Room) -> list[str]:
    result = _wrap(f"{coverage.verdict_words(judged)}: {judged.summary}")
    result += _wrap(judged.doubt) if judged.doubt else []
    for line in judged.flaws[: room.remarks]:
        result += _wrap(line)
    if len(judged.flaws) > room.remarks:
        result.append(f"and {plural(len(judged.flaws) - room.remarks, 'more remark')}")
    result += time_bars.lines(summary, room.bars)
    result += _causes(summary, judged, room)
    if judged.ruled_out and room.ruled_out:
        result += _wrap(f"ruled out: {', '.join(judged.ruled_out)}")
    if judged.causes:
        result += _next_step(summary, judged.causes[0])
    later = list(next_steps.later_steps(judged))
    for number, words in later[: room.later_steps]:
        result += _wrap(f"step {number}, {plain(words)}")
    if left := len(later[room.later_steps :]):
        steps = "1 more step, for another cause" if left == 1 else f"{left} more steps, for others"
        result.append(f"{steps}: lotus report shows {'it' if left == 1 else 'them'}")
    return result


def _causes(summary: Summary, judged: Verdict, room: _Room) -> list[str]:
    """Return what the loop's time is spent on, and how far that is certain."""
    if not judged.causes:
        return []
    of = plain(title_of(summary.loaders[0].scope.settings, iterated=False)) or "the loader"
    result = [shorten(f"Why (share of the loop over {of})", _WIDTH)]
    large = [each for each in judged.causes[1:] if each.is_silent or each.share >= LITTLE]
    large = [*judged.causes[:1], *large]  # the next step is for the first, however small
    shown = large[: room.causes]
    for cause in shown:
        part = share(cause.share) if is_of_loop(cause) else ""
        result += _wrap(plain(cause.title), f"  {part:>6}  ")
    rest = left_share(shown)
    if shown and rest >= LITTLE:
        largest = _largest(large[room.causes :], rest / 2)
        words = f", most of it: {largest}" if largest else ""
        result += _wrap(f"the rest{words}", f"  {share(rest):>6}  ")
    gain = judged.causes[0].gain if judged.causes else math.nan
    if room.gains and math.isfinite(gain):
        words = coverage.gain_words(judged.causes[0], judged)
        of = "this loop" if len(summary.loaders) > 1 else "the loop"
        result += _wrap(f"without the first cause: {of} {words}")
    if judged.as_large:
        result += _wrap(f"another cause may be as large: {plain(judged.as_large)}")
    return result


def _next_step(summary: Summary, first: Cause) -> list[str]:
    """Return the advice on the first cause, what it is expected to gain, and how to try it."""
    result = _wrap(f"next step: {plain(first.advice)}")
    expected = trial.expected_in_run(first.remedy, summary.loaders[0], summary)
    command = trial.trial_command(summary)
    result += _wrap(f"expected: {expected}") if expected else []
    setting = first.remedy.setting or first.remedy.environment
    result += [f"{'try it' if setting else 'after that'}: {command}"] if command else []
    others = trial.alternatives_command(summary)
    result += [f"other implementations of it: {others}"] if others else []
    return result


def _largest(causes: Sequence[Cause], least: float) -> str:
    """Return what has at least this share of the loop; "" for nothing.

    That is one of the causes, the training step with what slows it, or the two largest causes.
    """
    left = sorted(filter(is_of_loop, causes), key=lambda cause: cause.share, reverse=True)
    if left and left[0].share >= least:
        return plain(left[0].title)
    if sum(cause.share for cause in left if cause.part == STEP) >= least > 0:
        return "the training step"
    two = left[:2]
    if sum(cause.share for cause in two) < least or not two:
        return ""
    return " and ".join(f"{plain(cause.title)} ({share(cause.share)})" for cause in two)


def _rates(loader: LoaderSummary, gains: bool) -> list[str]:
    times = loader.times
    loop = times["loop_ns"] / max(len(loader.scope.ranks), 1)
    limits = [
        f"{who} alone {amount(times[name])}/s"
        for who, name in (
            ("the steps", "step_limit_samples_per_s"),
            ("the making of batches", "input_limit_samples_per_s"),
        )
        if gains and times[name] > 0
    ]
    whole = loader.epochs.loc[loader.epochs["exhausted"].astype(bool), "loop_ns"]
    each = f" ({duration(float(whole.mean()))} an epoch)" if len(whole) > 1 else ""
    text = f"loop {duration(loop)}{each}, {coverage.rate(loader)}"
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
