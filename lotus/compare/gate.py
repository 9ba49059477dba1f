"""Decides whether a comparison passes: `lotus compare --fail-above`."""

from collections.abc import Sequence
from dataclasses import dataclass

from lotus.common.errors import LotusError
from lotus.compare.comparison import Comparison, have_one_run
from lotus.compare.next_step import unclear


@dataclass(frozen=True)
class RegressionGate:
    """The result; `failed`: the whole interval of a side is worse by more than `above`."""

    metric: str
    above: float
    failed: bool
    texts: Sequence[str]


def judge(comparisons: Sequence[Comparison], metric: str, above: float) -> RegressionGate:
    """Judge every comparison by one metric: the id of a line.

    Worse means less throughput, or more of any other measure. Raises LotusError if a comparison
    cannot be judged, which is neither a pass nor a failure.
    """
    texts: list[str] = []
    failed = lone = False
    for comparison in comparisons:
        name = comparison.b.letter + (f" ({comparison.setting})" if comparison.setting else "")
        if comparison.verdict.kind == "not comparable":
            raise LotusError(f"--fail-above cannot be judged: {comparison.verdict.text}")
        line = comparison.line(metric)
        if line is None:
            ids = ", ".join(
                other.id for other in [*comparison.loaders[0].lines, *comparison.lines][:40]
            )
            raise LotusError(f"{metric} was not measured on both sides; there are: {ids}")
        worse, low, high = line.slowdown
        if comparison.verdict.kind == "same run":
            worse = low = high = 0.0
        elif not line.difference.has_interval:
            raise LotusError(
                f"--fail-above cannot be judged: there is no interval for {metric} of {name}; "
                "record more batches, or several runs of each side: lotus compare A1,A2 B1,B2"
            )
        slower = low > above
        failed |= slower
        lone |= have_one_run(comparison.a, comparison.b) and comparison.verdict.kind != "same run"
        texts.append(_text(slower, f"{metric} of {name}", (worse, low, high), above))
        if unclear(line.difference, line.unit):
            texts.append(
                "That interval is too wide to tell a difference from none: record more runs of "
                "each side."
            )
    if lone:
        texts.append(
            "Each side has one run, and runs of the same program differ: for a reliable test, "
            "give three or more runs of each side."
        )
    return RegressionGate(metric, above, failed, texts)


def _words(worse: float) -> str:
    return f"worse by {worse:.1%}" if worse >= 0 else f"better by {-worse:.1%}"


def _text(slower: bool, what: str, worse: tuple[float, float, float], above: float) -> str:
    value, low, high = worse
    return (
        f"{'Failed' if slower else 'Passed'}: {what} is {_words(value)}; the interval of how much "
        f"worse ({low:.1%} to {high:.1%}) is {'' if slower else 'not '}entirely above "
        f"{100 * above:g}%"
    )
