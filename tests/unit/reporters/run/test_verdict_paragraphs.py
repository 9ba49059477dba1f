"""The verdict on a terminal."""

import dataclasses
import io
from typing import Any

from lotus.analysis.summary import summarise
from lotus.analysis.verdict.verdict import Verdict
from lotus.reporters.base.console import plain_console
from lotus.reporters.run.parts import verdict_paragraphs
from tests.unit.simulated import Plan


def judged() -> Verdict:
    verdict = summarise(Plan(operations={"Loader": 2.0, "Slow": 20.0}).run()).verdict
    assert verdict is not None
    assert verdict.causes
    return dataclasses.replace(verdict, ruled_out=("collate",))


def shown(verdict: Verdict, **words: Any) -> str:
    file = io.StringIO()
    verdict_paragraphs.write(plain_console(file), verdict, headline="BOUND (sampled)", **words)
    return file.getvalue()


def test_the_headline_comes_first_then_the_cause_and_the_next_step() -> None:
    text = shown(judged())
    assert text.startswith("BOUND (sampled)\n")
    assert 0 < text.index("First cause Slow") < text.index("Next step")
    assert "Expected" not in text
    assert "Ruled out" not in text


def test_what_is_passed_is_printed_in_its_place() -> None:
    text = shown(
        judged(), rival="Another may be.", expected="twice as fast", ruled_out=["collate", "send"]
    )
    wanted = ("First cause", "Another may be.", "Next step", "twice as fast.", "collate, send")
    places = [text.index(words) for words in wanted]
    assert places == sorted(places)


def test_advice_is_left_out_where_it_is_not_wanted() -> None:
    text = shown(judged(), has_advice=False, expected="twice as fast")
    assert "First cause" in text
    assert "Next step" not in text
    assert "Expected" not in text


def test_without_causes_what_is_ruled_out_stays() -> None:
    text = shown(dataclasses.replace(judged(), causes=[]), ruled_out=["collate"])
    assert "First cause" not in text
    assert "Next step" not in text
    assert "Ruled out" in text
