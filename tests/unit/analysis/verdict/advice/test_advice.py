"""The words of advice, with and without the name of the operation."""

from lotus.analysis.verdict.advice.advice import NAMED, Advice
from lotus.analysis.verdict.advice.remedy import NOTHING


def test_the_name_of_an_operation_is_kept_apart() -> None:
    advice = Advice(f"Make {NAMED} cheaper.", NOTHING).about("Crop")
    assert advice.text == "Make Crop cheaper."
    longer = advice.after("First this. ").before(" Then that.").or_code()
    assert longer.text == "First this. Make Crop cheaper. Then that."
    assert longer.unnamed == longer.about("Flip").unnamed


def test_advice_that_names_no_operation_is_its_text() -> None:
    assert Advice("Keep {them}.").text == "Keep {them}."
