"""Where -o sends output, and when it may overwrite."""

from pathlib import Path

import pytest

from lotus.commands.common.output import destination
from lotus.common.errors import LotusError


def test_a_file_is_overwritten_only_if_the_verb_may(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert destination(path, overwrite=False) == path
    path.write_text("mine")
    assert destination(path, overwrite=True) == path
    with pytest.raises(LotusError, match=r"exists: overwrite it with -f, or name another with -o"):
        destination(path, overwrite=False)
    assert path.read_text() == "mine"


def test_an_option_is_named_in_its_error(tmp_path: Path) -> None:
    with pytest.raises(LotusError, match="it is a directory; --html names a file"):
        destination(tmp_path, overwrite=True, option="--html")
    with pytest.raises(LotusError, match=r"cannot write .*absent/x"):
        destination(tmp_path / "absent" / "x", overwrite=True)


def test_a_directory_may_be_made_but_not_in_place_of_a_file(tmp_path: Path) -> None:
    assert destination(tmp_path / "new", overwrite=False, directory=True) == tmp_path / "new"
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        with pytest.raises(LotusError, match="is not a directory; -o names another one"):
            destination(tmp_path / name, overwrite=True, directory=True)
    with pytest.raises(LotusError, match="overwrite it with -f"):
        destination(tmp_path, overwrite=False, directory=True)


@pytest.mark.parametrize("path", ["-", "/dev/stdout"])
def test_the_standard_output(path: str) -> None:
    assert destination(Path(path), overwrite=False, stdout=True) is None
    with pytest.raises(LotusError, match="makes a directory: name it with -o DIR"):
        destination(Path(path), overwrite=False, directory=True)


def test_a_hyphen_is_no_file_where_there_is_no_standard_output() -> None:
    with pytest.raises(LotusError, match="-o must name a file"):
        destination(Path("-"), overwrite=False)
