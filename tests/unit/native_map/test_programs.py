"""Programs that read a file run within limits."""

import os
import sys
import time

import pytest

from native_map.programs import LimitedProgram, ProgramLimits, answer

ENDLESS = "while True: pass"


def python(code: str, limits: ProgramLimits | None = None, stdin: bytes = b""):
    return answer([sys.executable, "-I", "-S", "-c", code], limits, stdin)


def test_what_it_reads_writes_and_complains_of_is_the_answer() -> None:
    code = "import sys; print(sys.stdin.read()[::-1]); print('a\\nb', file=sys.stderr); sys.exit(3)"
    got = python(code, stdin=b"abc")
    assert (got.code, got.out, got.complaint, got.stopped) == (3, b"cba\n", "b", "")
    assert python("import sys; print(len(sys.stdin.read()))").out == b"0\n"
    with pytest.raises(FileNotFoundError):
        answer(["no-such-program"])


def test_one_that_hangs_is_stopped_with_all_that_it_started() -> None:
    code = "import os, time; print(os.getpid(), os.fork(), flush=True); time.sleep(600)"
    got = python(code, ProgramLimits(wait_s=2))
    assert got.stopped == "it took more than 2 s"
    for pid in {int(word) for word in got.out.split()} - {0}:
        until = time.monotonic() + 60
        while _runs(pid) and time.monotonic() < until:
            time.sleep(0.01)
        assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_one_that_closes_its_output_and_goes_on_is_stopped() -> None:
    got = python("import os, time; os.close(1); time.sleep(600)", ProgramLimits(wait_s=2))
    assert got.stopped == "it took more than 2 s"


def test_cpu_time_memory_and_output_are_bounded() -> None:
    assert "1 s of CPU time" in python(ENDLESS, ProgramLimits(cpu_s=1)).stopped
    got = python("print(1); b = bytearray(1 << 30)", ProgramLimits(memory=512 << 20))
    assert (got.code, got.out, got.complaint) == (1, b"1\n", "MemoryError")
    got = python("while True: print('x' * 1000)", ProgramLimits(output=1 << 20))
    assert len(got.out) == 1 << 20
    assert got.stopped == "it wrote more than 1 MiB"
    got = python("import sys\nwhile True: sys.stderr.write('x' * 65536)")
    assert got.code != 0


def test_time_of_the_caller_is_not_counted_as_waiting() -> None:
    code = "for n in range(40): print('x' * 65535, flush=True)"
    began = time.monotonic()
    with LimitedProgram([sys.executable, "-I", "-S", "-c", code]) as program:
        seen = 0
        for line in program.lines():
            if not seen:
                time.sleep(2)
            seen += len(line)
        assert (program.stopped, seen) == ("", 40 << 16)
        assert program._waited + 2 <= time.monotonic() - began


def test_lines_without_end_come_in_parts() -> None:
    code = "print('a'); print('b' * 200_000); print('c', end='')"
    with LimitedProgram([sys.executable, "-I", "-S", "-c", code]) as program:
        lines = list(program.lines())
    assert lines[0] == b"a\n"
    assert lines[-1] == b"c"
    assert b"".join(lines) == b"a\n" + b"b" * 200_000 + b"\nc"
    assert max(map(len, lines)) <= 1 << 17


def test_one_that_is_left_early_has_ended() -> None:
    with LimitedProgram(
        [sys.executable, "-c", "print('x', flush=True); import time; time.sleep(600)"]
    ) as p:
        next(p.lines())
    with pytest.raises(ProcessLookupError):
        os.kill(p._process.pid, 0)
