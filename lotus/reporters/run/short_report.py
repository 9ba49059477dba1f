"""The end of `lotus trace`: the report in a dozen plain lines."""

import textwrap
from typing import Any

from lotus.analysis.summary import LoaderSummary, Summary, summarise
from lotus.common.formatting import amount, duration, plain, plural, share, shorten
from lotus.reporters.ranks import rank_report
from lotus.reporters.run import coverage

_WIDTH, _MOST_CAUSES, _MOST_LOSSES = 78, 4, 3


def short_report(run: Any) -> list[str]:
    """The verdict, its causes and the next step of a `Run`, as lines without colour."""
    return lines(summarise(run, slowest=0))


def lines(summary: Summary) -> list[str]:
    """The same for a summary."""
    first = [part for line in coverage.open_waits(summary) for part in _wrap(line)]
    if not summary.loaders:
        result = ["no DataLoader was iterated in what was recorded"]
    else:
        result = _loader(summary.loaders[0])
        for other in summary.loaders[1:4]:
            words = coverage.verdict_words(other.verdict).lower()
            result += _wrap(f"loader {other.scope.loader} ({plain(other.scope.title)}): {words}")
        more = len(summary.loaders[4:]) + summary.loaders_left_out
        if more:
            result.append(f"and {plural(more, 'smaller loader')} more")
    if summary.ranks is not None and summary.ranks.stragglers:
        result += _wrap(rank_report.verdict(summary.ranks)[0])
    for line in coverage.unseen(summary):
        result += _wrap(line)
    result = [*first, *result]
    missing = list(coverage.losses(summary))
    for line in missing[:_MOST_LOSSES]:
        result += _wrap(line)
    if len(missing) > _MOST_LOSSES:
        result.append(f"and {len(missing) - _MOST_LOSSES} more losses or notes")
    return result


def _loader(loader: LoaderSummary) -> list[str]:
    judged, times = loader.verdict, loader.times
    result = _wrap(f"{coverage.verdict_words(judged)}: {judged.summary}")
    if judged.doubt:
        result += _wrap(judged.doubt)
    for cause in judged.causes[:_MOST_CAUSES]:
        result.append(f"  {share(cause.share):>6}  {shorten(plain(cause.title), _WIDTH - 10)}")
    if judged.causes:
        result += _wrap(f"next step: {plain(judged.causes[0].advice)}")
    loop = times["loop_ns"] / max(len(loader.scope.ranks), 1)
    text = f"loop {duration(loop)}, {amount(times['samples_per_s'])} samples/s, start-up "
    text += duration(times["startup_mean_ns"])
    if loader.scope.num_workers:
        text += f", workers idle {share(times['workers_idle_share'])}"
    return result + _wrap(text)


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_on_hyphens=False) or [text]
