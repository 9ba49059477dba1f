"""balance.json: what is written is read again; what contradicts itself is refused by name."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lotus.common.errors import LotusError
from lotus.settings import share_plan
from lotus.settings.share_plan import ModelSignature, PlanPrediction, PredictedStep, SharePlan
from lotus.settings.tuned_file import Target

PLAN = SharePlan(
    batch_sizes=(10, 6, 16),
    strategy="lotus",
    loader=Target(call_site="train.py:3", dataset="Images", dataset_length=100),
    model=ModelSignature(12, "ab" * 32),
    predicted=PlanPrediction(PredictedStep(0.25, None, None)),
    notes=("one",),
)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "balance.json"
    share_plan.write(path, PLAN)
    assert share_plan.read(path) == PLAN
    assert share_plan.is_plan(path)
    content = json.loads(path.read_text())
    assert content["world_size"] == 3
    assert content["global_batch"] == 32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"world_size": 4}, '"world_size" is 4, but its batch_sizes give 3'),
        ({"global_batch": 31}, '"global_batch" is 31, but its batch_sizes give 32'),
        ({"batch_sizes": [10, 0, 22]}, "rank 1 would have no samples"),
        ({"batch_sizes": [10, -1, 23]}, "batch_sizes[1] is -1"),
        (
            {"batch_sizes": [10, True, 21]},
            "batch_sizes[1] must be a whole number, not true or false",
        ),
        (
            {"batch_sizes": [10, 1.5, 20.5]},
            "batch_sizes[1] must be a whole number, not a decimal one",
        ),
        ({"batch_sizes": []}, "batch_sizes has 0 items: it must have 1 to 65536"),
        ({"batch_sizes": None}, "batch_sizes must be a list, not null"),
        ({"version": 2}, "its version is 2, this lotus reads 1"),
        ({"format": "other"}, "format is 'other': it must be lotus-balance"),
        ({"strategy": "best"}, "strategy is 'best': it must be one of lotus, bno, equal, random"),
        ({"world_size": True}, "world_size must be a whole number, not true or false"),
        ({"predicted": {"gain": 2}}, "predicted has unknown fields: gain; it may have step_before"),
        (
            {"loader": {"number": 3, "line": 3}},
            "loader has unknown fields: line; it may have number,",
        ),
        ({"loader": {}}, "in loader, nothing says which loader it is"),
        ({"model": {"parameters": 3}}, "model has no shapes"),
        ({"notes": [1]}, "notes[0] must be a text, not a whole number"),
        ({"more": 1}, "unknown fields: more"),
    ],
)
def test_what_contradicts_itself_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = tmp_path / "balance.json"
    path.write_text(json.dumps(share_plan.document(PLAN) | changes))
    with pytest.raises(LotusError) as raised:
        share_plan.read(path)
    assert message in str(raised.value)
    assert "lotus balance RUN -o balance.json" in str(raised.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"schema": 1}'])
def test_other_files_are_no_plans(tmp_path: Path, text: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(text)
    assert not share_plan.is_plan(path)
    with pytest.raises(LotusError, match="is not a plan of lotus balance"):
        share_plan.read(path)
    assert not share_plan.is_plan(tmp_path / "none")
    with pytest.raises(LotusError, match="No such file"):
        share_plan.read(tmp_path / "none")


def test_reading_a_plan_imports_no_library() -> None:
    code = (
        "import sys, lotus.settings.share_plan\n"
        "print([name for name in ('numpy', 'pandas', 'torch', 'rich') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
