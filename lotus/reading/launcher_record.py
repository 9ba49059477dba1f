"""The launcher's record of the program, made from outside: blocking.json."""

from pathlib import Path
from typing import Any, NamedTuple

from lotus.common import files
from lotus.format.run_directory import BLOCKING as NAME

_MOST_BYTES = 4 << 20


class LauncherRecord(NamedTuple):
    """The values of blocking.json, unchecked."""

    values: dict[str, Any]  # empty where there is no record
    problem: str = ""  # why the record is missing or incomplete


def read(directory: Path) -> LauncherRecord:
    """Read the record of a run directory; never raises for a missing or damaged file."""
    try:
        values = files.read_json(directory / NAME, _MOST_BYTES)
    except OSError:
        return LauncherRecord({})  # not every run has it
    except ValueError:
        return LauncherRecord({}, f"{NAME} is damaged: what threads were blocked in is not known")
    if not isinstance(values, dict):
        return LauncherRecord({})
    problem = values.get("problem")
    return LauncherRecord(values, problem[:300] if isinstance(problem, str) else "")
