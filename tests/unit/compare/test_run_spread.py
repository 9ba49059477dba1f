"""What others took of a run's cores widens the interval of a comparison of single runs."""

from types import SimpleNamespace

import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.compare.run_spread import UNDISTURBED, run_spread
from tests.unit.analysis.machine.test_core_use import QUIET, cores, keep_two_cores_busy
from tests.unit.sides import held, recorded


def crowded(run: SimpleNamespace, by_others: bool = True) -> SimpleNamespace:
    """Return a run whose fetches lacked a core for most of their time."""
    cores(run, (0.2, 0.7, 0.0), QUIET)
    if by_others:
        keep_two_cores_busy(run)
    return run


@pytest.mark.parametrize("run", [recorded(1), cores(recorded(1), QUIET, QUIET)])
def test_a_run_with_its_cores_varies_by_a_few_per_cent(run: SimpleNamespace) -> None:
    assert run_spread(scopes(run)[0]) == pytest.approx(UNDISTURBED, abs=0.02)


def test_what_others_took_is_uncertain_as_a_whole() -> None:
    assert run_spread(scopes(crowded(recorded(1)))[0]) > 0.2


def test_delays_may_all_be_of_others_whose_use_is_not_known() -> None:
    run = crowded(recorded(1), by_others=False)
    run.machine = pd.DataFrame()
    assert run_spread(scopes(run)[0]) > 0.2


def test_a_run_beside_others_is_not_called_slower() -> None:
    """Three runs of each side would show whether it is."""
    comparison = held(recorded(1), crowded(recorded(2, 1.3)))
    assert comparison.verdict.kind == "unknown"
    assert "lotus compare" in comparison.verdict.commands[-1]
    assert held(recorded(1), recorded(2, 1.3)).verdict.kind == "slower"
