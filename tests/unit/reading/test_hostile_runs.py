"""Small files of a run that are made to cost much: memory and time are of what they hold.

Each command runs in a child that may take no more than 1.5 GB beyond what a healthy run takes.
"""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from lotus.common.storage import sparse_files
from lotus.inside.trace.config import Config
from lotus.inside.trace.fetch_state import Fetch
from lotus.inside.trace.log import log_format
from lotus.inside.trace.recorder import Recorder
from lotus.live import tailing
from lotus.live.tailing import Tail
from lotus.reading.logs import frame_scanner
from lotus.reading.logs.event_log import EventLog
from lotus.reading.run import load
from tests.logs import START_NS, ProcessLog
from tests.simulation import simulate

ROOM = 1536 << 20  # bytes of address space
_CHILD = """
import resource, sys
import lotus, lotus.cli, lotus.reading.run, lotus.analysis.summary, lotus.reporters.run.terminal
lotus.cli.main(["report", sys.argv[1]])
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (most, most))
print("begun", flush=True)
sys.exit(lotus.cli.main(sys.argv[3:]))
"""


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return simulate(tmp_path_factory.mktemp("healthy") / "run", workers=1, batches=2)


@pytest.fixture
def run(tmp_path):
    return simulate(tmp_path / "run", workers=1, batches=2)


@pytest.fixture
def lotus(healthy):
    """Runs a command of lotus with bounded memory, after the same process has read a good run."""

    def call(*words):
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, str(healthy), str(ROOM), *map(str, words)],
            capture_output=True,
            text=True,
            timeout=600,  # for what would hang for hours
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        _, _, out = done.stdout.partition("begun\n")
        assert "MemoryError" not in done.stderr
        return done.returncode, out, done.stderr

    return call


def zeros(size):
    """CRC-32 goes over so many zero bytes."""

    def go(crc):
        block = bytes(1 << 20)
        for _ in range(size >> 20):
            crc = zlib.crc32(block, crc)
        return zlib.crc32(bytes(size & (1 << 20) - 1), crc)

    return go


def giant_frame(file, samples):
    """Append a batch of so many samples, all zeros that are a hole; its checksum is right."""
    fixed = {name: 0 for name, _ in log_format.FRAMES[log_format.BATCH][1]} | {"n_samples": samples}
    body = log_format.FIXED[log_format.BATCH].pack(*fixed.values())
    length = len(body) + 24 * samples
    head = log_format._CHECKED.pack(log_format.BATCH, 0, length)
    crc = zeros(24 * samples)(zlib.crc32(body, zlib.crc32(head)))
    frame = log_format.FRAME_HEADER.pack(log_format.FRAME_MAGIC, log_format.BATCH, 0, length, crc)
    file.write(frame + body)
    file.truncate(file.tell() + 24 * samples)
    file.seek(0, os.SEEK_END)
    return log_format.FRAME_HEADER.size + length


def wait_frame(batch):
    log = ProcessLog(Path("unused"))
    at = len(log.data)
    log.wait(0, 0, batch, start_ns=START_NS, end_ns=START_NS + 5)
    return bytes(log.data[at:])


def log_of(run):
    return sorted((run / "events").glob("*.ltr"))[0]


def test_a_frame_longer_than_lotus_writes_is_one_loss(run, lotus):
    # GIVEN a log whose one batch has 1.2 GB of samples that are zeros, with a right checksum, and
    # something whole behind it
    with log_of(run).open("r+b") as file:
        file.seek(0, os.SEEK_END)
        size = giant_frame(file, 50 << 20)
        file.write(wait_frame(77))
    assert log_of(run).stat().st_blocks * 512 < 1 << 20
    # WHEN it is reported, THEN memory is that of the file, and the line tells what is missing
    code, out, err = lotus("report", run)
    assert code == 0, err
    assert f"{frame_scanner.TOO_LONG}: 1 (1.17 GiB)" in out
    code, out, err = lotus("report", "--json", run)
    lost = json.loads(out)["lost"]
    assert [(loss["what"], loss["count"], loss["bytes"]) for loss in lost] == [
        (frame_scanner.TOO_LONG, 1, size)
    ]
    # AND what stands behind it is read
    assert 77 in load(run).waits["batch"].tolist()


