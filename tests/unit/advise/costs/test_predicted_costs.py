"""Costs of operations that are predicted from earlier plans, and what is not known."""

from __future__ import annotations

import io
from typing import Any

import pytest

from lotus.advise.costs.predicted_costs import (
    CostRecord,
    MeasuredCost,
    PipelineCost,
    measured_costs,
    pipeline_cost,
)
from lotus.reporters.advise import costs_report
from lotus.reporters.base.console import plain_console

MS = 1_000_000
VERSIONS = {"python": "3.11", "torch": "2.14"}
CPU = "a CPU"


def record(
    ns: float, size: float = 1000.0, kind: str = "picture RGB", at: float = 1.0, **changes: Any
) -> CostRecord:
    """Of an operation that takes `ns`, give or take a tenth."""
    cost = MeasuredCost(kind, size, 24, ns, ns, 0.9 * ns, 1.1 * ns)
    return CostRecord(
        **{"cost": cost, "cpu": CPU, "versions": VERSIONS, "measured_at": at, **changes}
    )


def operation(name: str = "Resize", key: str | None = "k", **changes: Any) -> dict[str, Any]:
    fields = {
        "event": "operation", "name": name, "qualified_name": f"t.{name}", "description": "",
        "key": key, "kinds": ["picture RGB"] * 2, "bytes": [1000, 1000], "cpu_ns": [],
        "versions": {**VERSIONS, "PIL": "12"}, "waited_share": None,
    }  # fmt: skip
    return {**fields, **changes}


def predicted(*records: CostRecord, **changes: Any) -> tuple[Any, str]:
    (cost,) = pipeline_cost([operation(**changes)], {"k": records}, CPU).operations
    values = cost.predicted
    return values and (values.ns, values.low_ns, values.high_ns), cost.why


def test_the_same_size_is_predicted_from_all_plans() -> None:
    values, why = predicted(record(100), record(120, at=2.0), record(200, size=1080, at=3.0))
    assert (values, why) == ((120, 72, pytest.approx(275)), "")


def test_other_sizes_are_scaled_where_two_are_known() -> None:
    two = record(100, 1000), record(200, 2000)
    values, _ = predicted(*two, bytes=[1000, 3000])
    # 100 and 300: of the larger, the range is relative to the line.
    assert values == pytest.approx((200, 144, 275))


@pytest.mark.parametrize(
    ("records", "changes", "why"),
    [
        ((), {}, "not measured before"),
        ((record(100),), {"bytes": [1000, 2000]}, "other size, not known"),
        ((record(100), record(100, 1050)), {"bytes": [1000, 1200]}, "other size, not known"),
        ((record(100), record(200, 2000)), {"bytes": [1000, 5000]}, "much smaller or larger"),
        ((record(10), record(200, 2000)), {"bytes": [1000, 600]}, "do not follow the size"),
        ((record(100),), {"kinds": ["picture L"] * 2}, "another input (picture L)"),
        ((record(100, cpu="another"),), {}, "another CPU or other versions"),
        ((record(100, versions={"torch": "2.13"}),), {}, "another CPU or other versions"),
        ((record(100),), {"key": None}, "no hash"),
        ((record(100),), {"kinds": [], "bytes": []}, "no sample was made"),
    ],
)
def test_what_is_not_known_has_its_reason(
    records: tuple[CostRecord, ...], changes: dict[str, Any], why: str
) -> None:
    values, reason = predicted(*records, **changes)
    assert values is None
    assert why in reason


def test_versions_that_only_one_program_has_do_not_matter() -> None:
    values, _ = predicted(record(100, versions={"torch": "2.14", "cv2": "4"}))
    assert values is not None


def test_plans_on_a_busy_machine_do_not_count_beside_quiet_ones() -> None:
    busy = record(200, waited_share=0.5), record(210, at=2.0, waited_share=0.45)
    values, _ = predicted(*busy, record(100, waited_share=0.02), record(104, waited_share=0.1))
    assert values == pytest.approx((102, 72, 143))
    values, _ = predicted(*busy)
    assert values == pytest.approx((205, 144, 288.75))
    # Other sizes are no reason to take those of a busy machine.
    line = record(100, 500, waited_share=0.0), record(300, 1500, waited_share=0.1)
    values, _ = predicted(*line, record(900, 1700, waited_share=0.9))
    assert values == pytest.approx((200, 144, 275))


def test_a_busy_machine_is_told() -> None:
    assert "busy" not in printed(some())
    busy = printed(costs_of(operation(cpu_ns=[MS], waited_share=0.4)))
    assert "busy meanwhile it waited for a core in 40% of the time" in busy


def test_samples_are_measured_by_kind_and_size() -> None:
    event = operation(
        kinds=["a", "b", "a", "a", "a"], bytes=[100, 100, 105, 300, 0], cpu_ns=[10, 20, 30, 40, 5]
    )
    costs = [(each.kind, each.bytes, each.samples, each.mean_ns) for each in measured_costs(event)]
    assert costs == [("a", 0, 1, 5), ("a", 102.5, 2, 20), ("a", 300, 1, 40), ("b", 100, 1, 20)]


def costs_of(*events: dict[str, Any]) -> PipelineCost:
    records = {"k": [record(2 * MS), record(2 * MS, at=2.0)], "l": [record(1 * MS)]}
    return pipeline_cost(events, records, CPU)


def some() -> PipelineCost:
    """A pipeline of which two operations are known, and one is not."""
    resize = operation(cpu_ns=[2 * MS, 3 * MS])
    flip, own = operation("Flip", "l", cpu_ns=[MS]), operation("Own", None, cpu_ns=[9 * MS])
    return costs_of(resize, flip, own)


def printed(costs: PipelineCost) -> str:
    file = io.StringIO()
    costs_report.write(plain_console(file), costs)
    return " ".join(file.getvalue().split())


def test_the_sum_is_of_what_is_known_with_its_error() -> None:
    text = printed(some())
    assert "Own its code or state has no hash 9.00 ms" in text
    assert (
        "known 2 of 3 operations, predicted 3.00 ms (2.16 ms to 4.12 ms) a sample, measured "
        "3.50 ms: 14% less than measured; by at most 2 plans an operation"
    ) in text


def test_nothing_is_printed_for_a_first_plan() -> None:
    assert printed(costs_of(operation(key="new", cpu_ns=[MS]))) == ""


def test_without_a_measurement_the_reasons_are_printed() -> None:
    text = printed(costs_of(operation(), operation("Flip", "new")))
    assert "Flip not measured before" in text
    assert "known 1 of 2 operations, predicted 2.00 ms (1.44 ms to 2.75 ms) a sample; by" in text
