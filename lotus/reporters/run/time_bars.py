"""Where the wall time of a run went, as a bar a line."""

from collections.abc import Iterator

from lotus.analysis.summary import Summary
from lotus.analysis.verdict import run_time
from lotus.common.formatting import duration, plain, share, shorten

WAITING, TRAINING = "waiting for data", "training step"
_WORDS = {
    run_time.START: "imports and set-up",
    run_time.WAIT: WAITING,
    run_time.STEP: TRAINING,
    run_time.EDGES: "start-up, shut-down",
    run_time.BETWEEN: "between the loops",
    run_time.AFTER: "after the last loop",
    run_time.REST: "the rest",
}
_BAR, _WIDEST = 24, 36  # columns
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def parts(summary: Summary) -> Iterator[tuple[str, float, float]]:
    """(what, nanoseconds, share of the wall time), in the order of a run."""
    time = summary.time
    if time is None:
        return
    names = {each.scope.loader: _name(each.scope.settings) for each in summary.loaders}
    several = len({part.loader for part in time.parts if part.loader >= 0}) > 1
    for part in run_time.condensed(time):
        words = _WORDS[part.kind]
        if part.loader >= 0 and several:
            words += f", {names.get(part.loader) or f'loader {part.loader}'}"
        yield words, part.ns, part.ns / time.wall_ns


def _name(settings: dict[str, object]) -> str:
    name = settings.get("name")
    return shorten(plain(name), 16) if isinstance(name, str) else ""


def lines(summary: Summary) -> Iterator[str]:
    """A heading and a line for each part, at most 80 columns wide."""
    shown = list(parts(summary))
    if not shown or summary.time is None:
        return
    yield f"Where the {duration(summary.time.wall_ns)} went"
    widest = min(max(len(words) for words, _, _ in shown), _WIDEST)
    for words, ns, part in shown:
        figures = f"{duration(ns):>7} {share(part):>5}"
        yield f"  {shorten(words, widest):{widest}}  {bar(part):{_BAR}}  {figures}"


def bar(part: float) -> str:
    """A bar of `part` (0 to 1) of the full width."""
    eighths = round(part * _BAR * 8)
    full, left = divmod(eighths, 8)
    return _EIGHTHS[8] * full + (_EIGHTHS[left] if left else "")
