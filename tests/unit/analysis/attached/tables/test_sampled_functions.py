"""Functions under operations: samples of perf joined with the stacks of made-up threads."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.evidence.evidence import AttachEvidence, FunctionEvidence
from lotus.analysis.attached.tables import sampled_functions
from lotus.analysis.attached.tables.sampled_functions import (
    ALIKE,
    FEW,
    KNOWN,
    REGULAR,
    SHORT,
    FunctionSummary,
    OperationSamples,
    summarise_functions,
)
from tests.unit import sampled_program
from tests.unit.sampled_program import always, operation

MS = 1_000_000
WORKER = sampled_program.MAIN + 1
NAMES = [["a.so", "resize"], ["b.so", "decode"], ["b.so", "inverse<float>(int)"], ["b.so", "crop"]]


def joined(
    parts: Sequence[tuple[str, float, Sequence[float]]],
    seconds: float = 60.0,
    late_ms: float = 3.0,
    stacks_a_second: float = 40.0,
    vary: float = 0.3,
) -> FunctionSummary:
    """What is shown of a worker that does `parts` in turn: operation, milliseconds of a call (they
    vary by `vary`), and the shares of NAMES in it.

    The clock of the stacks is `late_ms` behind.
    """
    rng = np.random.default_rng(5)
    spans = np.array([ms for _, ms, _ in parts])
    calls = np.tile(spans, int(seconds * 1000 / spans.sum()) + 20)
    edges = np.cumsum(calls * rng.uniform(1 - vary, 1 + vary, len(calls)))

    def part(at_ms: np.ndarray) -> np.ndarray:
        return np.searchsorted(edges, at_ms, side="right") % len(parts)

    sampled = np.arange(0.0, seconds * 1000, 1.003)
    shares = np.array([share for _, _, share in parts])
    draws = rng.random(len(sampled))
    function = (np.cumsum(shares, axis=1)[part(sampled)] < draws[:, None]).sum(axis=1)
    stacks = np.cumsum(rng.exponential(1000 / stacks_a_second, int(seconds * stacks_a_second)))
    stacks = stacks[stacks < seconds * 1000]
    moments = pd.DataFrame(
        {"time_ns": ((stacks - late_ms) * MS).astype(np.int64), "pid": WORKER, "tid": WORKER,
         "label": part(stacks)}
    )  # fmt: skip
    samples = pd.DataFrame(
        {"time_ns": (sampled * MS).astype(np.int64), "pid": WORKER, "tid": WORKER,
         "function": np.minimum(function, len(NAMES) - 1)}
    )  # fmt: skip
    names = pd.DataFrame(NAMES, columns=["library", "function"])
    summary = summarise_functions(
        dataclasses.replace(
            evidence(),
            labels=pd.DataFrame([(phases.OPERATION, name, 0) for name, _, _ in parts],
                                columns=["phase", "name", "loop"]),
            functions=FunctionEvidence("cpu-clock:u", 997, False, 0, names, samples, moments),
        )
    )  # fmt: skip
    assert summary is not None
    return summary


def evidence() -> AttachEvidence:
    return sampled_program.Program(
        always(sampled_program.WAIT), [always(operation("Decode"))], ticks=5
    ).evidence()


def of(summary: FunctionSummary, name: str) -> OperationSamples:
    (operation,) = (each for each in summary.operations if each.name == name)
    return operation


def test_functions_are_those_of_the_operation_and_the_clocks_are_brought_together() -> None:
    summary = joined([("Resize", 40, (1, 0, 0, 0)), ("Decode", 40, (0, 0.5, 0.5, 0))])
    assert summary.late_ns == pytest.approx(3 * MS, abs=1.1 * MS)
    resize, decode = of(summary, "Resize"), of(summary, "Decode")
    assert (resize.state, decode.state) == (KNOWN, KNOWN)
    first = resize.functions.iloc[0]
    assert (first["library"], first["function"]) == ("a.so", "resize")
    assert first["share"] > 0.95
    both = decode.functions.set_index("function")
    assert set(both.index[:2]) == {"decode", "inverse"}
    for name in ("decode", "inverse"):
        assert both.loc[name, "low"] < both.loc[name, "share"] < both.loc[name, "high"]
        assert 0.35 < both.loc[name, "share"] < 0.65
    assert decode.functions["samples"].sum() == decode.matched
    assert summary.apart_share == pytest.approx(1 - summary.matched / summary.samples, abs=0.001)


def test_operations_with_short_calls_have_no_table() -> None:
    summary = joined([("Resize", 1.5, (1, 0, 0, 0)), ("Decode", 1.7, (0, 1, 0, 0))])
    for each in summary.operations:
        assert each.state in (SHORT, ALIKE, REGULAR)
        assert not len(each.functions)
    shares = summary.processes.set_index("function")["share"]  # these need no stacks
    assert shares["decode"] == pytest.approx(1.7 / 3.2, abs=0.02)
    assert set(summary.processes["process"]) == {"workers"}


@pytest.mark.parametrize(("ms", "late_ms"), [(1.6, 3.0), (5.0, 7.0), (5.0, 1.0)])
def test_operations_that_alternate_regularly_are_never_exchanged(ms: float, late_ms: float) -> None:
    parts = [("Resize", ms, (1, 0, 0, 0)), ("Decode", ms, (0, 1, 0, 0))]
    summary = joined(parts, vary=0.0, late_ms=late_ms)  # type: ignore[arg-type]
    assert {each.state for each in summary.operations} <= {SHORT, ALIKE, REGULAR}


def test_what_has_the_functions_of_all_the_others_is_not_told_apart() -> None:
    same = (0.5, 0.5, 0, 0)
    summary = joined([("Resize", 40, same), ("Decode", 40, same)])
    assert [each.state for each in summary.operations] == [ALIKE, ALIKE]


def test_the_only_operation_needs_no_other_to_be_told_apart_from() -> None:
    summary = joined([("Decode", 3, (0, 1, 0, 0))])
    assert of(summary, "Decode").state == KNOWN
    assert of(summary, "Decode").functions["share"].tolist() == [1.0]


def test_few_stacks_are_said_to_be_few() -> None:
    parts = [("Resize", 40.0, (1, 0, 0, 0)), ("Decode", 40.0, (0, 1, 0, 0))]
    assert {each.state for each in joined(parts, seconds=0.8).operations} == {FEW}


def test_stacks_of_a_thread_without_samples_go_with_none() -> None:
    whole = evidence()
    empty = pd.DataFrame(columns=["time_ns", "pid", "tid", "function"], dtype="int64")
    moments = pd.DataFrame({"time_ns": [1, 2], "pid": WORKER, "tid": WORKER, "label": [0, 0]})
    names = pd.DataFrame(NAMES, columns=["library", "function"])
    seen = FunctionEvidence("cycles", 997, True, 0, names, empty, moments)
    summary = summarise_functions(dataclasses.replace(whole, functions=seen))
    assert summary is not None
    assert (summary.matched, summary.operations) == (0, [])
    assert sampled_functions.summarise_functions(whole) is None
