"""What the end of `lotus trace` needs is imported while the program runs, if it loads data."""

import subprocess
import sys
from pathlib import Path

from lotus.inside.trace.log.log_writer import append_line

PROGRAM = """
import sys, threading
from pathlib import Path
from lotus.reporters.run.early_import import EarlyImport
with EarlyImport(Path(sys.argv[1])):
    (thread,) = [each for each in threading.enumerate() if each.name == "lotus-import"]
    exec(sys.argv[3])
    if sys.argv[2] == "wait":
        thread.join()
thread.join()
print("lotus.reporters.run.short_report" in sys.modules, "pandas" in sys.modules)
"""


def imported(run: Path, how: str, meanwhile: str = "") -> str:
    command = [sys.executable, "-c", PROGRAM, str(run), how, meanwhile]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_it_is_imported_while_the_program_imports_torch_before_any_batch(tmp_path: Path) -> None:
    append_line(str(tmp_path), {"event": "python"})
    append_line(str(tmp_path), {"event": "torch", "torch": "2.15.0"})
    assert imported(tmp_path, "wait") == "True True"


def test_a_program_that_begins_late_has_it_imported_too(tmp_path: Path) -> None:
    program = """
from lotus.inside.trace.log.log_writer import append_line
while not thread.is_alive(): pass
append_line(sys.argv[1], {"event": "python"})
append_line(sys.argv[1], {"event": "torch", "torch": "2.15.0"})
    """
    assert imported(tmp_path, "wait", meanwhile=program) == "True True"


def test_a_program_that_loads_no_data_costs_nothing(tmp_path: Path) -> None:
    append_line(str(tmp_path), {"event": "python"})
    assert imported(tmp_path, "end") == "False False"
