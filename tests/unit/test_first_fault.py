"""Of several processes that stop recording for one reason, one says so."""

from pathlib import Path

import pytest

from lotus.inside import log


def test_the_first_to_tell_is_known_to_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append_line(str(tmp_path), {"event": "start"})
    assert log.first_fault(str(tmp_path)) is None
    for pid in (70, 71):  # both told before either asked
        monkeypatch.setattr("lotus.inside.log.os.getpid", lambda pid=pid: pid)
        log.append_line(str(tmp_path), {"event": "fault", "error": "OSError: no space"})
    assert log.first_fault(str(tmp_path)) == 70
    with pytest.raises(OSError, match="No such file"):
        log.first_fault(str(tmp_path / "removed"))
