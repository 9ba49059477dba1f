"""Workers that send views of large storages are told to send copies."""

from types import SimpleNamespace

import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.verdict.verdict import verdict
from tests.unit.simulated import Plan

MIB = 1 << 20


def views(run: SimpleNamespace, tensors: float, storages: float) -> SimpleNamespace:
    rows = [
        {"rank": 0, "pid": pid, "worker": 0, "loader": 0, "epoch": 0, "generator": generator}
        for pid in sorted({*run.batches["pid"]})
        for generator in ("", "torch")
    ]
    table = pd.DataFrame(rows).assign(content=1, state=1)
    run.first_batches = table.assign(tensor_bytes=tensors, storage_bytes=storages)
    return run


def test_where_sending_comes_first_it_is_the_advice() -> None:
    first = verdict(scopes(views(Plan(pickle=30.0).run(), 2 * MIB, 60 * MIB))[0]).causes[0]
    assert first.kind == "send"
    assert "The 2.00 MiB of a batch's tensors are views of 60.0 MiB" in first.advice
    assert "tensor.clone()" in first.advice


@pytest.mark.parametrize(
    ("workers", "tensors", "storages", "told"),
    [
        (2, 2 * MIB, 60 * MIB, True),
        (2, 2 * MIB, 3 * MIB, False),
        (2, 1000, 9000, False),
        (0, 2 * MIB, 60 * MIB, False),
        (2, float("nan"), float("nan"), False),
    ],
)
def test_elsewhere_it_is_a_remark(
    workers: int, tensors: float, storages: float, told: bool
) -> None:
    run = views(Plan(workers=workers, step=300.0).run(), tensors, storages)
    judged = verdict(scopes(run)[0])
    assert judged.kind == "consumer-bound"
    assert any("are views of" in flaw for flaw in judged.flaws) == told
