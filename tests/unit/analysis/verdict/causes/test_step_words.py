"""The words on a training step that waits: a lower bound of all of its time is all of it."""

from lotus.analysis.verdict.causes.cause_row import Evidence
from lotus.analysis.verdict.causes.step.training_step import TRAINING_STEP


def test_no_share_is_at_least_all() -> None:
    assert TRAINING_STEP.reason(Evidence({"waiting_share": 0.9999})).startswith(
        "For 100% of that time"
    )
    assert TRAINING_STEP.reason(Evidence({"waiting_share": 0.8})).startswith(
        "For at least 80% of that time"
    )
