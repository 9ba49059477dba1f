"""The launcher's record of the program, made from outside: blocking.json."""

import math
from pathlib import Path
from typing import Any, NamedTuple

from lotus.common.machine import py_spy_program
from lotus.common.storage import files
from lotus.format.run_directory import BLOCKING as NAME

# Of a run with 40,000 processes: 4 MB, 700,000 values.
_MOST_BYTES, _MOST_VALUES = 16 << 20, 2_000_000
_NOT_KNOWN = "what threads were blocked in is not known"


class LauncherRecord(NamedTuple):
    """The values of blocking.json, unchecked."""

    values: dict[str, Any]  # empty where there is no record
    problem: str = ""  # why the record is missing or incomplete
    is_missing: bool = False  # there is no file: not every run has it

    @property
    def program_cpu_ns(self) -> float:
        """CPU time of the program with all that it started and waited for; NaN: not known."""
        value = self.values.get("program_ns")
        return float(value) if type(value) is int and 0 <= value < 1 << 62 else math.nan

    @property
    def no_stacks(self) -> str:
        """Why no Python stacks could be sampled, of py_spy_program.FIXES; "": not known."""
        value = self.values.get("no_stacks")
        return value if isinstance(value, str) and value in py_spy_program.FIXES else ""


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
