"""The launcher's record of the program, made from outside: blocking.json."""

from pathlib import Path
from typing import Any, NamedTuple

from lotus.common import files
from lotus.format.run_directory import BLOCKING as NAME

# Of a run with 40,000 processes: 4 MB, 700,000 values.
_MOST_BYTES, _MOST_VALUES = 16 << 20, 2_000_000
_NOT_KNOWN = "what threads were blocked in is not known"


class LauncherRecord(NamedTuple):
    """The values of blocking.json, unchecked."""

    values: dict[str, Any]  # empty where there is no record
    problem: str = ""  # why the record is missing or incomplete
    is_missing: bool = False  # there is no file: not every run has it


def read(directory: Path) -> LauncherRecord:
    """Read the record of a run directory; never raises for a missing or damaged file."""
    try:
        values = files.read_json(directory / NAME, _MOST_BYTES, _MOST_VALUES)
    except FileNotFoundError:
        return LauncherRecord({}, is_missing=True)
    except OSError as error:
        why = error.strerror or str(error)
        return LauncherRecord({}, f"{NAME} cannot be read ({why}): {_NOT_KNOWN}")
    except ValueError:
        return LauncherRecord({}, f"{NAME} is damaged: {_NOT_KNOWN}")
    if not isinstance(values, dict):
        return LauncherRecord({}, f"{NAME} is damaged: {_NOT_KNOWN}")
    problem = values.get("problem")
    return LauncherRecord(values, problem[:300] if isinstance(problem, str) else "")
