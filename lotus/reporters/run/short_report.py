"""The end of `lotus trace`: the report in some twenty plain lines."""

import dataclasses
import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from lotus.analysis.common.loader_titles import title_of
from lotus.analysis.summary import LoaderSummary, Summary, summarise
from lotus.analysis.verdict.causes.cause_row import STEP
from lotus.analysis.verdict.causes.step.training_step import TRACING
from lotus.analysis.verdict.rest_of_causes import is_of_loop, left_share
from lotus.analysis.verdict.ruled_out import LITTLE
from lotus.analysis.verdict.verdict import Cause, Verdict
from lotus.common.text.formatting import amount, duration, plain, plural, share, shorten
from lotus.reporters.ranks import rank_report
from lotus.reporters.run.parts import coverage, next_steps, time_bars, trial

_WIDTH = 78
_LARGE = 0.2  # of the run: where another loader's loops take more, their share is said
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


_Block = Callable[[_Room], list[str]]  # lines that belong together

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
    blocks = _blocks(summary)
    for room in _ROOMS:
        result = _lines(blocks, room)
        if _fits(result, most):
            return _fuller(blocks, room, most) or result
    return result


def _fuller(blocks: Sequence[_Block], room: _Room, most: int) -> list[str]:
    """Return the lines with bars and causes where they fit in what a room leaves; [] if not."""
    best: list[str] = []
    for name in ("bars", "causes"):
        for count in range(getattr(room, name) + 1, getattr(_ROOMS[0], name) + 1):
            more: dict[str, Any] = {name: count}
            larger = dataclasses.replace(room, **more)
            result = _lines(blocks, larger)
            if not _fits(result, most):
                break
            room, best = larger, result
    return best


def _fits(lines_of_room: Sequence[str], most: int) -> bool:
    return sum(map(_height, lines_of_room)) <= most


def _height(line: str) -> int:
    """Return how many lines it takes on a terminal: commands, which are copied, are not wrapped."""
    return max(math.ceil(len(line) / _WIDTH), 1)


def _lines(blocks: Sequence[_Block], room: _Room) -> list[str]:
    return [line for block in blocks for line in block(room)]


def _block(render: Callable[..., list[str]], *limits: str) -> _Block:
    """Return a block that is rendered once for each value of `limits`, fields of a room."""
    rendered = cache(render)
    return lambda room: rendered(*(getattr(room, limit) for limit in limits))


def _blocks(summary: Summary) -> list[_Block]:
    """Return the blocks of the text in their order, each with the limits that it observes."""
    judged = summary.verdict
    return [
        _block(lambda: _wrap_all(coverage.open_waits(summary))),
        *(
            [_block(lambda: _wrap(coverage.no_loader(summary)))]
            if judged is None
            else _blocks_of_loaders(summary, judged)
        ),
        _block(partial(_stragglers, summary)),
        _block(lambda: _wrap_all(coverage.unseen(summary))),
        _block(partial(_losses, summary), "losses"),
    ]


def _blocks_of_loaders(summary: Summary, judged: Verdict) -> list[_Block]:
    first = summary.loaders[0]
    return [
        _block(partial(_verdict, judged)),
        _block(partial(_remarks, judged), "remarks"),
        _block(lambda most: list(time_bars.lines(summary, most)), "bars"),
        _block(partial(_causes, summary, judged), "causes", "gains"),
        _block(partial(_ruled_out, judged), "ruled_out"),
        _block(partial(_next_step, summary, judged)),
        _block(partial(_later_steps, judged), "later_steps"),
        _block(partial(_rates, first), "gains"),
        _block(lambda: _wrap_all(coverage.device(first))),
        _block(partial(_other_loaders, summary), "loaders"),
    ]


def _stragglers(summary: Summary) -> list[str]:
    ranks = summary.ranks
    if ranks is None or not ranks.stragglers:
        return []
    return _wrap(rank_report.verdict(ranks)[0])


