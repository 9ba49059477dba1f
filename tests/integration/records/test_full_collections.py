"""Full collections of garbage that are recorded, held against a callback of gc in the program."""

from lotus.analysis.batches.collection_cost import fetch_collections, step_collections
from lotus.analysis.common.scope import scopes


def test_those_of_fetches_are_those_that_the_program_counts(pair):
    plain, traced = pair("collected.py")
    assert (plain.code, plain.out) == (0, traced.out)
    counted = dict(map(int, line.split()) for line in plain.out.decode().splitlines())
    assert set(counted.values()) == {0, 1}
    scope = scopes(traced.run)[0]
    counts, known = fetch_collections(scope)
    assert known.all()
    batches = scope.batches["batch"].to_numpy()
    assert dict(zip(batches.tolist(), counts.tolist(), strict=True)) == counted


def test_so_are_those_of_next_and_of_steps(pair):
    plain, traced = pair("collected_steps.py")
    assert (plain.code, plain.out) == (0, traced.out)
    rows = [tuple(map(int, line.split())) for line in plain.out.decode().splitlines()[:-1]]
    assert [row[1:] for row in rows] == [(number % 4 == 0, number % 3) for number in range(12)]
    scope = scopes(traced.run)[0]
    counts, known = step_collections(scope)
    assert known.all()
    assert counts.tolist() == [in_step for _, _, in_step in rows]
    recorded = scope.full_collections
    in_next = recorded[recorded["during"] == "next"]
    began = scope.waits["start_ns"].to_numpy()
    assert sorted(in_next["time_ns"]) == [began[number] for number, had, _ in rows if had]
