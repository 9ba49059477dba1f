"""Types of arguments that verbs share.

Each converts a text, or raises argparse.ArgumentTypeError with the accepted form.
"""

import argparse
import math
import re
from collections.abc import Callable, Collection

_NUMBER = r"(\d+\.?\d*|\.\d+)"
_NANOSECONDS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "m": 6e10, "min": 6e10}
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_LONGEST_S = 1e6


def whole(least: int, most: int = 1_000_000) -> Callable[[str], int]:
    """A type: whole numbers from `least` to `most`."""

    def number(text: str) -> int:
        if re.fullmatch(r"\d{1,18}", text, re.ASCII) and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most:,}")

    return number


def pid(text: str) -> int:
    """A type: the number of a process."""
    try:
        return whole(1, 1 << 31)(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no PID (`lotus attach` alone finds the process with torch, or lists "
            "several)"
        ) from None


def real(least: float, most: float = math.inf) -> Callable[[str], float]:
    """A type: finite numbers from `least` to `most`."""

    def number(text: str) -> float:
        value = _float(text)
        if least <= value <= most and value < math.inf:
            return value
        limits = f"of {least:g} or more" if most == math.inf else f"from {least:g} to {most:g}"
        raise argparse.ArgumentTypeError(f"{text!r} is not a number {limits}")

    return number


def positive(text: str) -> float:
    """A type: finite numbers above 0."""
    value = _float(text)
    if 0 < value < math.inf:
        return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def share(text: str) -> float:
    """A type: a percentage such as 5%, or a fraction below 1 such as 0.05; returns the fraction."""
    number = text.strip()
    percent = number.endswith("%")
    value = _float(number[:-1]) / 100 if percent else _float(number)
    # A plain 5 may be meant as 5 % or as 500 %.
    if 0 <= value < (math.inf if percent else 1):
        return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a share such as 5% or 0.05")


def probability(text: str) -> float:
    """A type: a fraction from 0 to 1, or a percentage from 0% to 100%; returns the fraction."""
    number = text.strip()
    value = _float(number[:-1]) / 100 if number.endswith("%") else _float(number)
    if 0 <= value <= 1:
        return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a probability from 0 to 1, such as 0.1")


def size(text: str) -> int:
    """A type: a size such as 500MB or 2GiB, in bytes; without a unit it is bytes already.

    K, M, G and T are powers of 1,000, Ki to Ti powers of 1,024; B may be left out.
    """
    match = re.fullmatch(_NUMBER + r"\s*([KMGT]?)(i?)B?", text.strip(), re.ASCII | re.IGNORECASE)
    if match is None or (match[3] and not match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500MB or 2GiB")
    value = int(_bytes(match[1], match[2], match[3]))
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is less than one byte")
    return value


def size_or_zero(text: str) -> int:
    """A type: as `size`, or 0."""
    return 0 if text.strip() == "0" else size(text)


def rate(text: str) -> float:
    """A type: a rate such as 200MB/s or 1GiB/s, in bytes a second. "/s" may be left out."""
    match = re.fullmatch(_NUMBER + r"\s*([kKMGT]?)(i?)B(?:/s)?", text.strip(), re.ASCII)
    if match is None or (match[3] and not match[2]) or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate such as 200MB/s or 1GiB/s")
    return _bytes(match[1], match[2], match[3])


def nanoseconds(text: str) -> float:
    """A type: a time with its unit, such as 20ms; returns nanoseconds."""
    match = re.fullmatch(_NUMBER + r" ?(ns|us|µs|ms|s|min|m)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 50us, 20ms or 1.5s")
    return float(match[1]) * _NANOSECONDS[match[2]]


def seconds(text: str) -> float:
    """A type: a time such as 90s, 2m or 500ms; a number without a unit is seconds already."""
    match = re.fullmatch(_NUMBER + r" ?(ns|us|µs|ms|s|min|m|)", text)
    if match is not None:
        value = float(match[1]) * _NANOSECONDS[match[2] or "s"] / 1e9
        if value < _LONGEST_S:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90s or 2m")


def positive_seconds(text: str) -> float:
    """A type: as `seconds`, above 0."""
    value = seconds(text)
    if value:
        return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a time above 0, such as 90s or 2m")


def age(text: str) -> float:
    """A type: a time such as 12h, 30d or 8w, in seconds."""
    match = re.fullmatch(_NUMBER + r" ?([hdw])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 12h, 30d or 8w")
    return float(match[1]) * {"h": 3600, "d": 86_400, "w": 604_800}[match[2]]


def words(accepted: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    """A type: a list of some of these words with commas between them, each once."""

    def chosen(text: str) -> tuple[str, ...]:
        items = _items(text)
        if not items or any(item not in accepted for item in items):
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a list of {', '.join(accepted)}, with commas between them"
            )
        return items

    return chosen


def numbers(least: int, most: int) -> Callable[[str], tuple[int, ...]]:
    """A type: whole numbers with commas between them; returns them in order, each once."""

    def chosen(text: str) -> tuple[int, ...]:
        items = _items(text)
        if not items or not all(re.fullmatch(r"\d{1,9}", item, re.ASCII) for item in items):
            items = ()
        values = sorted({int(item) for item in items})
        if not values or values[0] < least or values[-1] > most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a list of whole numbers from {least} to {most:,}, with commas "
                "between them"
            )
        return tuple(values)

    return chosen


def switches(text: str) -> tuple[bool, ...]:
    """A type: on, off, or both with a comma between them."""
    return tuple(word == "on" for word in words(("on", "off"))(text))


def batches(text: str) -> str:
    """A type: a range of batches such as 100:200, 50: or :7."""
    match = re.fullmatch(r"(\d*):(\d*)", text)
    if not match or (match[1] and match[2] and int(match[1]) >= int(match[2])):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a range of batches such as 100:200 or 50:"
        )
    return text


