"""How many CPUs the processes of a loader may use, from the lists that they told."""

import pandas as pd
import pytest

from lotus.analysis.common.scope import _allowed


def told(*texts: str) -> pd.DataFrame:
    return pd.DataFrame({"cpus": pd.Series(texts, dtype=object)})


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        ([], 0),
        ([""], 0),
        (["0-3,8"], 5),
        (["0-3", "2-5", "4", "9"], 7),
        (["5-2"], 0),
        (["7", "7", "0-7"], 8),
        (["99999"], 1),
    ],
)
def test_each_cpu_counts_once(texts: list[str], count: int) -> None:
    assert _allowed(told(*texts)) == count
    assert _allowed(told(*texts), pd.DataFrame({"pid": [1]}), told(*texts)) == count


def test_lists_that_name_all_cpus_again_and_again_are_not_gone_through() -> None:
    # 1.6 MB of text that names 20 billion CPUs: it would take hours to go through them
    text = ",".join(["0-99999"] * 999)
    assert _allowed(told(*(f"{text},{number}" for number in range(200)))) == 100_000
