"""A store of samples keeps to its budget over processes, notices damage, and never raises."""

import contextlib
import fcntl
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lotus.inside.cache import cache_folder, sample_store
from lotus.inside.cache.sample_store import SampleStore
from tests.waiting import wait_until

BUDGET = 1 << 30


def name_of(number: int) -> str:
    return f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}"


def content_of(number: int) -> bytes:
    return random.Random(number).randbytes(100 + 37 * number % 9000)


def on_disk(folder: Path) -> int:
    """The bytes of entries and of their folders, in whole blocks."""
    return cache_folder._counted(str(folder))


def is_on_disk(folder: Path, least: int) -> bool:
    """Whether there are so many bytes; another process makes and removes entries meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return on_disk(folder) >= least
    return False


class Notes(list[str]):
    def __call__(self, text: str) -> None:
        self.append(text)


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def store(tmp_path: Path, notes: Notes) -> SampleStore:
    return SampleStore(str(tmp_path / "cache"), BUDGET, notes)


def file_of(store: SampleStore, name: str) -> Path:
    return Path(store.folder, name[:2], name[2:])


def test_what_is_put_is_got_by_all_stores_of_the_folder(store: SampleStore) -> None:
    for number in range(30):
        content = content_of(number)
        assert store.get(name_of(number)) is None
        assert store.put(name_of(number), [content[:9], memoryview(content[9:])])
    other = SampleStore(store.folder, BUDGET, Notes())
    for number in range(30):
        got = other.get(name_of(number))
        assert got is not None
        assert bytes(got) == content_of(number)
    # AND the newest of a name counts, and its file is private
    assert store.put(name_of(1), [b"new"])
    assert bytes(other.get(name_of(1)) or b"") == b"new"
    assert file_of(store, name_of(1)).stat().st_mode & 0o777 == 0o600
    assert not list(Path(store.folder).rglob(".*"))


def test_a_folder_says_what_it_is_about(tmp_path: Path, notes: Notes) -> None:
    folder = tmp_path / "root" / "cache"
    SampleStore(str(folder), BUDGET, notes, {"data_set": "Pictures", "cut": 2})
    SampleStore(str(folder), BUDGET, notes, {"data_set": "Others"})
    about = json.loads((folder / "about.json").read_text())
    assert about["format"] == cache_folder.FORMAT
    assert (about["data_set"], about["cut"]) == ("Pictures", 2)
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("numpy", ["with numpy", "without numpy"])
def test_every_damage_is_noticed_and_removed(
    store: SampleStore, monkeypatch: pytest.MonkeyPatch, numpy: str
) -> None:
    if numpy == "without numpy":
        monkeypatch.delitem(sys.modules, "numpy", raising=False)
    else:
        pytest.importorskip("numpy")
    name, content = name_of(1), random.Random(0).randbytes(5003)
    assert store.put(name, [content])
    file = file_of(store, name)
    whole = file.read_bytes()
    changes = [whole[:length] for length in (0, 1, 39, 40, 41, 4096, len(whole) - 1)]
    changes += [whole + b"\0", bytes(len(whole)), whole[:4096] + bytes(len(whole) - 4096)]
    changes += [bytes(512) + whole[512:], whole[:1024] + bytes(512) + whole[1536:]]
    for place in [*range(60), *range(60, len(whole), 97), len(whole) - 1]:
        for bit in (1, 0x80):
            changes.append(whole[:place] + bytes((whole[place] ^ bit,)) + whole[place + 1 :])
    for changed in changes:
        file.write_bytes(changed)
        assert store.get(name) is None
        assert not file.exists()
    # AND an entry under another one's name is none
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(whole)
    assert store.get(name) == content
    file.rename(file.with_name("0" * 14))
    assert store.get(name[:2] + "0" * 14) is None


def test_what_numpy_checks_is_left_to_who_has_it(
    store: SampleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numpy")
    assert store.put(name_of(1), [b"content"])
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "numpy")
        assert store.get(name_of(1)) is None
        assert store.put(name_of(2), [b"other"])
    assert store.get(name_of(1)) == b"content"
    assert store.get(name_of(2)) == b"other"


def test_the_budget_holds_and_what_is_replaced_makes_room(tmp_path: Path, notes: Notes) -> None:
    store = SampleStore(str(tmp_path / "cache"), 40 * 4096, notes)
    kept = [number for number in range(100) if store.put("ab" + name_of(number), [b"x" * 5000])]
    assert len(kept) == 19  # of two blocks each, beside one for their folder
    assert on_disk(tmp_path / "cache") <= 40 * 4096
    for _ in range(50):
        assert store.put("ab" + name_of(kept[0]), [b"y" * 5000])
    assert store.get("ab" + name_of(kept[0])) == b"y" * 5000
    assert on_disk(tmp_path / "cache") <= 40 * 4096
    # AND a full cache is nothing to note
    assert notes == []


def put_and_get(folder: str, budget: int, seed: int, rounds: int) -> None:
    store, dice = SampleStore(folder, budget, Notes()), random.Random(seed)
    for _ in range(rounds):
        number = dice.randrange(150)
        got = store.get(name_of(number))
        if got is not None:
            assert bytes(got) == content_of(number)
        if got is None or dice.random() < 0.1:
            store.put(name_of(number), [content_of(number)])


def test_an_entry_that_found_no_room_keeps_smaller_ones_from_none(
    tmp_path: Path, notes: Notes
) -> None:
    small = SampleStore(str(tmp_path / "cache"), 64 << 10, notes)
    assert small.has_room(name_of(0), 1 << 20)  # nobody knows yet
    assert not small.put(name_of(0), [bytes(1 << 20)])
    assert not small.has_room(name_of(1), 1 << 20)
    assert small.has_room(name_of(1), 1000)
    assert small.put(name_of(1), [bytes(1000)])
    assert small.has_room(name_of(1), 1 << 20)  # it is there already


def test_processes_share_a_budget(tmp_path: Path) -> None:
    folder, budget = tmp_path / "cache", 500_000
    context = multiprocessing.get_context("fork")
    words = [(str(folder), budget, seed, 400) for seed in range(4)]
    processes = [context.Process(target=put_and_get, args=each) for each in words]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert budget / 2 < on_disk(folder) <= budget


def test_killed_writers_leave_the_budget_and_whole_entries(tmp_path: Path) -> None:
    folder, budget = tmp_path / "cache", 500_000
    context = multiprocessing.get_context("fork")
    for seed in range(5):
        process = context.Process(target=put_and_get, args=(str(folder), budget, seed, 10**9))
        process.start()
        full = partial(is_on_disk, folder, (seed + 1) * 50_000)
        wait_until(full, process, pause_s=0.001)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
    store = SampleStore(str(folder), budget, Notes())
    for number in range(150):
        got = store.get(name_of(number))
        assert got is None or bytes(got) == content_of(number)
        store.put(name_of(number), [content_of(number)])
    assert on_disk(folder) <= budget


def test_a_forked_process_has_nothing_of_its_parents_reservation(store: SampleStore) -> None:
    store._reserved = 1 << 20

    def child() -> None:
        assert store.put(name_of(1), [b"x"])
        os._exit(0 if store._reserved < 1 << 19 else 1)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert store.get(name_of(1)) == b"x"


def test_a_process_that_ends_gives_its_reservation_back(store: SampleStore) -> None:
    def used() -> int:
        return int.from_bytes(Path(store.folder, "used").read_bytes()[:8], "little")

    for number in range(40):
        assert store.put(name_of(number), [b"x" * 5000])
    assert store._reserved > 0
    before, reserved = used(), store._reserved
    store.close()
    assert used() == before - reserved
    store.close()
    assert used() == before - reserved
    assert store.put(name_of(50), [b"x" * 5000])


def test_a_lost_number_is_counted_again(store: SampleStore, tmp_path: Path) -> None:
    for number in range(20):
        assert store.put(name_of(number), [content_of(number)])
    for damaged in (b"", bytes(16), b"x" * 16):
        Path(store.folder, "used").write_bytes(damaged)
        small = SampleStore(store.folder, on_disk(Path(store.folder)) + 8192, Notes())
        assert not small.put(name_of(99), [bytes(20_000)])
        assert small.put(name_of(98), [b"x"])


def test_a_lock_that_somebody_holds_is_not_waited_for(store: SampleStore, notes: Notes) -> None:
    with open(Path(store.folder, "used"), "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert not store.put(name_of(1), [b"x"])
    assert notes == []
    store._paused_until = 0.0
    assert store.put(name_of(1), [b"x"])


def failing(error: int) -> Any:
    def fail(*words: Any) -> None:
        raise OSError(error, os.strerror(error))

    return fail


@pytest.mark.parametrize("call", ["write", "rename", "open", "pwrite", "statvfs", "mkdir"])
@pytest.mark.parametrize("error", ["ENOSPC", "EROFS", "EIO", "EACCES", "EDQUOT", "EFBIG"])
def test_after_a_failed_write_nothing_is_written_and_reads_go_on(
    store: SampleStore, notes: Notes, monkeypatch: pytest.MonkeyPatch, call: str, error: str
) -> None:
    assert store.put(name_of(1), [b"kept"])
    store._reserved = 0
    before = sorted(Path(store.folder).rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(sample_store.os, call, failing(getattr(__import__("errno"), error)))
        assert not store.put(name_of(2), [b"x"])
        assert store.get(name_of(3)) is None
    assert not store.put(name_of(2), [b"x"])
    assert len(notes) == 1
    assert os.strerror(getattr(__import__("errno"), error)) in notes[0]
    assert store.get(name_of(1)) == b"kept"
    files = [path for path in Path(store.folder).rglob("*") if path.is_file()]
    assert files == [path for path in files if path in before]


def test_where_files_cannot_be_locked_reads_go_on(
    store: SampleStore, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.put(name_of(1), [b"kept"])
    store._reserved = 0
    monkeypatch.setattr(fcntl, "flock", failing(37))  # ENOLCK, as NFS without its daemon says
    assert not store.put(name_of(2), [b"x"])
    assert not store.put(name_of(3), [b"x"])
    assert len(notes) == 1
    assert store.get(name_of(1)) == b"kept"


def test_a_small_cache_fits_on_a_disk_that_is_nearly_full(
    store: SampleStore, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a file system of which a hundredth is free, a hundred blocks
    space = os.statvfs(store.folder)
    fields = list(space)[:10]
    fields[1], fields[2], fields[4] = 4096, 10_000, 100  # f_frsize, f_blocks, f_bavail
    monkeypatch.setattr(sample_store.os, "statvfs", lambda path: os.statvfs_result(fields))
    # WHEN samples are kept until no more are
    count = next(count for count in range(100) if not store.put(name_of(count), [b"x"]))
    # THEN a twentieth of what was free is used
    assert 1 <= count <= 5
    assert "nearly full" in notes[0]


def test_little_free_space_or_memory_ends_writing(
    store: SampleStore, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = os.statvfs(store.folder)
    fields = list(space)[:10]
    fields[4] = 1  # f_bavail
    monkeypatch.setattr(sample_store.os, "statvfs", lambda path: os.statvfs_result(fields))
    assert not store.put(name_of(1), [b"x"])
    assert "nearly full" in notes[0]
    monkeypatch.undo()
    other = Notes()
    again = SampleStore(store.folder, BUDGET, other)
    again._budget._is_memory = True
    monkeypatch.setattr(cache_folder, "_available_bytes", lambda: 100)
    assert not again.put(name_of(1), [b"x"])
    assert "memory" in other[0]


def test_a_folder_that_goes_away_is_a_miss(store: SampleStore, notes: Notes) -> None:
    assert store.put(name_of(1), [b"x"])
    shutil.rmtree(store.folder)
    assert store.get(name_of(1)) is None
    assert not store.put(name_of(1), [b"x"])
    assert not store.put(name_of(2), [b"x"])
    assert not os.path.exists(store.folder)
    assert len(notes) == 1
    store.drop("its samples differ")
    assert not os.path.exists(store.folder)


def test_what_is_no_plain_file_is_a_miss(store: SampleStore, notes: Notes, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(sample_store.entry(name_of(1), [b"x"]))
    for number, make in enumerate(
        (lambda path: path.symlink_to(secret), Path.mkdir, os.mkfifo), start=1
    ):
        file = file_of(store, name_of(number))
        file.parent.mkdir(exist_ok=True)
        make(file)
        assert store.get(name_of(number)) is None
        store.put(name_of(number), [b"new"])
    assert secret.read_bytes() == sample_store.entry(name_of(1), [b"x"])
    assert file_of(store, name_of(2)).is_dir()
    # AND a file where a folder belongs
    (file_of(store, name_of(50)).parent).write_text("file")
    assert store.get(name_of(50)) is None
    assert not store.put(name_of(50), [b"x"])
    assert store.put(name_of(51), [b"x"])
    assert notes == []


def test_a_folder_that_is_not_the_users_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").write_text("")
    for name in ("open", "link", "file"):
        with pytest.raises(OSError, match=r"alone|Not a directory"):
            SampleStore(str(tmp_path / name), BUDGET, Notes())
    assert os.listdir(tmp_path / "real") == []


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_folder.os, "getuid", lambda: os.geteuid() + 1)
    with pytest.raises(PermissionError):
        SampleStore(str(tmp_path / "cache"), BUDGET, Notes())


def test_a_dropped_folder_is_neither_read_nor_written(store: SampleStore) -> None:
    other = SampleStore(store.folder, BUDGET, Notes())
    assert store.put(name_of(1), [b"x"])
    assert not other.dropped
    store.drop("a sample differs")
    for each in (store, other, SampleStore(store.folder, BUDGET, Notes())):
        assert each.dropped
        assert each.get(name_of(1)) is None
        assert not each.put(name_of(2), [b"x"])
    assert Path(store.folder, "dropped").read_text() == "a sample differs\n"


def test_what_a_signal_handler_raises_reaches_the_program(store: SampleStore) -> None:
    class Alarm(OSError):
        pass

    def handle(*_: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGUSR1, handle)
    real = os.rename

    def rename(*words: Any) -> None:
        real(*words)
        os.kill(os.getpid(), signal.SIGUSR1)

    try:
        sample_store.os.rename = rename  # type: ignore[assignment]
        with pytest.raises(Alarm):
            store.put(name_of(1), [b"x"])
    finally:
        sample_store.os.rename = real
        signal.signal(signal.SIGUSR1, before)
