"""Texts and shell commands for comparisons that cannot be judged."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lotus.analysis.common.scope import RunLike
from lotus.common.text.redaction import HIDDEN
from lotus.compare.uncertainty import Difference

# An interval that contains both 0 and a change by more than this factor is too wide.
WIDE = 1.2
_WIDE_SHARE = 0.1  # the same for a difference of shares
ENOUGH = 3  # runs per side from which intervals include the variation between runs


def unclear(gap: Difference, unit: str = "") -> bool:
    """Return True if an interval is too wide to distinguish a difference from none."""
    if not gap.has_interval or not gap.low <= 0 <= gap.high:
        return False
    if gap.relative:
        return gap.low < 1 / WIDE - 1 or gap.high > WIDE - 1
    return unit == "share" and max(-gap.low, gap.high) > _WIDE_SHARE


def looks(letter: str, of: str, gap: Difference) -> str:
    """Describe an uncertain difference of throughput: "B looks 8.0 times slower than A"."""
    return f"{letter} looks {change(gap.difference)} than {of}"


def span(gap: Difference) -> str:
    """Describe an interval: "12 times slower to 11 times faster"."""
    return f"{change(gap.low)} to {change(gap.high)}"


def change(part: float) -> str:
    """Describe b / a - 1 of a throughput: "3.1% slower", "8.0 times slower"."""
    word = "faster" if part >= 0 else "slower"
    ratio = 1 + part if part >= 0 else 1 / max(1 + part, 1e-9)
    if ratio < WIDE:
        return f"{abs(part):.1%} {word}"
    if ratio > 1000:
        return f"over 1,000 times {word}"
    return f"{ratio:,.0f} times {word}" if ratio >= 20 else f"{ratio:.1f} times {word}"


def runs_needed(a: Sequence[RunLike], b: Sequence[RunLike]) -> int:
    """Return how many runs of each side would give a better interval."""
    fewest = min(len(a), len(b))
    return ENOUGH if fewest < ENOUGH else 2 * fewest


def commands(
    a: Sequence[RunLike], b: Sequence[RunLike], letters: tuple[str, str] = ("A", "B")
) -> tuple[str, ...]:
    """Return shell lines that record enough runs of each side in turn; () if unknown."""
    traced = [_traced(side[0].manifest) for side in (a, b)]
    if not all(text for _, text in traced) or any(HIDDEN in text for _, text in traced):
        return ()
    numbers = " ".join(str(number + 1) for number in range(runs_needed(a, b)))
    lines = [f"for i in {numbers}; do"]
    places = [f"compare-{letter.lower().replace(' ', '-')}" for letter in letters]
    for letter, place, (options, command) in zip(letters, places, traced, strict=True):
        # If the commands are equal, something else differed that only the user knows.
        mark = f"   # as {letter} was" if traced[0] == traced[1] else ""
        lines.append(f"  lotus trace -q -o {place}/$i{options} -- {command}{mark}")
    return (*lines, "done", f"lotus compare {places[0]} {places[1]}")


def _traced(manifest: Any) -> tuple[str, str]:
    """Return the options of lotus trace and the command of a run; ("", "") if unknown."""
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
