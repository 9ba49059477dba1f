"""Files that are opened once and read again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lotus.recording.readings import kept_files
from lotus.recording.readings.kept_files import KeptFiles


def test_a_file_is_read_as_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_files, "_MOST", 1)
    kept, other = tmp_path / "kept", tmp_path / "other"
    files = KeptFiles()
    for content in (b"first", b"second"):
        kept.write_bytes(content)
        other.write_bytes(content)
        assert files.read(str(kept)) == content
        assert files.read(str(other)) == content
    assert len(files._descriptors) == 1
    files.close()
    assert not files._descriptors


def test_the_file_of_a_process_that_has_ended_is_closed() -> None:
    files = KeptFiles()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        path = f"/proc/{child.pid}/stat"
        assert files.read(path).startswith(str(child.pid).encode())
        descriptor = files._descriptors[path]
        child.kill()
        child.wait()
        with pytest.raises(ProcessLookupError):
            files.read(path)
    assert not files._descriptors
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