def _losses(summary: Summary, most: int) -> list[str]:
    missing = list(coverage.losses(summary, slight=False))
    result = _wrap_all(missing[:most])
    if len(missing) > most:
        result.append(f"and {len(missing) - most} more losses or notes")
    return result


def _other_loaders(summary: Summary, most: int) -> list[str]:
    result = []
    for other in summary.loaders[1 : 1 + most]:
        words = coverage.verdict_words(other.verdict).lower()
        if other.verdict.causes and other.verdict.kind in ("input-bound", "start-up-bound"):
            words += f", {plain(other.verdict.causes[0].title)}"
        part = summary.time.share_of_loops(other.scope.loader) if summary.time else 0.0
        if part >= _LARGE:
            words = f"{share(part)} of the run, {words}"
        result += _wrap(f"loader {other.scope.loader} ({plain(other.scope.title)}): {words}")
    omitted = len(summary.loaders[1 + most :]) + summary.loaders_left_out
    if omitted:
        result.append(f"and {plural(omitted, 'smaller loader')}")
    return result


def _verdict(judged: Verdict) -> list[str]:
    result = _wrap(f"{coverage.verdict_words(judged)}: {judged.summary}")
    return result + (_wrap(judged.doubt) if judged.doubt else [])


def _remarks(judged: Verdict, most: int) -> list[str]:
    result = _wrap_all(judged.flaws[:most])
    if len(judged.flaws) > most:
        result.append(f"and {plural(len(judged.flaws) - most, 'more remark')}")
    return result


def _ruled_out(judged: Verdict, is_shown: bool) -> list[str]:
    shown = is_shown and judged.ruled_out
    return _wrap(f"ruled out: {', '.join(judged.ruled_out)}") if shown else []


def _later_steps(judged: Verdict, most: int) -> list[str]:
    later = list(next_steps.later_steps(judged))
    result = _wrap_all(f"step {number}, {plain(words)}" for number, words in later[:most])
    if left := len(later[most:]):
        steps = (
            "1 more step, for another cause"
            if left == 1
            else f"{left} more steps, for other causes"
        )
        result.append(f"{steps}: lotus report shows {'it' if left == 1 else 'them'}")
    return result


def _causes(summary: Summary, judged: Verdict, most: int, gains: bool) -> list[str]:
    """Return what the loop's time is spent on, and how far that is certain."""
    if not judged.causes:
        return []
    of = plain(title_of(summary.loaders[0].scope.settings, iterated=False)) or "the loader"
    result = [shorten(f"Why (share of the loop over {of})", _WIDTH)]
    large = [each for each in judged.causes[1:] if each.is_silent or each.share >= LITTLE]
    large = [*judged.causes[:1], *large]  # the next step is for the first, however small
    shown = large[:most]
    for cause in shown:
        part = share(cause.share) if is_of_loop(cause) else ""
        result += _wrap(plain(cause.title), f"  {part:>6}  ")
    rest = left_share(shown)
    if shown and rest >= LITTLE:
        largest = _largest(large[most:], rest / 2)
        words = f", most of it: {largest}" if largest else ""
        result += _wrap(f"the rest{words}", f"  {share(rest):>6}  ")
    gain = judged.causes[0].gain if judged.causes else math.nan
    if gains and math.isfinite(gain):
        words = coverage.gain_words(judged.causes[0], judged)
        of = "this loop" if len(summary.loaders) > 1 else "the loop"
        result += _wrap(f"without the first cause: {of} {words}")
    if judged.as_large:
        result += _wrap(f"another cause may be as large: {plain(judged.as_large)}")
    return result


def _next_step(summary: Summary, judged: Verdict) -> list[str]:
    """Return the advice on the first cause, what it is expected to gain, and how to try it."""
    if not judged.causes:
        return []
    first = judged.causes[0]
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


def _wrap_all(texts: Iterable[str]) -> list[str]:
    return [line for text in texts for line in _wrap(text)]


def _wrap(text: str, begin: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=begin,
        subsequent_indent=" " * len(begin) or "  ",
        break_on_hyphens=False,
    ) or [text]
