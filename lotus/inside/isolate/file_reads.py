"""Checks whether the files from which samples are read are known, so that changes are noticed."""

from __future__ import annotations

from ..cache import opened_files
from ..common.guard import quiet

_SLACK = 4096  # bytes that are read besides


class FileReads:
    """Watches the samples that are made between `start` and `stop`."""

    def __init__(self) -> None:
        # Whether samples have known files, have others, have too many, and write to files.
        self.known = self.unseen = self.many = self.writes = False
        self._samples = 0
        self._begun: int | None = None

    def start(self) -> None:
        self._begun = _bytes_read()
        opened_files.start()

    def stop(self, dataset: object, index: int, times: int) -> None:
        """Note a sample that was made `times` times since `start`."""
        opened, writes = opened_files.stop()
        ended = _bytes_read()
        files = opened_files.of_sample(dataset, index, opened)
        self.many = self.many or files is None
        files = files or []
        self.known = self.known or bool(files)
        self.writes = self.writes or writes
        # The first sample may import modules.
        if self._samples and self._begun is not None and ended is not None:
            grown = ended - self._begun
            self.unseen = self.unseen or grown > _SLACK + times * sum(size for _, size, _ in files)
        self._samples += 1

    def refusal(self) -> str | None:
        """Return why their files keep samples from being cached, as a clause; None: nothing."""
        if self.writes:
            return "the data set writes to files while it makes a sample"
        if self.many:
            return f"a sample is made from more than {opened_files.MOST} files"
        return None


def _bytes_read() -> int | None:
    """Return the number of bytes that this process has read from files; None: unknown."""
    with quiet(OSError, ValueError, IndexError), open("/proc/self/io") as file:
        return int(file.readline().split()[1])
    return None
