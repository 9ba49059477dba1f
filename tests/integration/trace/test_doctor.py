"""`lotus doctor` on this machine, whatever it is, and with rights really taken away from it."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lotus.hardware.counter_probe import CPU_CLOCK
from lotus.inside.common import perf_event
from tests.integration.conftest import LOTUS, ROOT, environment
from tests.launching import SECCOMP

# Root without its capabilities, also in the programs that it starts.
_NO_RIGHTS = f"""
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
for capability in range(64):
    libc.prctl(24, capability, 0, 0, 0)
header = ctypes.create_string_buffer((0x20080522).to_bytes(4, "little") + bytes(4))
if libc.capset(header, ctypes.create_string_buffer(24)):
    sys.exit(77)
sys.path.insert(0, {str(ROOT)!r})
from lotus.cli import main
sys.exit(main())
"""


def doctor(*arguments: str, start=LOTUS, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*start, "doctor", *arguments], capture_output=True, text=True, env=environment(variables)
    )


def document(run: subprocess.CompletedProcess[str]) -> dict:
    assert (run.returncode, run.stderr) == (0, "")
    return json.loads(run.stdout)


def test_it_says_first_what_can_be_measured_and_ends_well():
    run = doctor()
    assert (run.returncode, run.stderr) == (0, "")
    starts = ("counting: ", "sampling: ", "top-down: ")
    unwrapped = [line for line in run.stdout.splitlines() if not line.startswith("           ")]
    assert [line[: len(starts[0])] for line in unwrapped[:3]] == list(starts)


def test_the_document_agrees_with_what_the_kernel_does():
    answer = document(doctor("--json"))
    assert answer["schema"] == 2
    try:
        os.close(perf_event.open_event(CPU_CLOCK))
        opens = True
    except OSError:
        opens = False
    states = {probed["event"]["name"]: probed for probed in answer["facts"]["survey"]["software"]}
    assert (states["cpu_clock"]["count"] is not None) is opens
    assert answer["summary"]["counting"].startswith("no") is not opens


def test_torch_is_looked_at_but_not_imported():
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from lotus.cli import main;"
        " code = main(); sys.exit('torch' in sys.modules or 'PIL' in sys.modules or code)"
    )
    assert doctor("--json", start=[sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS])
def test_a_seccomp_filter_is_recognised(code):
    call = perf_event._CALLS.get(os.uname().machine, 241)
    start = [sys.executable, "-c", SECCOMP, str(call), str(code), *LOTUS]
    run = doctor("--json", start=start)
    if run.returncode == 77:
        pytest.skip("this kernel takes no seccomp filter")
    answer = document(run)
    assert answer["facts"]["system"]["seccomp"] is True
    assert answer["summary"]["counting"].startswith("no: ")
    assert "seccomp" in answer["summary"]["counting"]
    assert answer["summary"]["sampling"].startswith("no")
    gap = next(finding for finding in answer["findings"] if finding["topic"] == "perf events")
    assert gap["state"] == "gap"
    assert gap["fixes"] or gap["asks"]


def test_without_any_program_on_the_path_it_still_ends_well(tmp_path: Path):
    answer = document(doctor("--json", PATH=str(tmp_path)))
    gap = next(finding for finding in answer["findings"] if finding["topic"] == "perf")
    assert gap["state"] == "gap"
    assert "PATH" in gap["text"]


def test_a_user_without_rights_gets_an_answer():
    if os.getuid() != 0:
        pytest.skip("the other tests run without rights already")
    answer = document(doctor("--json", start=[sys.executable, "-c", _NO_RIGHTS]))
    assert answer["facts"]["system"]["capabilities"] == []
    rights = next(finding for finding in answer["findings"] if finding["topic"] == "perf events")
    level = answer["facts"]["system"]["paranoid"]
    assert "does not bind" not in rights["text"]
    if level is not None and level >= 3:
        assert answer["summary"]["counting"].startswith("no: ")
    if level == 2:
        # A context switch happens in the kernel, which this user may not look into.
        states = {
            probed["event"]["name"]: probed for probed in answer["facts"]["survey"]["software"]
        }
        assert states["context_switches"]["error"] in (errno.EACCES, errno.EPERM, errno.ENOSYS)
