"""Advice on code of the program whose functions could not be sampled: what would name them."""

import pandas as pd
import pytest

from lotus.analysis.summary import summarise
from lotus.analysis.verdict.causes.run.outside import advice_at
from lotus.analysis.verdict.verdict import Cause
from tests.unit.simulated import Plan

SLOW = {
    "dataset": Plan(own=20.0, operations={"Crop": 1.0}),
    "collate": Plan(collate=40.0),
    "main-process": Plan(sampler=40.0),
    "consumer": Plan(step=80.0),
}


def first(kind: str, no_stacks: str, stacks: bool = False) -> Cause:
    run = SLOW[kind].run()
    run.no_stacks = no_stacks
    if stacks:
        part = {"dataset": "fetch", "main-process": "sampler", "consumer": "step"}.get(kind, kind)
        row = {"part": part, "stack": 0, "depth": 0, "function": "slow", "file": "/a/train.py",
               "line": 3, "text": "", "samples": 40}  # fmt: skip
        run.own_code = pd.DataFrame([row])
    cause = summarise(run).loaders[0].verdict.causes[0]
    assert cause.kind == kind
    return cause


@pytest.mark.parametrize("kind", SLOW)
def test_it_says_what_would_name_them(kind: str) -> None:
    assert ": pip install py-spy; then " in first(kind, "absent").advice
    assert ": sudo sysctl kernel.yama.ptrace_scope=0, or " in first(kind, "forbidden").advice


@pytest.mark.parametrize("kind", SLOW)
def test_functions_that_are_named_need_nothing(kind: str) -> None:
    for cause in (first(kind, ""), first(kind, "absent", stacks=True)):
        assert "pip install" not in cause.advice
        assert "sysctl" not in cause.advice


def test_between_the_loops_py_spy_may_look_as_the_parent_of_the_program() -> None:
    assert ": pip install py-spy; then py-spy record" in advice_at((), no_stacks="absent")
    assert advice_at((), no_stacks="forbidden") == advice_at(())