def test_a_terabyte_of_holes_costs_what_it_holds(run, lotus):
    # GIVEN a log of 1 TB, in which there are a few bytes
    log = log_of(run)
    before = log.stat().st_size
    with log.open("r+b") as file:
        for batch in range(70, 80):
            file.seek((1 << 40) - (80 - batch) * len(wait_frame(batch)))
            file.write(wait_frame(batch))
    # WHEN it is reported and looked at, THEN both end, and tell what is not there
    code, out, err = lotus("report", run)
    assert code == 0, err
    assert f"{frame_scanner.HOLE}: 1 (1024 GiB)" in out
    loaded = load(run)
    assert {*range(70, 80)} <= set(loaded.waits["batch"])
    holed = loaded.lost[loaded.lost["what"] == frame_scanner.HOLE]
    assert holed["bytes"].sum() == (1 << 40) - before - 10 * len(wait_frame(1))
    code, out, err = lotus("top", "--once", run)
    assert code == 0, err
    assert "ended" in out


@pytest.mark.parametrize("name", ["run.json", "processes.jsonl", "state/x.state", "py-spy/0.json"])
def test_other_files_of_a_terabyte_are_not_read(run, lotus, name):
    (run / name).parent.mkdir(exist_ok=True)
    with (run / name).open("ab") as file:
        file.truncate(1 << 40)
    for words in (["report", run], ["top", "--once", run])[: 1 + (name == "run.json")]:
        code, _, err = lotus(*words)
        if name == "run.json":
            assert code == 2
            assert err.startswith("lotus: ")
            assert err.count("\n") == 1
        else:
            assert code == 0, err
    if name == "processes.jsonl":
        (loss,) = load(run).lost.itertuples(index=False)
        assert "processes.jsonl" in loss.what
        assert loss.bytes > (1 << 40) - 10_000


