"""What the end of `lotus trace` needs is imported while the program runs, if it loads data."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, threading
from pathlib import Path
from lotus.reporters.run.early_import import EarlyImport
with EarlyImport(Path(sys.argv[1])):
    (thread,) = [each for each in threading.enumerate() if each.name == "lotus-import"]
    if sys.argv[2] == "wait":
        thread.join()
thread.join()
print("lotus.reporters.run.short_report" in sys.modules, "pandas" in sys.modules)
"""


def imported(run: Path, *words: str) -> str:
    command = [sys.executable, "-c", PROGRAM, str(run), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_program_that_records_events_has_it_imported(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    assert imported(tmp_path, "wait") == "True True"


def test_a_program_that_loads_no_data_costs_nothing(tmp_path: Path) -> None:
    assert imported(tmp_path, "end") == "False False"
