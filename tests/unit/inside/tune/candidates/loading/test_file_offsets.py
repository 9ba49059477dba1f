"""What moves the position of an open file, and what does not."""

import mmap
import os
from pathlib import Path

from lotus.inside.tune.candidates.loading import file_offsets


def test_what_a_fetch_moves_or_opens_and_keeps_is_shared(tmp_path: Path) -> None:
    for name in ("lazy", "mine", "pread", "log", "index", "mapped"):
        (tmp_path / name).write_bytes(b"x" * 100)
    mine, pread = (tmp_path / "mine").open("rb"), (tmp_path / "pread").open("rb")
    log, index = (tmp_path / "log").open("w"), (tmp_path / "index").open("rb")
    index.read(7)  # before the loop
    mapped = (tmp_path / "mapped").open("rb")
    mapping = mmap.mmap(mapped.fileno(), 0, prot=mmap.PROT_READ)
    fetching = file_offsets.Fetching()
    lazy = None
    for number in range(3):
        fetching.begin()
        lazy = lazy or (tmp_path / "lazy").open("rb", buffering=0)
        lazy.read(1)
        if number == 1:
            mine.seek(10)
        os.pread(pread.fileno(), 5, 5)
        assert mapping[number : number + 5] == b"xxxxx"
        log.write("a line\n")
        log.flush()
        with (tmp_path / "index").open("rb") as again:
            again.read(50)
        fetching.finish(0)
    assert fetching.shared() == [str(tmp_path / "lazy"), str(tmp_path / "mine")]
    fetching.begin()
    assert fetching.shared() == [str(tmp_path / "lazy"), str(tmp_path / "mine")]
    mapping.close()
    for file in (mine, pread, log, index, mapped, lazy):
        assert file is not None
        file.close()


def test_what_a_child_moves_is_seen_and_put_back(tmp_path: Path) -> None:
    for name in ("read", "thread", "both"):
        (tmp_path / name).write_bytes(b"x" * 100)
    read, both = (tmp_path / "read").open("rb"), (tmp_path / "both").open("r+b", buffering=0)
    thread = (tmp_path / "thread").open("rb", buffering=0)
    trial = file_offsets.Trial()
    thread.read(1)  # by the program itself
    trial.begin()
    assert trial.moved() == []
    pid = os.fork()
    if pid == 0:
        for file in (read, both, thread):
            os.lseek(file.fileno(), 33, os.SEEK_SET)
        os._exit(0)
    os.waitpid(pid, 0)
    assert trial.moved() == [str(tmp_path / "both"), str(tmp_path / "read")]
    trial.put_back()
    places = [os.lseek(file.fileno(), 0, os.SEEK_CUR) for file in (read, both, thread)]
    assert places == [0, 33, 33]  # what may have been written to is left alone
    for file in (read, both, thread):
        file.close()


def test_memory_that_a_fetch_keeps_is_counted_without_its_batch() -> None:
    fetching = file_offsets.Fetching()
    fetching.begin()
    # Pages asked of the kernel: of an allocator's, freed ones may stay or be given back.
    kept, batch = (mmap.mmap(-1, size << 20, flags=mmap.MAP_PRIVATE) for size in (48, 16))
    for mapping in (kept, batch):
        for page in range(0, len(mapping), mmap.PAGESIZE):
            mapping[page] = 1
    fetching.finish(len(batch))
    assert 44 << 20 < fetching.grown_bytes < 60 << 20
    kept.close()
    batch.close()


def test_what_is_printed_is_no_sign(tmp_path: Path) -> None:
    before = os.dup(1)
    with (tmp_path / "out").open("w+b", buffering=0) as out:
        os.dup2(out.fileno(), 1)
        try:
            trial = file_offsets.Trial()
            trial.begin()
            os.write(1, b"x")
            assert trial.moved() == []
        finally:
            os.dup2(before, 1)
            os.close(before)
        trial.begin()
        out.write(b"x")
        assert trial.moved() == [str(tmp_path / "out")]
