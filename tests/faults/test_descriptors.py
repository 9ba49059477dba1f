"""Descriptors are the program's: it may close all, have few, or none for stderr."""

import re
import subprocess

import pytest

FAULT = r"lotus: tracing of process \d+ stopped: .*\n"


def test_no_byte_of_ours_gets_into_files_of_the_program(pair):
    plain, traced = pair("descriptors.py")
    assert plain.out.count("wrong: []") == 2
    assert "log: b''" in plain.out  # opened as descriptor 2: what we say there is lost
    assert (traced.code, traced.out, traced.err) == (plain.code, plain.out, plain.err)


def test_a_program_with_few_descriptors_has_as_many_as_without_us(pair):
    plain, traced = pair("limits.py")
    assert plain.out.count("Too many open files") == 2
    assert (traced.code, traced.out) == (0, plain.out)
    # Where none is left to us the trace ends.
    assert re.fullmatch(FAULT, traced.err)


@pytest.mark.parametrize("closed", ["2>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"])
def test_closed_streams_get_nothing_of_ours(lotus_command, torch, tmp_path, programs, closed):
    import shlex
    import sys

    target = tmp_path / "truth"
    code = (
        "import os, torch\n"
        "from torch.utils.data import DataLoader\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "file = open('truth', 'w+')\n"
        "print(file.fileno(), list(DataLoader([1, 2], collate_fn=list)), file=file, flush=True)\n"
        "import shutil\n"
        "run = os.environ.get('LOTUS_RUN')\n"
        "if run: shutil.rmtree(run)\n"  # a reason to speak
        "print(list(DataLoader([1, 2], collate_fn=list)), file=file, flush=True)\n"
    )
    outcomes = []
    for prefix in ([], [*lotus_command, "trace", "-o", str(tmp_path / "R"), "--"]):
        line = shlex.join([*prefix, sys.executable, "-c", code])
        ended = subprocess.run(
            ["sh", "-c", f"{line} {closed}"], capture_output=True, text=True, check=False
        )
        outcomes.append((ended.returncode, ended.stdout, ended.stderr, target.read_text()))
        target.unlink()
    assert outcomes[0] == outcomes[1]
