"""Workers of a stream that each read all of it are seen, in whatever order they do."""

import pytest

from lotus.analysis.batches.repeated_samples import times_read
from lotus.analysis.common.scope import scopes


@pytest.mark.parametrize(("division", "times", "each"), [("divided", 1, 120), ("whole", 2, 240)])
def test_shuffled_streams(pair, division, times, each):
    plain, traced = pair("shuffled_stream.py", division)
    assert (plain.code, plain.out) == (0, traced.out)
    run = traced.run
    assert times_read(scopes(run)[0]) == times
    # Of the first epoch alone: the workers of the second are not asked again.
    digests = run.sample_digests
    assert digests["samples"].tolist() == [each] * len(digests)
    assert digests.groupby("worker").size().to_dict() == {0: 64, 1: 64}
    assert digests["pid"].nunique() == 2