def loader(text: str) -> int | str:
    """A type: a loader's number, or another way to name it."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else text


def qualified_name(text: str) -> str:
    """A type: a callable as package.module:name."""
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a callable such as package.module:function"
        )
    return text


def speedup(text: str) -> tuple[str, float]:
    """A type: a part of the work and a factor, such as Decode=2."""
    name, _, factor = text.rpartition("=")
    value = _float(factor)
    if not name or not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not PART=FACTOR with a factor above 0, such as Decode=2"
        )
    return name, value


def rank_limit(text: str) -> tuple[int, int]:
    """A type: a rank and the samples that it can hold, such as 0=64."""
    match = re.fullmatch(r"(\d{1,9})=(\d{1,9})", text, re.ASCII)
    if match is None or not int(match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not RANK=SAMPLES, such as 0=64")
    return int(match[1]), int(match[2])


def link_latency(text: str) -> tuple[tuple[int, int], float]:
    """A type: two ranks and the latency between them in nanoseconds, such as 0-1=50us."""
    match = re.fullmatch(r"(\d{1,9})-(\d{1,9})=(.+)", text, re.ASCII | re.DOTALL)
    if match is not None:
        try:
            return (int(match[1]), int(match[2])), nanoseconds(match[3])
        except argparse.ArgumentTypeError:
            pass
    raise argparse.ArgumentTypeError(f"{text!r} is not RANK-RANK=TIME, such as 0-1=50us")


def groups(text: str) -> tuple[tuple[int, ...], ...]:
    """A type: groups of ranks such as 0,1/2,3, which have each rank from 0 on once."""
    ranks: list[int] = []
    parts: tuple[tuple[int, ...], ...] = ()
    if re.fullmatch(r"\d{1,6}([,/]\d{1,6})*", text, re.ASCII):
        parts = tuple(tuple(map(int, part.split(","))) for part in text.split("/"))
        ranks = [rank for part in parts for rank in part]
    if not ranks or sorted(ranks) != list(range(len(ranks))):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of groups with each rank once, such as 0,1/2,3"
        )
    return parts


def _float(text: str) -> float:
    """Return the number, NaN for any other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _items(text: str) -> tuple[str, ...]:
    """Return the words between commas, each once; none if one of them is empty."""
    items = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    return items if all(items) else ()


def _bytes(number: str, unit: str, binary: str) -> float:
    return float(number) * float(1024 if binary else 1000) ** _POWERS[unit.upper()]
