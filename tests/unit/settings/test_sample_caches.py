"""`lotus cache ls` and `rm`: what is listed, what is removed, and what is never touched."""

import json
import os
import time
from pathlib import Path

import pytest

from lotus import cli
from lotus.common.errors import LotusError
from lotus.common.text.formatting import size
from lotus.inside.cache.sample_store import SampleStore
from lotus.settings import sample_caches


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of caches."""
    root = tmp_path / "lotus" / "samples"
    monkeypatch.setattr(sample_caches, "roots", lambda: [root, tmp_path / "none"])
    return root


def make(folder: Path, samples: int = 3, days_ago: float = 0.0, **about: object) -> SampleStore:
    store = SampleStore(str(folder), 1 << 30, print, about)
    for number in range(samples):
        assert store.put(f"{number:02x}{number:030x}", [bytes(5000)])
    used_at = time.time() - days_ago * 86_400
    os.utime(folder / "used", (used_at, used_at))
    return store


def test_the_users_folders_are_where_programs_keep_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    disk, memory = sample_caches.roots()
    assert str(disk) == "/somewhere/lotus/samples"
    assert str(memory) == f"/dev/shm/lotus-samples-{os.getuid()}"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert sample_caches.roots()[0] == Path.home() / ".cache" / "lotus" / "samples"


def test_caches_are_listed_with_what_they_are_of(root: Path) -> None:
    make(root / "old", 2, days_ago=40)
    store = make(
        root / "new", data_set="Pictures", operations=["Resize"], cut=1, command=["python", "t.py"]
    )
    store.drop("a sample differs")
    new, old = sample_caches.listed()
    assert (new.samples, old.samples) == (3, 2)
    assert (new.data_set, new.operations, new.cut) == ("Pictures", ("Resize",), 1)
    assert new.command == ("python", "t.py")
    assert (new.dropped, old.dropped) == ("a sample differs", None)
    assert (old.data_set, old.operations) == (None, None)
    assert old.made_at is not None
    in_blocks = sum(path.lstat().st_blocks * 512 for path in (root / "new").rglob("*"))
    assert new.bytes == in_blocks > 3 * 5000


def test_the_table_names_folders_and_totals(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(root / "old", 2, days_ago=40)
    make(root / "new", data_set="Pict\x1bures", operations=["Resize", "Crop"]).drop("it differs")
    assert cli.main(["cache", "ls"]) == 0
    text = capsys.readouterr().out
    assert "> Resize > Crop" in text
    assert "40 days ago" in text
    assert "dropped: it differs" in text
    assert f"{root / 'old'}\n" in text
    assert "5 samples in 2 caches" in text
    assert "\x1b" not in text
    assert cli.main(["cache", "ls", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["samples"] == 5
    assert [row["folder"] for row in document["caches"]] == [str(root / "new"), str(root / "old")]


def test_without_any_it_says_how_to_make_one(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["cache", "ls"]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) == 1
    assert "lotus plan -- python train.py" in text
    assert cli.main(["cache", "rm", "--all"]) == 0
    assert capsys.readouterr().out == "removed nothing\n"


def test_what_is_no_cache_is_not_listed_and_not_removed(root: Path, tmp_path: Path) -> None:
    (root / "folder").mkdir(parents=True)
    (root / "folder" / "precious").write_text("x")
    make(tmp_path / "elsewhere")
    (root / "link").symlink_to(tmp_path / "elsewhere")
    (root / "file").write_text("x")
    for text in ("", "[]", "{}", '{"format": "other"}', "[" * 100_000, "\xff"):
        (root / "folder" / "about.json").write_text(text, encoding="latin-1")
        assert sample_caches.listed() == []
    for name in ("folder", "link", "file", "..", str(root / "folder"), str(root / "link"), "/"):
        assert cli.main(["cache", "rm", name]) == 2
    assert cli.main(["cache", "rm", "--all"]) == 0
    assert (root / "folder" / "precious").exists()
    assert (tmp_path / "elsewhere" / "used").exists()


def test_a_hostile_description_is_as_none(root: Path) -> None:
    make(root / "cache", made="x")
    about = {"format": sample_caches.FORMAT, "made_at": "x", "cut": [], "operations": [1], "x": {}}
    (root / "cache" / "about.json").write_text(json.dumps(about))
    (cache,) = sample_caches.listed()
    assert (cache.made_at, cache.cut, cache.operations) == (None, None, None)


def test_caches_are_removed_by_name_path_and_age(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, days in (("a", 0), ("b", 31), ("c", 29), ("d", 0)):
        make(root / name, days_ago=days)
    kept = tmp_path / "kept"
    kept.write_text("x")
    (root / "a" / "00" / "link").symlink_to(kept)
    taken = next(each.bytes for each in sample_caches.listed() if each.folder.name == "a")
    assert cli.main(["cache", "rm", "a"]) == 0
    assert capsys.readouterr().out == f"removed 1 cache: {size(taken)}\n"
    assert kept.read_text() == "x"
    assert cli.main(["cache", "rm", "--unused-for", "30d"]) == 0
    assert sorted(os.listdir(root)) == ["c", "d"]
    make(tmp_path / "own folder")
    assert cli.main(["cache", "rm", str(tmp_path / "own folder"), "c"]) == 0
    assert not (tmp_path / "own folder").exists()
    assert cli.main(["cache", "rm"]) == 2
    assert cli.main(["cache", "rm", "d", "--all"]) == 2
    assert os.listdir(root) == ["d"]
    assert cli.main(["cache", "rm", "--all"]) == 0
    assert os.listdir(root) == []


def test_a_program_goes_on_without_the_cache_that_was_removed(root: Path) -> None:
    notes: list[str] = []
    make(root / "cache")
    store = SampleStore(str(root / "cache"), 1 << 30, notes.append)
    (cache,) = sample_caches.listed()
    assert sample_caches.remove(cache) == cache.bytes
    assert store.get("00" + "0" * 30) is None
    assert not store.put("00" + "0" * 30, [b"x"])
    assert len(notes) == 1
    with pytest.raises(LotusError, match="is not a cache"):
        sample_caches.remove(cache)


@pytest.mark.parametrize("number", [10**400, -(10**400), 1e308, float("nan"), float("inf"), True])
def test_a_time_beyond_all_bounds_is_not_known(root: Path, number: float) -> None:
    make(root / "odd")
    about = json.loads((root / "odd" / "about.json").read_text())
    (root / "odd" / "about.json").write_text(json.dumps({**about, "made_at": number}))
    (cache,) = sample_caches.listed()
    assert cache.made_at is None