@pytest.mark.parametrize("line", [b"x\n", b'{"event":"python","pid":7}\n'])
def test_sixty_megabytes_of_short_lines(run, lotus, line):
    (run / "processes.jsonl").write_bytes(line * ((60 << 20) // len(line)))
    for words in (["report", run], ["top", "--once", run])[: 1 + (line == b"x\n")]:
        code, _, err = lotus(*words)
        assert code == 0, err
    assert load(run).lost["bytes"].sum() > 50 << 20


def test_holes_inside_frames_are_read_no_more_than_the_file_allows(run, monkeypatch):
    # GIVEN sound frames of 40 MB of which a page is there, one after the other
    monkeypatch.setattr(frame_scanner, "WINDOW", 1 << 20)
    with log_of(run).open("r+b") as file:
        file.seek(0, os.SEEK_END)
        for _ in range(20):
            giant_frame(file, 40_000_000 // 24)
    read = []
    exactly = frame_scanner.read_exactly

    def counting(fd, offset, size):
        read.append(size)
        return exactly(fd, offset, size)

    monkeypatch.setattr(frame_scanner, "read_exactly", counting)
    # WHEN the log is read, THEN so much of it and no more, and the rest is a loss
    loaded = load(run)
    assert sum(read) < 120 << 20
    assert loaded.lost["bytes"].sum() > 600_000_000


def test_a_sound_frame_with_a_hole_in_it_is_read(run):
    # GIVEN a batch with many samples that are zeros, as a copy of the run may have it
    with log_of(run).open("r+b") as file:
        file.seek(0, os.SEEK_END)
        giant_frame(file, 1 << 20)
        file.write(wait_frame(77))
    loaded = load(run)
    assert "corrupt" not in " ".join(loaded.lost["what"])
    assert len(loaded.samples) >= 1 << 20
    assert 77 in loaded.waits["batch"].tolist()


def test_a_look_reads_so_much_data_and_passes_holes(run, monkeypatch):
    log = log_of(run)
    size = log.stat().st_size
    with log.open("r+b") as file:
        file.seek(1 << 36)
        file.write(wait_frame(77))
    tail = Tail(run)
    first = [process for process in tail.read() if len(process.rows["wait"])]
    assert tail.behind == 0
    assert 77 in first[0].rows["wait"]["batch"].tolist()
    # A look of fewer bytes goes on where it ended.
    monkeypatch.setattr(tailing, "_AT_ONCE", size // 2)
    tail, seen = Tail(run), []
    for _ in range(20):
        for frame in tail.read():
            seen += frame.rows["wait"]["batch"].tolist()
        if not tail.behind:
            break
    assert 77 in seen


def test_copies_keep_holes(tmp_path):
    with (tmp_path / "a").open("wb") as file:
        file.write(b"begin")
        file.seek(1 << 34)
        file.write(b"middle")
        file.truncate(1 << 35)
    with (tmp_path / "a").open("rb") as source, (tmp_path / "b").open("wb") as target:
        sparse_files.copy(source, target)
    status = (tmp_path / "b").stat()
    assert status.st_size == 1 << 35
    assert status.st_blocks * 512 < 1 << 20
    with (tmp_path / "b").open("rb") as file:
        assert os.pread(file.fileno(), 6, 1 << 34) == b"middle"
        assert sparse_files.data_in(file.fileno(), 0, 1 << 35) < 1 << 20
        assert sparse_files.reach(file.fileno(), 0, 1 << 35, 1 << 20) == 1 << 35


@pytest.mark.parametrize("most", [1000, 10])
def test_of_a_batch_beyond_the_longest_frame_the_rest_is_written(tmp_path, monkeypatch, most):
    # GIVEN a recorder and a batch with more samples than a frame may hold, or just not
    monkeypatch.setattr(log_format, "MOST_ROWS", most)
    recorder = Recorder(Config({"LOTUS_RUN": str(tmp_path)}), None)
    fetch = Fetch()
    recorder.begin_fetch(fetch, (0, 0, 5))
    for number in range(20):
        recorder.samples.extend((number, 7, 0))
    recorder.end_fetch(fetch, list(range(20)), lambda index: None, 0, 0)
    recorder.flush_batch(1)
    recorder.finish()
    # WHEN its log is read
    (log,) = (tmp_path / "events").iterdir()
    contents = EventLog(str(log.parent), log.name)
    # THEN the batch is there, and what of it is not is told
    assert contents.lost == []
    assert contents.fixed["batch"]["size"].tolist() == [20]
    whole = most == 1000
    assert contents.fixed["batch"]["n_samples"].tolist() == [20 if whole else 0]
    notes = [event["text"] for event in contents.events if event["event"] == "note"]
    assert notes == (
        [] if whole else ["1 batches had too many samples or operations to record each"]
    )


def event_frame(text):
    fixed = log_format.FIXED[log_format.EVENT].pack(0, len(text))
    return log_format.frame(log_format.EVENT, fixed + text)


EVENTS = {
    "lists": b'{"event":"note","text":"x","y":[' + b",".join([b"[]"] * 1_000_000) + b"]}",
    "objects": b'{"event":"operations","operations":[' + b",".join([b"{}"] * 1_000_000) + b"]}",
    "small": b'{"event":"note","text":"x"}',
    "torn": b"{",
    "odd": b'{"event":"%d"}',
}


@pytest.mark.parametrize("name", EVENTS)
def test_more_events_than_lotus_writes(run, lotus, name):
    # GIVEN a log with 60 MB of large events, or with half a million small ones
    text = EVENTS[name]
    frame = event_frame(text)
    count = min((60 << 20) // len(frame), 500_000)
    with log_of(run).open("ab") as file:
        for number in range(count):
            file.write(event_frame(text % number) if name == "odd" else frame)
    # WHEN it is reported, THEN in bounded memory, and what is left out is told
    code, out, err = lotus("report", run)
    assert code == 0, err
    assert "lotus reads" in out or "not readable" in out
    assert len(out) < 20_000
