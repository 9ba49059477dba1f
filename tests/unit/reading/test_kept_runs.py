"""The runs in traces/ open as they did when they were recorded: one of each schema at least."""

import json
from pathlib import Path

import pytest

import lotus
from lotus.inside.trace.log.log_format import SCHEMA

TRACES = Path(__file__).parents[3] / "traces"
RUNS = sorted(path.parent for path in TRACES.rglob("run.json"))


def test_every_schema_is_kept() -> None:
    schemas = {json.loads((run / "run.json").read_text())["schema"] for run in RUNS}
    assert schemas == set(range(1, SCHEMA + 1))


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_a_kept_run_opens_without_loss(path: Path) -> None:
    run = lotus.load(path)
    assert len(run.batches) == 16  # 256 pictures in batches of 16
    assert len(run.samples) == 256
    assert {"Resize", "ToTensor"} & set(run.operations["operation"])
    assert run.lost.empty
    assert run.manifest["state"] == "ended"
