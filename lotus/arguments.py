"""Types of options that several verbs share. What they refuse is said in argparse's error line."""

import argparse
import math
import re
from collections.abc import Callable

_TIMES = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}


def whole(least: int, most: int = 1_000_000) -> Callable[[str], int]:
    """A type: whole numbers from `least` to `most`."""

    def number(text: str) -> int:
        if re.fullmatch(r"\d{1,18}", text, re.ASCII) and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} to {most:,}")

    return number


def real(least: float, most: float = math.inf) -> Callable[[str], float]:
    """A type: finite numbers from `least` to `most`."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if least <= value <= most and value < math.inf:
            return value
        limits = f"from {least:g} on" if most == math.inf else f"from {least:g} to {most:g}"
        raise argparse.ArgumentTypeError(f"{text!r} is no number {limits}")

    return number


def batches(text: str) -> str:
    """A range of batches, as --batches takes it."""
    match = re.fullmatch(r"(\d*):(\d*)", text)
    if not match or (match[1] and match[2] and int(match[1]) >= int(match[2])):
        raise argparse.ArgumentTypeError(f"{text!r} is no range of batches such as 100:200 or 50:")
    return text


def loader(text: str) -> int | str:
    """A loader's number, or what else names it."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else text


def nanoseconds(text: str) -> float:
    """A type: a time such as 20ms."""
    found = re.fullmatch(r"([0-9.]+) ?(ns|us|µs|ms|s)", text)
    if found is None:
        raise ValueError(text)
    return real(0)(found[1]) * _TIMES[found[2]]
