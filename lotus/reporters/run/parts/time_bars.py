"""The parts of the wall time of a run, one bar per line."""

from collections.abc import Iterator, Mapping, Sequence

from lotus.analysis.summary import Summary
from lotus.analysis.verdict import run_time
from lotus.common.text.formatting import duration, plain, share, shorten

WAITING, TRAINING = "waiting for data", "training step"
_WORDS = {
    run_time.START: "imports and set-up",
    run_time.WAIT: WAITING,
    run_time.FIRST_STEP: "first step, beyond a usual one",
    run_time.STEP: TRAINING,
    run_time.EDGES: "first batch, shut-down",
    run_time.BETWEEN: "between the loops",
    run_time.AFTER: "after the last loop",
    run_time.CALLBACK: "lotus's own callback",
    run_time.REST: "the rest",
}
_BAR, _WIDEST = 24, 36  # columns
_ROUNDED_OFF = 0.005  # of the wall time
_MUCH_DELAYED, _LONG_NS = 0.2, 1e9  # of the imports and the set-up
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def parts(summary: Summary, most: int = run_time.MOST_PARTS) -> Iterator[tuple[str, float, float]]:
    """Yield (part, nanoseconds, share of the wall time), in the order of a run; at most `most`.

    The part that the verdict is about is one of them, however small.
    """
    names = {each.scope.loader: _name(each.scope.settings) for each in summary.loaders}
    kept = None
    if summary.verdict is not None and summary.verdict.kind in run_time.OF_VERDICT:
        kept = run_time.OF_VERDICT[summary.verdict.kind], summary.loaders[0].scope.loader
    return parts_of(summary.time, names, most, kept)


def parts_of(
    time: run_time.RunTime | None,
    names: Mapping[int, str],
    most: int = run_time.MOST_PARTS,
    kept: tuple[str, int] | None = None,
) -> Iterator[tuple[str, float, float]]:
    """Yield the same from a time and the names of loaders by number."""
    if time is None:
        return
    several = len({part.loader for part in time.parts if part.loader >= 0}) > 1
    for part in run_time.condensed(time, most, kept):
        words = _WORDS[part.kind]
        if part.loader >= 0 and several:
            words += f", {names.get(part.loader) or f'loader {part.loader}'}"
        yield words, part.ns, part.ns / time.wall_ns


def _name(settings: dict[str, object]) -> str:
    name = settings.get("name")
    return shorten(plain(name), 16) if isinstance(name, str) else ""


def lines(summary: Summary, most: int = run_time.MOST_PARTS) -> Iterator[str]:
    """Yield a heading and a line for each of at most `most` parts, at most 80 columns wide.

    Without a line for the rest where it is no more than what is rounded off.
    """
    rest = _WORDS[run_time.REST]
    shown = [each for each in parts(summary, most) if each[0] != rest or each[2] >= _ROUNDED_OFF]
    return lines_of(summary.time, shown)


def lines_of(
    time: run_time.RunTime | None, parts: Sequence[tuple[str, float, float]]
) -> Iterator[str]:
    """Yield the same from given parts."""
    if not parts or time is None:
        return
    yield f"Where the {duration(time.wall_ns)} went"
    widest = min(max(len(words) for words, _, _ in parts), _WIDEST)
    for words, ns, part in parts:
        figures = f"{duration(ns):>7} {share(part):>5}"
        yield f"  {shorten(words, widest):{widest}}  {bar(part):{_BAR}}  {figures}"
    delayed = without_core(time)
    if delayed:
        yield f"  {delayed}"


def without_core(time: run_time.RunTime | None) -> str:
    """Return a sentence on how long the imports and the set-up had no core; "" if that was short.

    What other programs took of the loops is told with the verdict.
    """
    if time is None:
        return ""
    before = time.of(run_time.IMPORTS, run_time.SETUP)
    if not time.delay_before_ns >= max(_MUCH_DELAYED * before, _LONG_NS):
        return ""
    delayed = duration(time.delay_before_ns)
    return f"For {delayed} of imports and set-up, the process had no core to run on."


def bar(part: float) -> str:
    """Return a bar that fills `part` (0 to 1) of the full width."""
    eighths = round(part * _BAR * 8)
    full, remainder = divmod(eighths, 8)
    return _EIGHTHS[8] * full + (_EIGHTHS[remainder] if remainder else "")
