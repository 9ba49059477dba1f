"""What a thread is blocked in, by the system call that it is in."""

import subprocess
import sys

import pytest

from lotus.recording.blocked_reason import BlockedReasons
from tests.waiting import wait_until

WAITS = """
import os, select, signal
signal.alarm(300)  # else a wrong answer would be waited for without end
reader, writer = os.pipe()
{call}
"""
CALLS = {
    "sleep": "select.select([], [], [], 1000)",  # as Python 3.10 sleeps
    "events": "select.select([reader], [], [], 1000)",
    "pipe": "os.read(reader, 1)",
}


@pytest.mark.skipif(bool(BlockedReasons().problem), reason="system calls are not told here")
@pytest.mark.parametrize("reason", list(CALLS))
def test_a_call_that_blocks(reason: str) -> None:
    words = [sys.executable, "-S", "-c", WAITS.format(call=CALLS[reason])]
    with subprocess.Popen(words) as program:
        reasons = BlockedReasons()
        try:
            wait_until(lambda: reasons.look(program.pid)[0] == reason, program)
        finally:
            program.kill()
