"""Frames of py-spy's stacks in blocking.json, as anybody may have written them."""

import re

import pytest

from lotus.format.stack_frames import parsed
from lotus.reading.launcher.launcher_record import LauncherRecord
from lotus.reading.launcher.own_code_table import table

FRAME = re.compile(r"(.+) \((.+):(\d{1,9})\)", re.ASCII)


@pytest.mark.parametrize(
    "text",
    [
        "main (train.py:3)", "a b (c d (e:5)", "f (g) (h:i:7)", "f (x:999999999)", "f (x:)",
        "f (x:1234567890)", "f (:3)", " (x:3)", "f(x:3)", "f (x:3", "f (x:3))", "f (x:3) ", "",
        ")", "f (x:\u0663)", "f (x:-3)", "f\n (x:3)", "f (x\n:3)",
    ],
)  # fmt: skip
def test_a_frame_is_read_as_the_pattern_says(text: str) -> None:
    match = FRAME.fullmatch(text)
    assert parsed(text) == (match and (match[1], match[2], int(match[3])))


@pytest.mark.parametrize("part", ["x (", " (:1", "x (a:1", "/lotus/inside/", "(" * 7])
def test_frames_that_begin_like_many_are_read_once(part: str) -> None:
    frame = (part * 2000)[:1999]
    lines = [f"{';'.join([frame] * 199)};<module> (t.py:1) 5"] * 10
    assert table(LauncherRecord({"own_code": lines})) is not None


def test_halves_of_surrogate_pairs_are_replaced() -> None:
    """JSON can hold them, and a column of pandas cannot."""
    stack = "<module> (/t\ud800.py:1);f\udcff (/t.py:2) 5"
    rows = table(LauncherRecord({"own_code": [stack], "own_code_texts": {"/t.py:2": "\ud800"}}))
    assert rows["file"].tolist() == ["/t?.py", "/t.py"]
    assert rows["function"].tolist() == ["<module>", "f?"]
    assert rows["text"].tolist() == ["", "?"]


@pytest.mark.parametrize(
    ("stored", "told"),
    [("absent", "absent"), ("forbidden", "forbidden"), ("", ""), ("x" * 99, ""), ([], ""), (1, "")],
)
def test_why_there_are_no_stacks_is_one_of_few_words(stored: object, told: str) -> None:
    assert LauncherRecord({"no_stacks": stored}).no_stacks == told
