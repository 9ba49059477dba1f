"""Opens the event logs of a run directory."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lotus.common.errors import LotusError
from lotus.reading.logs import run_json
from lotus.reading.logs.event_log import EventLog, ForeignError, Lost


def logs(path: Path, manifest: Mapping[str, Any], lost: list[Lost]) -> list[EventLog]:
    """Return the logs of the run at `path`, in the order of their names.

    What cannot be read is added to `lost`. Raises LotusError if that is the whole directory.
    """
    events = path / "events"
    result = []
    clocks = run_json.clocks(manifest.get("hosts") or ())
    try:
        names = sorted(os.listdir(events)) if not events.is_symlink() else []
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except OSError as error:
        raise LotusError(f"cannot read {events}: {error.strerror}; see: ls -ld {events}") from None
    if events.is_symlink():
        lost.append(Lost("events/ is a link and was not followed", -1, 1, 0))
    for name in names:
        try:
            result.append(EventLog(str(events), name, clocks))
        except ForeignError as error:
            lost.append(Lost(str(error), -1, 1, _size(events / name)))
        except OSError as error:
            what = f"file in events/ that cannot be read: {error.strerror or error}"
            lost.append(Lost(what, -1, 1, _size(events / name)))
    return result


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
