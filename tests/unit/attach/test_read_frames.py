"""Frames as py-spy reads them: qualified names, and stacks that were torn."""

import pytest

from lotus.attach.stacks import read_frames
from native_map.recording.python_frame import Frame
from tests.unit.attach.test_stack_phases import NEXT, TRAIN, Sources, stack


def test_python_before_3_11_does_not_tell_classes() -> None:
    frames = read_frames.qualified(stack("__call__ /app/data.py:12"), Sources())
    assert frames[0].function == "Blur.__call__"


@pytest.mark.parametrize("function", ["", "a\x00b", "x" * 3000, "\ufffd\ufffd"])
def test_torn_stacks_are_known(function: str) -> None:
    assert read_frames.is_torn([Frame("main", TRAIN, 1), Frame(function, TRAIN, 2)])
    assert not read_frames.is_torn(stack(*NEXT))


def test_a_word_without_a_line_is_no_file() -> None:
    # As py-spy 0.4 read it of Lightning, with 3216263545 as its line.
    assert read_frames.is_torn([Frame("main", TRAIN, 1), Frame("__package__", "__doc__", 0)])
    # Of code that a program compiles under a name, the line is known.
    assert not read_frames.is_torn([Frame("<module>", "cell", 1)])
    assert not read_frames.is_torn([Frame("<module>", TRAIN, 0)])
