"""Descriptors are the program's: it may close all, have few, or none for stderr."""

import os
import re
import subprocess

import pytest

from tests.launching import SMALL_TORCH

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


@pytest.mark.parametrize(
    ("closed", "env"),
    [("2>&-", SMALL_TORCH), ("1>&- 2>&-", SMALL_TORCH), ("0<&- 1>&- 2>&-", {})],
    ids=["2", "1 and 2", "all"],
)
def test_closed_streams_get_nothing_of_ours(lotus_command, torch, tmp_path, closed, env):
    import shlex
    import sys

    target = tmp_path / "truth"
    code = (
        "import os, torch\n"
        "from torch.utils.data import DataLoader\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "file = open('truth', 'w+')\n"
        "loader = DataLoader([1, 2], 1, collate_fn=list)\n"
        "print(file.fileno(), list(loader), file=file, flush=True)\n"
        "import shutil\n"
        "run = os.environ.get('LOTUS_RUN')\n"
        "if run: shutil.rmtree(run)\n"  # a reason to speak
        "print(list(loader), file=file, flush=True)\n"
    )
    outcomes = []
    for prefix in ([], [*lotus_command, "trace", "-o", str(tmp_path / "R"), "--"]):
        line = shlex.join([*prefix, sys.executable, "-c", code])
        ended = subprocess.run(
            ["sh", "-c", f"{line} {closed}"],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=False,
        )
        outcomes.append((ended.returncode, ended.stdout, ended.stderr, target.read_text()))
        target.unlink()
    assert outcomes[0] == outcomes[1]
