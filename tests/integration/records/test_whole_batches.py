"""The samples of a stream that yields whole batches."""

from lotus.analysis.summary import summarise
from lotus.reporters.run import terminal


def test_they_are_counted_or_called_items(pair):
    plain, traced = pair("whole_batches.py")
    assert (traced.code, traced.out, traced.err) == (0, plain.out, plain.err)
    run = traced.run
    taken = run.batches[run.batches["wait_ns"].notna()].sort_values("batch")
    assert taken.groupby("loader")["size"].agg(list).tolist() == [[8, 8, 5], [1, 1, 1, 1]] * 2
    # One `next` of the data set made all samples of a batch
    whole = run.samples[run.samples["loader"].isin([0, 2])]
    assert (len(whole), whole["many"].all(), set(whole["sample"])) == (6, True, {-1})
    summaries = {each.scope.loader: each for each in summarise(run).loaders}
    assert [summaries[loader].counted for loader in range(4)] == ["sample", "item"] * 2
    assert [summaries[loader].times["samples"] for loader in range(4)] == [21, 4] * 2
    text = terminal.report(run)
    assert "samples/s (21 samples in 3 batches)" in text
    assert "their first dimension counts the samples" in text
    assert "items/s (4 items in 4 batches)" in text
