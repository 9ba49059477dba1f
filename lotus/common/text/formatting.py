"""Numbers and names as a person reads them. Nothing from a trace reaches a terminal unescaped."""

import math
import re
import shlex
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

from lotus.common.terminal.stderr import printable
from lotus.common.text.decoder_name import STORED, decoder_name

MISSING = "-"
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def duration(ns: float) -> str:
    """Format nanoseconds with three digits and a unit: `1.23 s`, `890 µs`; `-` for NaN."""
    if math.isnan(ns):
        return MISSING
    if ns == 0:
        return "0"
    if abs(ns) >= 600e9:
        minutes, seconds = divmod(round(abs(ns) / 1e9), 60)
        hours, minutes = divmod(minutes, 60)
        text = f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"
        return ("-" if ns < 0 else "") + text
    # 999.6 µs is 1.00 ms, not 1000 µs.
    scale, unit = next((entry for entry in _TIMES if abs(ns) >= entry[0] * 0.9995), _TIMES[-1])
    return f"{_three(ns / scale)} {unit}"


def seconds(value: float) -> str:
    """Format seconds as `duration` formats nanoseconds."""
    return duration(value * 1e9)


def size(count: float) -> str:
    """Return bytes with three digits and a unit; `-` for NaN."""
    if math.isnan(count):
        return MISSING
    if count == 0:
        return "0"
    scale, unit = next((entry for entry in _SIZES if abs(count) >= entry[0]), _SIZES[-1])
    return f"{_three(count / scale)} {unit}"


def _three(value: float) -> str:
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if magnitude >= 9.995 else f"{value:.2f}"


def share(part: float) -> str:
    """Return a fraction in per cent; `-` for NaN."""
    if math.isnan(part):
        return MISSING
    if 0 < part < 0.0005:
        return "<0.1%"
    return f"{part:.0%}" if part >= 0.0995 or part == 0 else f"{part:.1%}"


def amount(value: float) -> str:
    """Return a count or rate, thousands apart; `-` for NaN."""
    if math.isnan(value):
        return MISSING
    if abs(value) < 10 and value != int(value):
        return f"{value:.2f}"
    return f"{value:,.0f}"


_LONGEST = 4096  # PATH_MAX


def plain(text: object) -> str:
    """Return `text` on one line, with all that could steer a terminal or hide in it escaped.

    Of one that is longer than any path (a name of a megabyte) the middle is left out.
    """
    return printable(shorten(str(text), _LONGEST)).replace("\n", "\\n")


def shorten(text: str, width: int) -> str:
    """Return `text` in at most `width` characters, without its middle if it is longer."""
    if len(text) <= width:
        return text
    head = (width - 1) // 3
    return text[:head] + "…" + text[len(text) - (width - 1 - head) :]


def command(words: Iterable[object]) -> str:
    """Return a command line on one line."""
    return plain(shlex.join(str(word) for word in words))


def brief_command(words: Sequence[object], width: int) -> str:
    """Return a command in at most `width` characters; a longer one has names for absolute paths."""
    text = command(words)
    if len(text) > width:
        names = [str(word) for word in words]
        text = command(Path(word).name if word.startswith("/") else word for word in names)
    return shorten(text, width)


def factor(value: float) -> str:
    """Format a speed-up: three digits, or all before the point: 1.52, 152, 1,520."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def factor_between(mean: float, low: float, high: float) -> str:
    """Format the same with its interval, to two digits after the point: `1.87 (1.84 to 1.91)`."""
    return f"{_three(mean)} ({_three(low)} to {_three(high)})"


def plural(count: float, noun: str) -> str:
    """Return a count with its noun: `1 batch`, `2,000 batches`."""
    ending = "es" if noun.endswith(("batch", "pass", "process")) else "s"
    return f"{amount(count)} {noun}{'' if count == 1 else ending}"


def big(value: float) -> str:
    """Return a count with three digits and a unit: 1.23 G."""
    if math.isnan(value):
        return MISSING
    for scale, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale * 0.9995:
            return f"{value / scale:.3g}{unit}"
    return f"{value:.0f}"


def operation_name(name: object) -> str:
    """Return an operation as it is shown: the decoder of a folder data set is stored as "Loader".

    The name may hold others: "Outer/Inner" lies inside Outer, "A or B" is one of them.
    """
    return _DECODER.sub(lambda _: decoder_name(), str(name))


_DECODER = re.compile(rf"(?:(?<=^)|(?<=/)|(?<= or )){STORED}(?=$|/| or )")


def library(name: str) -> str:
    """Return a library's name without the build: `_imaging.so`, `libjpeg.so`."""
    name = re.sub(r"\.(cpython-\d+[a-z]*|abi3|pypy\w*)(-[\w-]+)?(?=\.so)", "", name)
    name = re.sub(r"-[0-9a-f]{8}(?=\.so)", "", name)  # as auditwheel names what a wheel brings
    return re.sub(r"(?<=\.so)(\.\d+)+$", "", name)


def signal_name(number: int | None) -> str:
    """Return the name of a signal, such as SIGTERM."""
    try:
        return signal.Signals(number or 0).name
    except ValueError:  # one of the real-time signals
        return f"signal {number}"
