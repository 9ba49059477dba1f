"""The demo's data: the same each time, the size of ImageNet's pictures, whole or not there."""

import io
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")

from PIL import Image

from lotus.workloads import jpegs


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
