"""Fetches with a full collection of garbage, held against a callback of gc in the program."""

from lotus.analysis.batches.collection_cost import full_collections
from lotus.analysis.common.scope import scopes


def test_they_are_those_that_the_program_itself_counts(pair):
    plain, traced = pair("collected.py")
    assert (plain.code, plain.out) == (0, traced.out)
    counted = dict(map(int, line.split()) for line in plain.out.decode().splitlines())
    assert set(counted.values()) == {0, 1}
    scope = scopes(traced.run)[0]
    counts, known = full_collections(scope)
    assert known.all()
    batches = scope.batches["batch"].to_numpy()
    assert dict(zip(batches.tolist(), counts.tolist(), strict=True)) == counted
