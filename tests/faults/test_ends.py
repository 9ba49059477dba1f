"""Operations that end, stop or deceive their process: all as without us, and what was is kept."""

import re

import pytest

from tests.faults.conftest import WARM, execute, without_places
from tests.launching import PYTHON

CASES = [("_exit", 0, 5), ("exit", 0, 6), ("abort", 0, -6), ("_exit", 2, 0), ("exit", 2, 0),
         ("stop", 1, 0), ("raise", 2, 0), ("clock", 2, 0)]  # fmt: skip
ONE = re.compile(r"^== (\w+) (\d)\n(.*?)^ended (-?\d+)\n", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def alone(torch, programs, tmp_path_factory):
    """{(what, workers): (what is printed without us, how it ends)}: children of one program, which
    imports torch once."""
    folder = tmp_path_factory.mktemp("alone")
    words = [word for what, workers, _ in CASES for word in (what, workers)]
    ended = execute([PYTHON, programs / "ends.py", *words], folder, folder)
    assert ended.code == 0, ended.err
    return {
        (what, int(workers)): (out, int(code))
        for what, workers, out, code in ONE.findall(ended.out)
    }


@pytest.mark.parametrize(("what", "workers", "code"), CASES)
def test_an_operation_does_to_its_process_what_it_likes(alone, traced, what, workers, code):
    out, without = alone[what, workers]
    assert without == code
    ended = traced("ends.py", what, workers, python=WARM)
    assert (ended.code, ended.out) == (code, out)
    assert "lotus" not in without_places(ended.err)
    run = ended.run
    assert not run.lost["what"].str.contains("fault").any()
    end = run.manifest["signal"] if code < 0 else run.manifest["exit_code"]
    assert end == abs(code)
    taken = run.waits[run.waits["failed"] == 0]
    if what == "clock":  # ours is not the program's
        assert len(taken) == 16
        assert run.ops["duration_ns"].between(0, 60e9).all()
        assert run.batches["fetch_ns"].between(0, 60e9).all()
    elif code:  # nothing but the batch in hand is missing
        assert taken["batch"].tolist() == [0, 1, 2, 3]
    else:
        failed = run.waits[run.waits["failed"] == 1]
        # Where a worker has died torch raises from its signal's handler, wherever the loop is then.
        assert len(failed) == 2 or (len(failed) < 2 and what in ("exit", "_exit"))
        assert len(taken) >= 2
