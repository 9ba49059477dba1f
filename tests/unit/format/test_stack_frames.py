"""Stack frames as py-spy prints them."""

import pytest

from lotus.format import stack_frames


@pytest.mark.parametrize(
    ("function", "file", "waits"),
    [
        ("Event.wait", "/usr/lib/python3.11/threading.py", True),
        ("Connection._recv", "/usr/lib/python3.11/multiprocessing/connection.py", True),
        ("_pin_memory_loop", "/v/site-packages/torch/utils/data/_utils/pin_memory.py", True),
        ("Poller.poll", "/v/site-packages/zmq/sugar/poll.py", True),
        ("loads", "/usr/lib/python3.11/json/__init__.py", False),
        # The program's own, which may look again and again without a pause.
        ("Writer.poll", "/home/me/train.py", False),
        ("wait", "/home/me/my_threading.py", False),
    ],
)
def test_that_waiting_is_told_from_computing(function: str, file: str, waits: bool) -> None:
    assert stack_frames.waits(function, file) == waits


@pytest.mark.parametrize(
    ("function", "bare", "owner"),
    [
        ("Crop.forward", "forward", "Crop"),
        ("main.<locals>.Crop.__call__", "__call__", "Crop"),
        ("main.<locals>.step", "step", ""),
        ("step", "step", ""),
    ],
)
def test_that_a_method_is_told_from_a_plain_function(function: str, bare: str, owner: str) -> None:
    assert stack_frames.bare_name(function) == bare
    assert stack_frames.class_of(function) == owner
