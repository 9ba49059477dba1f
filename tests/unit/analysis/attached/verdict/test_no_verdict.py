"""Programs on which there is no verdict, or only a limited one: why, and what to do next."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.verdict.sampled_verdict import summarise, with_verdict
from lotus.common.errors import LotusError
from tests.unit.analysis.attached.verdict.test_sampled_verdict import BLUR, STARVING, judged
from tests.unit.sampled_program import STEP, WAIT, At, Program, always


def test_no_loop_is_refused_with_the_next_step() -> None:
    with pytest.raises(LotusError, match="in no loop over a DataLoader"):
        with_verdict(judged(Program(always((phases.OUTSIDE, "")))))


@pytest.mark.parametrize(
    ("ticks", "main", "words"),
    [
        (60, STARVING, r"ended after 1\.2 s, too early for a verdict; start it again with: "
                       r"lotus trace -- python train\.py"),
        (200, always(WAIT), r"ended after 4\.0 s, too early for a verdict"),
        (60, always((phases.OUTSIDE, "")), r"ended after 1\.2 s, before it was met in a loop"),
    ],
)  # fmt: skip
def test_a_program_that_ends_early_gets_no_verdict(
    ticks: int, main: Callable[[int], At], words: str
) -> None:
    program = Program(main, [always(BLUR)] * 2, ticks=ticks, facts={"state": "ended"})
    with pytest.raises(LotusError, match=words) as refusal:
        with_verdict(judged(program))
    assert "\n" not in str(refusal.value)


def test_a_program_that_ends_later_gets_its_verdict() -> None:
    summary = with_verdict(judged(Program(STARVING, [always(BLUR)] * 2, facts={"state": "ended"})))
    assert summary.verdict is not None
    assert summary.verdict.kind == "input-bound"
    assert "The program ended after 10.0 s: this is what was seen until then." in summary.remarks


def test_without_stacks_and_workers_the_reason_is_told() -> None:
    evidence = Program(always(STEP)).evidence()
    evidence = replace(
        evidence, samples=evidence.samples.iloc[:0], missing=("Refused; type: sudo.",)
    )
    with pytest.raises(LotusError, match=r"too little could be read of process 100.*Refused; type"):
        with_verdict(summarise(evidence))


@pytest.mark.parametrize(
    ("main", "worker", "kind"),
    [
        ("asleep", "computing", "input-bound"),
        ("computing", "asleep", "consumer-bound"),
        ("asleep", "asleep", "unknown"),
    ],
)
def test_without_stacks_the_use_of_cores_is_what_remains(main: str, worker: str, kind: str) -> None:
    program = Program(always(STEP), [always(BLUR)] * 2, blocked={STEP: main, BLUR: worker})
    evidence = program.evidence()
    evidence.processes.loc[0, "cpu_ns"] = (main == "computing") * int(evidence.elapsed_ns)
    evidence = type(evidence)(**{**vars(evidence), "samples": evidence.samples.iloc[:0]})
    verdict = with_verdict(summarise(evidence)).verdict
    assert verdict is not None
    assert verdict.kind == kind
    assert math.isnan(verdict.input_share)
    assert "No Python stack could be read" in verdict.doubt
