"""Whatever happened to the files of a run: `lotus report` says it in words, never a traceback.

LOTUS_SEEDS says how many damages are tried (25); seeds count from 0.
"""

import json
import os
import random
import shutil

import pytest

from lotus import cli
from lotus.inside.trace.log import log_format


@pytest.fixture(scope="module")
def recorded(torch, tmp_path_factory):
    from tests.faults.conftest import PROGRAMS, execute
    from tests.launching import LOTUS, PYTHON

    folder = tmp_path_factory.mktemp("recorded")
    words = [*LOTUS, "trace", "-q", "-o", folder / "R", "--", PYTHON, PROGRAMS / "meanwhile.py"]
    assert execute([*words, "fork", "true"], folder, folder).code == 0
    return folder / "R"


@pytest.fixture
def report(capfd):
    """report(path): exit code, document or None, what was said on stderr."""

    def run(path):
        code = cli.main(["report", "--json", str(path)])
        out, err = capfd.readouterr()
        return code, json.loads(out) if out else None, err

    return run


def damaged(path, rng):
    """Damage one file of a run in some way; return whether a loss in a log can be told.

    Of a log's header a damaged check alone is not told: what it checks is as it was.
    """
    file = rng.choice([file for file in sorted(path.rglob("*")) if file.is_file()])
    data = bytearray(file.read_bytes())
    how = rng.choice(["cut", "flip", "zero", "insert", "append", "empty"])
    place = rng.randrange(len(data))
    if how == "cut":
        del data[place:]
    elif how == "flip":
        for _ in range(rng.choice([1, 1, 5])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == "zero":
        data[place : place + 64] = bytes(len(data[place : place + 64]))
    elif how == "insert":
        data[place:place] = rng.randbytes(rng.randrange(1, 100))
    elif how == "append":
        data += rng.randbytes(rng.randrange(1, 100))
    else:
        data.clear()
    before = file.read_bytes()
    file.write_bytes(data)
    if file.suffix != ".ltr":
        return False
    header = log_format.FILE_HEADER.size + log_format.FILE_HEADER.unpack_from(before)[1]
    if how == "cut" and place >= header and ends_between_frames(data, header):
        return False  # it is as that of a process that was killed then
    return bytes(data[header:]) != before[header:]


def ends_between_frames(data, place):
    """Whether a log, whose frames begin at `place`, is one of whole frames."""
    header = log_format.FRAME_HEADER
    while place + header.size <= len(data):
        _, _, _, size, _ = header.unpack_from(data, place)
        place += header.size + size
    return place == len(data)


@pytest.mark.parametrize("seed", range(int(os.environ.get("LOTUS_SEEDS", "25"))))
def test_a_damaged_run_is_told_or_its_loss_is(recorded, report, tmp_path, seed):
    path = tmp_path / "R"
    shutil.copytree(recorded, path)
    lossy = damaged(path, random.Random(seed))
    code, document, message = report(path)
    if code:
        assert (code, document) == (2, None)
        assert message.startswith("lotus: ")
        assert message.count("\n") == 1
    else:
        assert message == ""
        assert document["lost"] or not lossy


def test_a_run_whose_logs_are_all_gone_is_told(recorded, lotus_report, tmp_path):
    path = tmp_path / "R"
    shutil.copytree(recorded, path)
    shutil.rmtree(path / "events")
    ended = lotus_report(path)
    assert ended.code in (0, 2)
    assert "Traceback" not in ended.out + ended.err
    (path / "run.json").write_bytes((path / "run.json").read_bytes()[:100])
    ended = lotus_report(path)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
