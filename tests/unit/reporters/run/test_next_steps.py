"""Which steps are advised after the first, and in what order."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from lotus.analysis.replay.gain_prediction import Prediction
from lotus.analysis.verdict.advice.advice import NAMED, Advice
from lotus.analysis.verdict.advice.remedy import CODE, Remedy
from lotus.analysis.verdict.verdict import Cause
from lotus.reporters.run.parts.next_steps import later_causes, step_words


def cause(advice: str, share: float = 0.2, kind: str = "operation", remedy: Remedy = CODE) -> Cause:
    return Cause(kind, advice.split()[0], share, share, share * 1e9, {}, advice, remedy=remedy)


def later(*causes: Cause, kind: str = "input-bound") -> list[str]:
    judged: Any = SimpleNamespace(causes=list(causes), kind=kind)
    return [each.advice for each in later_causes(judged)]


def test_there_are_three_steps_at_most_the_largest_causes_first() -> None:
    names = ["one", "two", "three", "four", "five"]
    assert later(*(cause(name, 0.3 - place / 20) for place, name in enumerate(names))) == names[1:3]
    assert later(cause("one"), cause("two", share=0.04)) == []
    assert later() == []


def test_long_steps_are_worth_a_step_where_steps_set_the_pace() -> None:
    causes = cause("one"), cause("two", kind="long-steps")
    assert later(*causes) == []
    assert later(*causes, kind="consumer-bound") == ["two"]


def test_what_was_said_is_not_said_again() -> None:
    start, end = cause("start", kind="start-up"), cause("end", kind="shut-down")
    assert later(cause("one"), cause("one"), start, end) == ["start"]
    assert later(start, end, cause("one")) == ["one"]
    assert later(cause("one"), cause("step", kind="consumer"), cause("two")) == ["two"]
    workers = Remedy({"num_workers": 2})
    assert later(cause("for one", remedy=workers), cause("for two", remedy=workers)) == []


def test_what_was_said_of_one_operation_is_not_said_of_another() -> None:
    advice = Advice(f"Make {NAMED} cheaper.")
    crop, flip, other = (
        dataclasses.replace(cause(each.text), unnamed_advice=each.unnamed)
        for each in (
            advice.about("Crop"),
            advice.about("a cheaper Flip"),
            advice.about("Flip").before(" It is random."),
        )
    )
    assert later(crop, flip, other) == [other.advice]


def changing(**changes: str) -> Cause:
    """A cause whose advice changes these, in words that say nothing of it."""
    remedy = Remedy(changes=changes)  # type: ignore[arg-type]
    return cause(f"so {changes}", remedy=remedy)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (changing(num_workers="more"), changing(num_workers="not more")),
        (changing(num_workers="more", code="other"), changing(num_workers="fewer")),
        (
            changing(num_workers="fewer", persistent_workers="off"),
            changing(persistent_workers="on"),
        ),
        (changing(prefetch_factor="more"), changing(prefetch_factor="fewer")),
        (
            cause("so", remedy=Remedy({"prefetch_factor": 4})),
            cause("or so", remedy=Remedy({"prefetch_factor": 8})),
        ),
    ],
)
def test_no_step_contradicts_an_earlier_one(first: Cause, second: Cause) -> None:
    other = cause("Make it cheaper.")
    assert later(first, second, other) == [other.advice]
    assert later(second, first, other) == [other.advice]


def test_words_alone_contradict_nothing() -> None:
    more, futile = cause("Raise num_workers from 2."), cause("More workers will not help.")
    assert later(more, futile) == [futile.advice]
    fewer = changing(num_workers="fewer")
    assert later(changing(num_workers="not more"), fewer) == [fewer.advice]


def test_what_a_later_step_gains_is_said_to_be_of_it_alone() -> None:
    expected = Prediction(gain=1.5, low=1.4, high=1.6)
    kept = cause("Keep them.", remedy=Remedy({"persistent_workers": True}, expected=expected))
    assert step_words(kept) == (
        "Keep them. Expected of it alone: 1.5 times as fast (1.4 to 1.6), by a replay of its "
        "batches."
    )
    assert step_words(cause("Make it cheaper.")) == "Make it cheaper."


@pytest.mark.parametrize(
    ("expected", "is_listed"),
    [
        (Prediction(gain=1.5, low=1.4, high=1.6), True),
        (Prediction(gain=1.5, low=0.9, high=2.1), False),
        (Prediction(gain=1.05, low=1.04, high=1.06), False),
        (Prediction(gain=1.06, low=0.9, high=1.06, at_best=True), False),
        (Prediction(gain=1.5, low=0.9, high=1.5, at_best=True), True),
        (Prediction(), True),
    ],
)
def test_a_later_step_that_is_not_predicted_to_help_is_left_out(
    expected: Prediction, is_listed: bool
) -> None:
    more = cause("Raise num_workers.", remedy=Remedy({"num_workers": 4}, expected=expected))
    assert later(cause("Make it cheaper."), more) == [more.advice] * is_listed
