"""What to say, and what to type, where a comparison cannot be judged."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lotus.analysis.common.scope import RunLike
from lotus.common.redaction import HIDDEN
from lotus.compare.uncertainty import Difference

# An interval that has both no difference and a change by more than this factor says too little.
WIDE = 1.2
_WIDE_SHARE = 0.1  # the same of a difference of two shares
ENOUGH = 3  # runs a side, of which an interval knows how runs differ


def unclear(gap: Difference, unit: str = "") -> bool:
    """Whether an interval is too wide to tell a difference from none."""
    if not gap.has_interval or not gap.low <= 0 <= gap.high:
        return False
    if gap.relative:
        return gap.low < 1 / WIDE - 1 or gap.high > WIDE - 1
    return unit == "share" and max(-gap.low, gap.high) > _WIDE_SHARE


def looks(letter: str, of: str, gap: Difference) -> str:
    """A difference of throughput that is not known well: "B looks 8.0 times slower than A"."""
    return f"{letter} looks {change(gap.difference)} than {of}"


def span(gap: Difference) -> str:
    """Its interval: "12 times slower to 11 times faster"."""
    return f"{change(gap.low)} to {change(gap.high)}"


def change(part: float) -> str:
    """b / a - 1 of a throughput: "3.1% slower", "8.0 times slower"."""
    word = "faster" if part >= 0 else "slower"
    ratio = 1 + part if part >= 0 else 1 / max(1 + part, 1e-9)
    if ratio < WIDE:
        return f"{abs(part):.1%} {word}"
    if ratio > 1000:
        return f"over 1,000 times {word}"
    return f"{ratio:,.0f} times {word}" if ratio >= 20 else f"{ratio:.1f} times {word}"


def runs_needed(a: Sequence[RunLike], b: Sequence[RunLike]) -> int:
    """How many runs of each would tell more."""
    fewest = min(len(a), len(b))
    return ENOUGH if fewest < ENOUGH else 2 * fewest


def commands(
    a: Sequence[RunLike], b: Sequence[RunLike], letters: tuple[str, str] = ("A", "B")
) -> tuple[str, ...]:
    """Lines to type in a shell that record enough runs of each side, in turns; () if unknown."""
    traced = [_traced(side[0].manifest) for side in (a, b)]
    if not all(text for _, text in traced) or any(HIDDEN in text for _, text in traced):
        return ()
    numbers = " ".join(str(number + 1) for number in range(runs_needed(a, b)))
    lines = [f"for i in {numbers}; do"]
    places = [f"compare-{letter.lower().replace(' ', '-')}" for letter in letters]
    for letter, place, (options, command) in zip(letters, places, traced, strict=True):
        # Of two commands that are the same something else differed: only its owner knows what.
        mark = f"   # as {letter} was" if traced[0] == traced[1] else ""
        lines.append(f"  lotus trace -q -o {place}/$i{options} -- {command}{mark}")
    return (*lines, "done", f"lotus compare {places[0]} {places[1]}")


def _traced(manifest: Any) -> tuple[str, str]:
    """Options of lotus trace, and the command of a run; ("", "") if unknown."""
    command = manifest.get("command")
    if not isinstance(command, list) or not command:
        return "", ""
    options = ""
    for name, usual in (("level", "op"), ("every", 1), ("batches", None)):
        value = manifest.get(name)
        if value not in (None, usual):
            options += f" --{name} {shlex.quote(str(value))}"
    text = shlex.join(str(word) for word in command)
    where = manifest.get("cwd")
    if isinstance(where, str) and where and Path(where) != Path.cwd():
        text = f"env -C {shlex.quote(where)} {text}"
    return options, text
