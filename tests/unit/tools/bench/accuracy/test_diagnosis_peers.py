"""accuracy/diagnosis_peers_rule.py: every tool's words are judged by the same published rule."""

import json
from pathlib import Path

import pytest

from tests.unit.benches import bench

rule = bench("accuracy.diagnosis_peers_rule")
LABELS = Path(__file__).parents[4] / "diagnosis"
LOCK = {
    "healthy": False, "kinds": ["dataset", "stalls"], "names": "",
    "never": [r"(?i)raise num_workers|num_workers=[1-9]|(?<!no )more workers"],
}  # fmt: skip
HEALTHY = {"healthy": True, "kinds": ["consumer"], "names": "", "never": ["num_workers"]}
STEP = {"healthy": False, "kinds": ["consumer", "outside"], "names": "", "never": []}
INPUT_BOUND = "Verdict: INPUT-BOUND (CRITICAL)\nWhy: Input Wait took 79% of Step Time."
MORE = "Next: Increase workers, prefetch, or storage throughput."
TABLE = """Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls
ProfilerStep*        20.00%        1.291s       80.00%        6.387s      16.942ms           377
enumerate(DataLoader)#_SingleProcess...        5.00%        0.3s        {}%        0.4s  1ms   378
aten::mm         2.47%     158.005ms         2.48%     158.472ms      84.294us          1880"""


def test_who_calls_it_input_bound_is_right_only_of_the_input() -> None:
    assert rule.judged(LOCK, INPUT_BOUND, "", 4)["side"]
    assert not rule.judged(HEALTHY, INPUT_BOUND, "", 4)["side"]
    assert not rule.judged(STEP, INPUT_BOUND, "", 4)["side"]
    assert rule.judged(STEP, "Verdict: RESIDUAL-HEAVY", "", 4)["side"]
    assert not rule.judged(LOCK, "The workload is **compute-bound** (data wait 3%)", "", 4)["side"]


def test_a_profile_accuses_the_loader_by_its_share_of_the_steps() -> None:
    assert rule.share_of_loader(TABLE.format("40.00")) == pytest.approx(50)
    assert rule.judged(LOCK, TABLE.format("8.00"), "", 4)["side"]
    assert not rule.judged(LOCK, TABLE.format("7.90"), "", 4)["side"]
    assert rule.share_of_loader("no line of a step") == 0


def test_a_cause_in_the_next_step_alone_is_hinted_at() -> None:
    hinted = rule.judged(LOCK, INPUT_BOUND, MORE, 4)
    assert (hinted["named"], hinted["hinted"]) == (False, True)
    named = rule.judged(LOCK, "workers wait for a lock", MORE, 4)
    assert (named["named"], named["hinted"]) == (True, False)
    assert not rule.judged({**LOCK, "names": "Slices"}, "workers wait for a lock", "", 4)["named"]
    healthy = rule.judged(HEALTHY, "compute-bound", "", 4)
    assert not healthy["named"]  # nothing was planted


@pytest.mark.parametrize(
    ("step", "workers", "refused"),
    [
        (MORE, 4, True),
        ("Recommended config: `workers=8, persistent`", 4, True),
        ("Recommended config: `workers=4, prefetch=4`", 4, False),
        ("Recommended config: `workers=0`", 4, False),
        ("There are no more workers needed.", 4, False),
        ("", 4, False),
    ],
)
def test_advice_on_workers_is_read_as_the_labels_write_it(
    step: str, workers: int, refused: bool
) -> None:
    found = rule.judged(LOCK, "", step, workers)
    assert found["refused"] is refused
    assert found["step"] is bool(step)


def test_each_kind_of_the_chosen_labels_has_words() -> None:
    for corpus in ("users", "sealed"):
        labels = json.loads((LABELS / f"{corpus}.json").read_text())
        for label in list(labels.values())[:: 4 if corpus == "sealed" else 1]:
            assert label["names"] or set(label["kinds"]) <= set(rule.WORDS)
