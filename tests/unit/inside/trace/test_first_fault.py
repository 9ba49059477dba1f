"""Of several processes that stop recording for one reason, one says so."""

from pathlib import Path

import pytest

from lotus.inside.trace.log import log_writer


def test_the_first_to_tell_is_known_to_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_writer.append_line(str(tmp_path), {"event": "start"})
    assert log_writer.first_fault(str(tmp_path)) is None
    for pid in (70, 71):  # both told before either asked
        monkeypatch.setattr("lotus.inside.trace.log.log_writer.os.getpid", lambda pid=pid: pid)
        log_writer.append_line(str(tmp_path), {"event": "fault", "error": "OSError: no space"})
    assert log_writer.first_fault(str(tmp_path)) == 70
    with pytest.raises(OSError, match="No such file"):
        log_writer.first_fault(str(tmp_path / "removed"))
