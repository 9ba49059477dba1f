"""A large run is read: with a bar on a terminal; Ctrl-C ends it with 130, no words and no files."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.simulation import simulate

# Stands still in the third piece of the run, when files have been begun.
PROGRAM = """
import sys, time
from lotus import cli
from lotus.common.storage import long_arrays
from lotus.reading.tables import sample_tables, table_pieces

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

# Stands still where the module of the first argument is imported.
IMPORTING = """
import runpy, sys

class Still:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            sys.stderr.write("importing\\n")
            sys.stderr.flush()
            sys.stdin.readline()

wanted = sys.argv.pop(1)
sys.meta_path.insert(0, Still())
runpy.run_module("lotus", run_name="__main__")
"""

# Stands still where it begins to read.
READING = """
import sys
from lotus import cli
from lotus.common.terminal import progress
from lotus.reading.logs import run_logs

progress._NOTICED_S, logs = 0.0, run_logs.logs

def stopped(*arguments, **named):
    sys.stdin.readline()
    return logs(*arguments, **named)

run_logs.logs = stopped
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


@contextlib.contextmanager
def importing(module, run):
    """A report that stands still where it imports a module."""
    with subprocess.Popen(
        [sys.executable, "-c", IMPORTING, module, "report", str(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "importing\n"
        yield process


@pytest.mark.parametrize("module", ["lotus.cli", "lotus.commands.report", "numpy", "pandas"])
def test_ctrl_c_within_an_import_says_nothing(module, run):
    with importing(module, run) as process:
        process.send_signal(signal.SIGINT)
        printed, words = process.communicate("\n")
    # Before the command itself runs, the signal ends it: 130 in a shell.
    assert process.returncode in (128 + signal.SIGINT, -signal.SIGINT)
    assert (printed, words) == ("", "")


def test_a_second_ctrl_c_does_not_wait_for_the_import(run):
    with importing("pandas", run) as process:
        while process.poll() is None:  # the first ones, and one that is not of the same moment
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
    # Once the command has ended, the next one ends the process.
    assert process.returncode in (128 + signal.SIGINT, -signal.SIGINT)


@pytest.mark.parametrize(
    "words",
    [
        ["report"],
        ["report", "--html", "OUT/page.html"],
        ["compare", "RUN"],
        ["export", "--format", "csv", "-o", "OUT/tables"],
        ["map"],
        ["whatif", "--workers", "4"],
    ],
    ids=" ".join,
)
def test_a_terminal_shows_a_bar_before_anything_is_read(words, run, tmp_path):
    verb, *options = [word.replace("OUT", str(tmp_path)).replace("RUN", str(run)) for word in words]
    terminal, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", READING, verb, str(run), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    ) as process:
        os.close(theirs)
        shown = b""
        while "━".encode() not in shown:
            shown += os.read(terminal, 1 << 16)
        assert process.stdin is not None
        process.stdin.write(b"\n" * 9)
        process.stdin.close()
        try:
            while os.read(terminal, 1 << 16):
                pass
        except OSError:  # it has ended
            pass
    os.close(terminal)
    assert process.returncode == (2 if words == ["map"] else 0)  # which has nothing to show
