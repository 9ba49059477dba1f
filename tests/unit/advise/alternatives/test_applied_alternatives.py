"""Which alternatives are written for `lotus run`: those that made the loop faster."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest

from lotus.advise.alternatives import applied_alternatives
from lotus.advise.alternatives.tried_alternatives import Alternatives
from lotus.advise.ceilings import ceiling_blocks
from lotus.advise.ceilings.ceilings import ALL, EXACT, FREE, REAL, Ceilings, FedBlock
from lotus.reporters.advise import applied_report
from lotus.reporters.base.console import plain_console
from lotus.settings import tuned_file
from lotus.settings.tuned_file import AlternativeUse
from tests.unit.advise.alternatives.test_tried_alternatives import several
from tests.unit.advise.ceilings.test_ceilings import Fed

SAME_VALUES, OTHER_VALUES = AlternativeUse("equal", True), AlternativeUse("near", False)

AGAIN = "lotus advise --budget 5m -- python train.py"


def others() -> Alternatives:
    first, second, third = several().tried
    tried = (
        dataclasses.replace(first, name="near", applicable=True),
        dataclasses.replace(second, name="equal", applicable=True, exact=True),
        dataclasses.replace(third, name="elsewhere"),
    )
    return dataclasses.replace(several(), tried=tried)


def measured(**times: float) -> Ceilings:
    """Three rounds, in which alternatives make the loop so many times as fast."""
    kinds = {REAL: 1.0, FREE: 5.0, **times}
    drifts = (1.0, 1.1, 0.95)
    rounds = tuple(
        {
            kind: FedBlock(kind, drift * (1 + 0.01 * turn * len(kind)) / fast, 0.0, 8, 64)
            for kind, fast in kinds.items()
        }
        for turn, drift in enumerate(drifts)
    )
    return Ceilings(Fed().watched, rounds, 10.0, 60.0)


@pytest.mark.parametrize(
    ("times", "kept"),
    [
        ({EXACT: 1.3, ALL: 2.0}, (OTHER_VALUES, SAME_VALUES)),
        ({EXACT: 1.0, ALL: 2.0}, (OTHER_VALUES,)),
        ({EXACT: 1.3, ALL: 1.2}, (SAME_VALUES,)),
        ({EXACT: 1.3, ALL: 0.9}, (SAME_VALUES,)),
        ({EXACT: 1.3}, (SAME_VALUES,)),
        ({EXACT: 1.0, ALL: 1.0}, ()),
        ({EXACT: 0.5, ALL: 0.7}, ()),
        ({}, ()),
    ],
)
def test_only_what_helped_is_kept(
    times: dict[str, float], kept: tuple[AlternativeUse, ...], tmp_path: Path
) -> None:
    result = measured(**times)
    assert applied_alternatives.uses(result, others()) == kept
    tuned = applied_alternatives.settings(result, others(), ["python", "train.py"])
    text = io.StringIO()
    output = tmp_path / "advice.json" if kept else None
    applied_report.write(
        plain_console(text, 200),
        result,
        others=others(),
        words=["python", "train.py"],
        again=AGAIN,
        output=output,
    )
    shown = text.getvalue()
    if tuned is None:
        assert kept == ()
        assert "No file is written: " in shown
        assert ("no alternative was shown to help" in shown) == bool(times)
        return
    path = tmp_path / "advice.json"
    tuned_file.write(path, tuned)
    (entry,) = tuned_file.read(path).loaders
    assert entry.alternatives == kept
    assert entry.setting == entry.before == result.watched.setting
    assert entry.loader.number is None
    allowed = " --allow near" if OTHER_VALUES in kept else ""
    assert f"lotus run --settings {path}{allowed} -- python train.py\n" in shown


def test_nothing_is_kept_where_data_that_is_always_ready_gains_nothing() -> None:
    result = measured(**{FREE: 1.0, EXACT: 1.3})
    assert applied_alternatives.settings(result, others(), ["python", "train.py"]) is None
    text = io.StringIO()
    applied_report.write(
        plain_console(text, 200),
        result,
        others=others(),
        words=["train.py"],
        again=AGAIN,
        output=None,
    )
    assert "alternatives cannot gain more than data that is always ready" in text.getvalue()


def test_blocks_that_differ_too_much_say_how_far_and_how_to_try_again() -> None:
    # GIVEN rounds in which the loop with alternatives was 4 times as fast, as fast, and slower
    speeds = ((50, 200), (80, 80), (120, 30))
    rounds = tuple(
        {
            REAL: FedBlock(REAL, 1 / own, 0.0, 8, 64),
            FREE: FedBlock(FREE, 0.001, 0.0, 8, 64),
            EXACT: FedBlock(EXACT, 1 / other, 0.0, 8, 64),
        }
        for own, other in speeds
    )
    result = Ceilings(Fed().watched, rounds, 10.0, 60.0)
    text = io.StringIO()
    applied_report.write(
        plain_console(text, 200),
        result,
        others=others(),
        words=["python"],
        again=AGAIN,
        output=None,
    )
    # THEN it says what was measured, how far the blocks were apart, and the command to try again
    shown = text.getvalue()
    assert "No file is written: the blocks differ too much to tell" in shown
    assert "50 to 120 samples/s with the loader as it is" in shown
    assert "30 to 200 samples/s with alternatives that change no value." in shown
    assert f"  {AGAIN}\n" in shown
    assert "in training whether the loop was faster" in " ".join(shown.split())


def test_blocks_for_which_the_time_was_too_short_say_how_to_try_again() -> None:
    result = dataclasses.replace(measured(), refused={EXACT: ceiling_blocks.SHORT})
    text = io.StringIO()
    applied_report.write(
        plain_console(text, 200),
        result,
        others=others(),
        words=["train.py"],
        again=AGAIN,
        output=None,
    )
    assert "the loop was not measured with alternatives.\n" in text.getvalue()
    assert text.getvalue().endswith(f"  {AGAIN}\n")


def test_a_loop_that_was_not_measured_says_so_last() -> None:
    text = io.StringIO()
    applied_report.write_problem(plain_console(text, 200), "too few blocks fitted")
    assert text.getvalue() == "\nNo file is written: too few blocks fitted\n"


def test_every_stand_in_is_of_a_kind() -> None:
    choices = applied_alternatives.choices()
    assert "in_place_normalize" in choices[EXACT]
    assert set(choices[EXACT]) < set(choices[ALL])
    assert choices[ALL][0] not in choices[EXACT]
