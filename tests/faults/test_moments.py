"""SIGINT and SIGTERM at random moments of a whole program: its start, its workers, its end.

LOTUS_SEEDS says how many moments are tried (3); seeds count from 0.
"""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import lotus
from lotus.common.errors import LotusError
from tests.faults.conftest import HANG, PROGRAMS, environment
from tests.launching import LOTUS, PYTHON

SEEDS = int(os.environ.get("LOTUS_SEEDS", "3"))
SIGNALS = {0: signal.SIGINT, 1: signal.SIGTERM}
TO = ("the program", "lotus", "all of them")  # the last as a terminal does


def words_of(path):
    return [*LOTUS, "trace", "-q", "-o", str(path), "--", PYTHON, str(PROGRAMS / "moments.py")]


@pytest.fixture(scope="module")
def whole(torch, tmp_path_factory):
    """(seconds that the program takes under lotus, what it prints without)."""
    folder = tmp_path_factory.mktemp("whole")
    began = time.monotonic()
    done = subprocess.run(
        words_of(folder / "R"), env=environment(None), capture_output=True, check=True
    )
    took = time.monotonic() - began
    plain = subprocess.run(
        [PYTHON, PROGRAMS / "moments.py"], env=environment(None), capture_output=True, check=True
    )
    assert done.stdout == plain.stdout
    return took, plain.stdout


def members(group):
    """The living processes of a process group."""
    pids = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            pids.append(int(pid))
    return pids


def program_of(lotus_pid):
    """The pid of what lotus has started; None before."""
    try:
        with open(f"/proc/{lotus_pid}/task/{lotus_pid}/children") as file:
            children = file.read().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def moment(seed, took, path):
    """One signal at one moment; returns (how it ended, what was printed, what was said, left)."""
    dice = random.Random(seed)
    number, to = SIGNALS[seed % 2], TO[seed // 2 % 3]
    printed, errors = path.with_suffix(".out"), path.with_suffix(".err")
    with printed.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            words_of(path), env=environment(None), start_new_session=True, stdout=out, stderr=err
        )
    try:
        time.sleep(dice.random() * took)
        target = program_of(process.pid) if to == "the program" else process.pid
        if process.poll() is None and target is not None:
            if to == "all of them":
                os.killpg(process.pid, number)
            else:
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(target, number)
        process.wait()
        # torch's workers look for their parent every five seconds; after SIGTERM some never end.
        patience = 8 if process.returncode == -signal.SIGTERM else HANG
        until = time.monotonic() + patience
        while (left := members(process.pid)) and time.monotonic() < until:
            time.sleep(0.05)
        message = errors.read_text(errors="replace")
        return number, process.returncode, printed.read_bytes(), message, left
    finally:
        for pid in members(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()


def test_a_signal_at_any_moment_ends_it_as_without_lotus(whole, tmp_path):
    took, printed = whole
    with ThreadPoolExecutor(3) as pool:
        ends = list(pool.map(lambda seed: moment(seed, took, tmp_path / str(seed)), range(SEEDS)))
    broken = orphans = 0
    for seed, (number, code, out, err, left) in enumerate(ends):
        # To its end, or by the signal. Python loses a Ctrl-C in a callback of its own, as where it
        # forks; what torch makes of one that meets a worker alone is an error of its own: 1.
        assert code in (0, -number, 1), (seed, code, err)
        assert code != 1 or number == signal.SIGINT, (seed, err)
        assert printed.startswith(out), seed
        assert code != 0 or out == printed, seed
        broken += code != 0
        # A worker of torch's whose parent is killed while it starts takes init for its parent and
        # waits for ever, without us too (torch.utils.data._utils.worker.ManagerWatchdog).
        assert left == [] or code == -signal.SIGTERM, (seed, left)
        orphans += bool(left)
        # Of our frames none is seen, unless it was the one in hand.
        inner = re.sub(r'  File "<lotus hook[^\n]*\n(?=[A-Z]\w+)', "", err)
        assert "<lotus hook" not in inner, (seed, err)
        try:
            run = lotus.load(tmp_path / str(seed))
        except LotusError:  # it came before the program's first record, or before the directory
            continue
        assert not run.lost["what"].str.contains("fault").any(), (seed, run.lost)
        assert run.manifest["state"] == "ended", seed
        if code < 0:
            assert run.manifest["signal"] == number, seed
        else:
            assert run.manifest["exit_code"] == code, seed
        # No batch that the program printed is missing.
        taken = len(run.waits[run.waits["failed"] == 0])
        assert taken >= out.count(b"\n") - out.count(b"end"), seed
    print(f"{SEEDS} moments, {broken} ended by it, {orphans} with orphans", file=sys.stderr)
