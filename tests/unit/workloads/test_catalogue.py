"""The demos' data: made once, whole or not there; the pictures have the size of ImageNet's."""

import importlib
import io
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")

from PIL import Image

from lotus.workloads import jpegs, making
from lotus.workloads.catalogue import DEFAULT, WORKLOADS, Workload


def test_pictures_are_the_same_each_time_and_differ_from_each_other() -> None:
    first, again, other = (np.asarray(jpegs.picture(number)) for number in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_pictures_have_the_size_of_imagenets() -> None:
    sizes = []
    for number in range(24):
        file = io.BytesIO()
        picture = jpegs.picture(number)
        picture.save(file, "JPEG", quality=jpegs.QUALITY)
        assert (picture.size, picture.mode) == ((500, 375), "RGB")
        sizes.append(len(file.getvalue()))
    assert 90_000 < np.mean(sizes) < 130_000
    assert min(sizes) > 40_000
    assert max(sizes) < 250_000


def test_the_data_set_is_made_whole_and_then_found(tmp_path: Path) -> None:
    data = tmp_path / "cache" / "data"
    assert list(jpegs.make(data, 10)) == list(range(1, 11))
    files = sorted(data.rglob("*.jpg"))
    assert len(files) == 10
    assert {file.parent.name for file in files} == {f"class_{label}" for label in range(8)}
    with Image.open(files[0]) as image:
        assert image.size == (500, 375)
    before = [file.stat().st_mtime_ns for file in files]
    assert list(jpegs.make(data, 10)) == [10]
    assert [file.stat().st_mtime_ns for file in files] == before


def test_an_interrupted_data_set_is_not_there(tmp_path: Path) -> None:
    data = tmp_path / "data"
    making = jpegs.make(data, 10)
    next(making)
    making.close()
    assert not list(tmp_path.iterdir())


def test_two_may_make_the_data_set_at_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    slow = jpegs.make(data, 4)
    next(slow)
    list(jpegs.make(data, 4))
    list(slow)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert len(list(data.rglob("*.jpg"))) == 4


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_each_data_set_is_made_once_and_says_how_far_it_is(
    workload: Workload, tmp_path: Path
) -> None:
    make = importlib.import_module(f"lotus.workloads.{workload.maker}").make
    data = tmp_path / workload.folder(6)
    assert list(make(data, 6))[-1] == 6
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    assert len(before) > 0
    assert list(make(data, 6))[-1] == 6
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before
    assert [path.name for path in tmp_path.iterdir()] == [data.name]


def test_no_two_demos_share_a_folder() -> None:
    folders = {workload.folder(10) for workload in WORKLOADS.values()}
    assert len(folders) == len(WORKLOADS) == 6
    assert DEFAULT in WORKLOADS
    assert list(WORKLOADS) == sorted(WORKLOADS)
    assert all(workload.script.is_file() for workload in WORKLOADS.values())


def test_what_fails_while_it_is_made_leaves_nothing(tmp_path: Path) -> None:
    def save(directory: Path, number: int) -> None:
        (directory / str(number)).touch()
        if number == 3:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        list(making.make(tmp_path / "data", 10, save))
    with pytest.raises(SystemExit, match="data: No space left on device"):
        making.show(tmp_path / "data", 10, "things", making.make(tmp_path / "data", 10, save))
    assert not list(tmp_path.iterdir())
