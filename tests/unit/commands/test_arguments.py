"""Types of arguments: what they accept, and the errors for everything else."""

import argparse
import math
from collections.abc import Callable

import pytest

from lotus.commands.common import arguments


@pytest.mark.parametrize("text", ["1", "100", "007"])
def test_whole_numbers(text: str) -> None:
    assert arguments.whole(1, 100)(text) == int(text)


@pytest.mark.parametrize("text", ["0", "101", "-1", "1.5", "", "x", "٣", "9" * 5000])
def test_other_text_is_refused_for_a_whole_number(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number from 1 to 100"):
        arguments.whole(1, 100)(text)


def test_real_numbers() -> None:
    assert arguments.real(0)("2.5") == 2.5
    for text in ("nan", "inf", "-1", "x", "1e999"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a number of 0 or more"):
            arguments.real(0)(text)
    with pytest.raises(argparse.ArgumentTypeError, match=r"from 0.1 to 3600"):
        arguments.real(0.1, 3600)(str(math.pi * 1e6))


@pytest.mark.parametrize("text", ["100:200", "50:", ":7", ":"])
def test_ranges(text: str) -> None:
    assert arguments.batches(text) == text


@pytest.mark.parametrize("text", ["7", "7:7", "9:8", "a:b", "1:2:3"])
def test_other_text_is_refused_for_a_range(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a range of batches"):
        arguments.batches(text)


def test_loaders_go_by_number_or_name() -> None:
    assert arguments.loader("3") == 3
    assert arguments.loader("Faces") == "Faces"
    assert arguments.loader("1" * 20) == "1" * 20


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("2m", 120.0), ("1.5 min", 90.0), ("0", 0.0)]
)
def test_times_in_seconds(text: str, seconds: float) -> None:
    assert arguments.seconds(text) == seconds


REFUSED: list[tuple[Callable[[str], object], list[str], str]] = [
    (arguments.positive, ["0", "-1", "nan", "inf", "x"], "is not a number above 0"),
    (arguments.share, ["5", "1", "-1%", "x", "nan%", "%"], "is not a share such as 5% or 0.05"),
    (arguments.probability, ["1.1", "101%", "-0.1", "x"], "is not a probability from 0 to 1"),
    (arguments.size, ["lots", "1iB", "-5", "", "5MB/s", "\u0661MB"], "is not a size such as 500MB"),
    (arguments.size, ["0", "0.5"], "is less than one byte"),
    (arguments.rate, ["fast", "0MB/s", "200", "1.2.3MB/s"], "is not a rate such as 200MB/s"),
    (arguments.nanoseconds, ["20", "1.2.3ms", "-5ms", "ms"], "is not a time such as 50us"),
    (arguments.seconds, ["-1", "x", "1h", "1e9", "999999999"], "is not a time such as 90s or 2m"),
    (arguments.positive_seconds, ["0", "0s"], "is not a time above 0"),
    (arguments.words(("a", "b")), ["", "c", "a,,b", "a,"], "is not a list of a, b"),
    (arguments.numbers(1, 9), ["", "0", "10", "1,x", "1,"], "whole numbers from 1 to 9"),
    (arguments.switches, ["yes", "", "on,maybe"], "is not a list of on, off"),
    (arguments.qualified_name, ["no_colon", "a.b:", ":f", "1:f"], "is not a callable such as"),
    (arguments.speedup, ["Decode", "=2", "a=-1", "a=x"], "is not PART=FACTOR"),
    (arguments.rank_limit, ["x", "0=0", "-1=5", "0=64=1"], "is not RANK=SAMPLES"),
    (arguments.link_latency, ["0-1", "0-1=5", "0=5us"], "is not RANK-RANK=TIME"),
    (arguments.groups, ["", "0,2", "0,0", "a", "0,1/"], "list of groups with each rank once"),
]


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [(kind, text, message) for kind, texts, message in REFUSED for text in texts],
)
def test_the_error_says_what_is_accepted(
    kind: Callable[[str], object], text: str, message: str
) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as error:
        kind(text)
    assert message in str(error.value)
    assert str(error.value).startswith(repr(text))


def test_lists_and_pairs() -> None:
    assert arguments.numbers(0, 9)("4, 2,4") == (2, 4)
    assert arguments.words(("a", "b"))("b,a,b") == ("b", "a")
    assert arguments.switches("off,on") == (False, True)
    assert arguments.speedup("a=b=2") == ("a=b", 2.0)
    assert arguments.rank_limit("0=64") == (0, 64)
    assert arguments.link_latency("0-1=50us") == ((0, 1), 50e3)
    assert arguments.groups("0,1/2,3") == ((0, 1), (2, 3))
    assert arguments.share("150%") == 1.5
    assert arguments.probability("1") == 1.0
