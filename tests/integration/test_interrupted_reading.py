"""Ctrl-C while a large run is read: exit code 130, no words, and nothing left on the disk."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import simulate

# Stands still in the third piece of the run, when files have been begun.
PROGRAM = """
import sys, time
from lotus import cli
from lotus.common import long_arrays
from lotus.reading import sample_tables, table_pieces

table_pieces.ROWS, long_arrays.LEAST, pieces, read = 200, 1, [], sample_tables.operations

def operations(*arguments):
    pieces.append(None)
    if len(pieces) == 3:
        sys.stderr.write("reading\\n")
        sys.stderr.flush()
        time.sleep(3600)
    return read(*arguments)

sample_tables.operations = operations
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("read") / "run"
    return simulate(path, workers=2, batches=20, batch_size=8, epochs=3)


@pytest.mark.parametrize(
    "words",
    [
        ["report"],
        ["report", "--json"],
        ["report", "--html", "OUT/page.html"],
        ["compare", "RUN"],
        ["export", "--format", "chrome", "-o", "OUT/trace.json"],
        ["export", "--format", "perfetto", "-o", "OUT/trace.pftrace"],
        ["export", "--format", "csv", "-o", "OUT/tables"],
    ],
    ids=" ".join,
)
def test_ctrl_c_leaves_nothing(words, run, tmp_path):
    out, temporary = tmp_path / "out", tmp_path / "temporary"
    out.mkdir()
    temporary.mkdir()
    before = sorted(run.rglob("*"))
    verb, *options = [word.replace("OUT", str(out)).replace("RUN", str(run)) for word in words]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, verb, str(run), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "reading\n"
        process.send_signal(signal.SIGINT)
        printed, words_of_error = process.communicate()
    assert process.returncode == 128 + signal.SIGINT
    assert (printed, words_of_error) == ("", "")
    assert not list(out.iterdir())
    assert not list(temporary.iterdir())
    assert sorted(run.rglob("*")) == before
