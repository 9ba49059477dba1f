"""Follows a run directory: reads its logs, its state pages and /proc at each view."""

from pathlib import Path

from lotus.common.errors import LotusError
from lotus.live.log_digest import WANTED
from lotus.live.snapshots import SnapshotTaker
from lotus.live.tailing import ReportTail, Tail, manifest_of
from lotus.live.view import LiveRun, View


class Watch:
    """`look()` returns the present view; it reads only from outside the program."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._begin()

    def _begin(self) -> None:
        self._live = LiveRun()
        self._tail = Tail(self.directory, WANTED)
        self._reports = ReportTail(self.directory)
        self._looks = SnapshotTaker(self.directory)
        self._run: object = None

    def look(self) -> View:
        """Return the present view. Raises LotusError if this is not a run directory."""
        if self.directory.exists() and not self.directory.is_dir():
            raise LotusError(
                f"{self.directory} is a file, not a run directory: give the directory that lotus "
                "trace made"
            )
        manifest = manifest_of(self.directory)
        begun = manifest and (manifest.get("start_ns"), manifest.get("boot_id"))
        if begun != self._run:  # another run was recorded into the same directory (-f)
            self._begin()
            self._run = begun
        reports = self._reports.read()
        others = [
            (report["pid"], report["time_ns"])
            for report in reports
            if isinstance(report.get("pid"), int) and isinstance(report.get("time_ns"), int)
        ]
        self._live.add(self._tail.read())
        shot = self._looks.take(self._live.digest.names(), others, (manifest or {}).get("boot_id"))
        return self._live.view(shot, manifest, reports)

    @property
    def behind(self) -> int:
        """Bytes of the logs that have not been read yet."""
        return self._tail.behind
