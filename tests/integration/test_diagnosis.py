"""Programs of tests/diagnosis whose cause does not hang on how fast this machine is."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parents[1] / "diagnosis"


@pytest.mark.parametrize(
    ("corpus", "name"),
    [
        ("blind", "clicks"),  # every worker reads all of the data
        ("blind", "tweets"),  # memory grows by copy-on-write
        ("own", "few_shards"),  # workers without data
        ("own", "command_line"),  # a program is started for each sample
    ],
)
def test_the_planted_cause_is_named_and_no_harm_is_advised(
    corpus: str, name: str, tmp_path: Path
) -> None:
    label = json.loads((PROGRAMS / f"{corpus}.json").read_text())[name]
    for turn in range(3):  # a machine that stands still as long as a run has a cause of its own
        causes = causes_of(PROGRAMS / corpus / f"{name}.py", tmp_path / f"run-{turn}")
        planted = next((causes[kind] for kind in label["kinds"] if kind in causes), None)
        if planted is not None:
            break
    assert planted is not None, causes
    assert re.search(label["names"], planted["title"])
    if label["never"]:
        assert "Raise num_workers" not in planted["advice"]


def causes_of(program: Path, run: Path) -> dict[str, Any]:
    """The causes that are reported of a traced program, by their kind."""
    lotus = [sys.executable, "-m", "lotus"]
    subprocess.run(
        [*lotus, "trace", "-q", "-o", run, "--", sys.executable, "-W", "ignore", program],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    shown = subprocess.run([*lotus, "report", "--json", run], check=True, capture_output=True)
    judged = json.loads(shown.stdout)["verdict"]
    return {cause["kind"]: cause for cause in judged["causes"]}
