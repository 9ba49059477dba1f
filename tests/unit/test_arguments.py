"""What options take, and what is said of what they do not."""

import argparse
import math

import pytest

from lotus import arguments


@pytest.mark.parametrize("text", ["1", "100", "007"])
def test_whole_numbers(text: str) -> None:
    assert arguments.whole(1, 100)(text) == int(text)


@pytest.mark.parametrize("text", ["0", "101", "-1", "1.5", "", "x", "٣", "9" * 5000])
def test_what_is_no_whole_number_is_said(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no whole number from 1 to 100"):
        arguments.whole(1, 100)(text)


def test_real_numbers() -> None:
    assert arguments.real(0)("2.5") == 2.5
    for text in ("nan", "inf", "-1", "x", "1e999"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no number from 0 on"):
            arguments.real(0)(text)
    with pytest.raises(argparse.ArgumentTypeError, match=r"from 0.1 to 3600"):
        arguments.real(0.1, 3600)(str(math.pi * 1e6))


@pytest.mark.parametrize("text", ["100:200", "50:", ":7", ":"])
def test_ranges(text: str) -> None:
    assert arguments.batches(text) == text


@pytest.mark.parametrize("text", ["7", "7:7", "9:8", "a:b", "1:2:3"])
def test_what_is_no_range_is_said(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no range of batches"):
        arguments.batches(text)


def test_loaders_go_by_number_or_name() -> None:
    assert arguments.loader("3") == 3
    assert arguments.loader("Faces") == "Faces"
    assert arguments.loader("1" * 20) == "1" * 20
