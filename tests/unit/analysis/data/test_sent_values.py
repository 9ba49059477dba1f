"""Large batches of float64, or that are mostly zeros, are told of."""

from types import SimpleNamespace

import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.verdict.verdict import verdict
from tests.unit.analysis.data.test_sent_views import views
from tests.unit.simulated import Plan

MIB = 1 << 20


def sent(
    run: SimpleNamespace, tensors: float, doubles: float, zeros: float = 0.1
) -> SimpleNamespace:
    made = views(run, tensors, tensors)
    made.first_batches = made.first_batches.assign(double_bytes=doubles, zero_share=zeros)
    return made


def test_where_sending_comes_first_it_is_the_advice() -> None:
    run = Plan(pickle=30.0).run()
    run.batches["bytes"], run.batches["send_bytes"] = 64 * MIB, 400
    first = verdict(scopes(sent(run, 64 * MIB, 64 * MIB))[0]).causes[0]
    assert first.kind == "send"
    assert "64.0 MiB of a batch are float64: float32 takes half" in first.advice
    first = verdict(scopes(sent(run, 64 * MIB, 0, 0.97))[0]).causes[0]
    assert "97% of the values in the 64.0 MiB of a batch are 0" in first.advice
    assert "pad to the longest sample of the batch" in first.advice
    first = verdict(scopes(sent(run, 64 * MIB, 0))[0]).causes[0]
    assert "use uint8 instead of float32" in first.advice


@pytest.mark.parametrize(
    ("workers", "tensors", "doubles", "zeros", "told"),
    [
        (2, 64 * MIB, 64 * MIB, 0.1, ["float64"]),
        (2, 64 * MIB, 64 * MIB, 0.9, ["float64", "are 0"]),
        (2, 64 * MIB, MIB, 0.9, ["are 0"]),
        (2, 64 * MIB, MIB, 0.5, []),
        (2, MIB, MIB, 0.9, []),
        (0, 64 * MIB, 64 * MIB, 0.9, []),
        (2, float("nan"), float("nan"), float("nan"), []),
    ],
)
def test_elsewhere_it_is_a_remark(
    workers: int, tensors: float, doubles: float, zeros: float, told: list[str]
) -> None:
    run = sent(Plan(workers=workers, step=300.0).run(), tensors, doubles, zeros)
    judged = verdict(scopes(run)[0])
    assert judged.kind == "consumer-bound"
    text = " ".join(judged.flaws)
    assert [word for word in ("float64", "are 0") if word in text] == told
