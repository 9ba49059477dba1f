"""Workers of a stream that each read all of it are seen, in whatever order they do."""

import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.data.repeated_samples import divided_data


@pytest.mark.parametrize(("division", "times", "each"), [("divided", 1, 120), ("whole", 2, 240)])
def test_shuffled_streams(pair, division, times, each):
    plain, traced = pair("shuffled_stream.py", division)
    assert (plain.code, plain.out) == (0, traced.out)
    run = traced.run
    assert divided_data(scopes(run)[0]).times_read == times
    # The workers of the second epoch are others, and are not looked at again.
    digests = run.sample_digests[run.sample_digests["of"] == "sample"]
    assert digests["samples"].tolist() == [each] * len(digests)
    sizes = digests.groupby(["epoch", "worker"]).size()
    assert sizes.to_dict() == {(0, worker): 64 for worker in (0, 1)}
    assert run.workers["pid"].nunique() == 4


@pytest.mark.parametrize("division", ["divided", "whole"])
def test_workers_that_ask_which_they_are_are_seen(pair, division):
    plain, traced = pair("random_stream.py", division)
    assert (plain.code, plain.out) == (0, traced.out)
    assert set(traced.run.workers["reads_worker_info"]) == {division == "divided"}
    shares = divided_data(scopes(traced.run)[0])
    assert shares.whole_passes == (division == "whole")
    assert shares.times_read == (2 if division == "whole" else 1)
