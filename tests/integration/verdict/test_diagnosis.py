"""Programs of tests/diagnosis whose cause does not hang on how fast this machine is."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parents[2] / "diagnosis"
_ALWAYS = [
    ("blind", "clicks"),  # every worker reads all of the data
    ("blind", "tweets"),  # memory grows by copy-on-write
    ("own", "few_shards"),  # workers without data
    ("own", "command_line"),  # a program is started for each sample
    ("own", "manager_cache"),  # each sample is asked for from a manager's process
    ("own", "shared_lock"),  # a lock that the workers share
    ("blind", "traffic"),  # collate
    ("dunlin", "cherries"),  # the data set's own code
    ("open", "events"),  # workers without data, of an iterable data set
    ("open", "molecules"),  # sending many small parts
    ("plover", "mazes"),  # one operation
    ("tide", "sandpipers"),  # samples that come twice
]
_OF_TWO_CORPORA = [
    (corpus, name)
    for corpus in ("own", "open")
    for name, label in json.loads((PROGRAMS / f"{corpus}.json").read_text()).items()
    if not label["healthy"] and (corpus, name) not in _ALWAYS
]


@pytest.mark.parametrize(("corpus", "name"), _ALWAYS)
def test_the_planted_cause_is_named_and_no_harm_is_advised(
    corpus: str, name: str, tmp_path: Path
) -> None:
    name_the_planted_cause(corpus, name, tmp_path)


@pytest.mark.parametrize(("corpus", "name"), _OF_TWO_CORPORA)
def test_the_planted_causes_of_two_corpora_are_named(
    corpus: str, name: str, tmp_path: Path
) -> None:
    name_the_planted_cause(corpus, name, tmp_path)


def name_the_planted_cause(corpus: str, name: str, tmp_path: Path) -> None:
    """Trace a program up to three times, until its planted cause is among those reported."""
    label = json.loads((PROGRAMS / f"{corpus}.json").read_text())[name]
    causes: list[dict[str, Any]] = []
    planted = None
    for turn in range(3):  # a machine that stands still as long as a run has a cause of its own
        causes = causes_of(PROGRAMS / corpus / f"{name}.py", tmp_path / f"run-{turn}")
        of_kind = (cause for cause in causes if cause["kind"] in label["kinds"])
        named = (cause for cause in of_kind if re.search(label["names"], cause["title"]))
        planted = next(named, None)
        if planted is not None:
            break
    assert planted is not None, causes
    if label["never"]:
        assert "Raise num_workers" not in planted["advice"]


def causes_of(program: Path, run: Path) -> list[dict[str, Any]]:
    """The causes that are reported of a traced program, the most important first."""
    lotus = [sys.executable, "-m", "lotus"]
    subprocess.run(
        [*lotus, "trace", "-q", "-o", run, "--", sys.executable, "-W", "ignore", program],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    shown = subprocess.run([*lotus, "report", "--json", run], check=True, capture_output=True)
    causes: list[dict[str, Any]] = json.loads(shown.stdout)["verdict"]["causes"]
    return causes
