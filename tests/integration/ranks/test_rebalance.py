"""`lotus run --rebalance-every`: shares change, and training is that on the whole batches."""

import json

import pytest

from lotus.settings import share_plan as plans
from tests.integration.conftest import LOTUS, Start, command_of

SCRIPT = "ranks/rebalance_ranks.py"
WHOLE = 16
CHANGE = ["plain", "dropped", "workers", "persistent", "again", "ahead", "accumulated"]
CHANGE += ["broken_off", "norm"]
ALL = ["outside", *CHANGE, "look", "checkpoint", "unfit"]


@pytest.fixture(scope="module")
def job(torch, tmp_path_factory):
    """What each rank wrote of each case, and what was said."""
    folder = tmp_path_factory.mktemp("rebalance")
    path = folder / "balance.json"
    plans.write(path, plans.SharePlan((8, 8), "equal"))
    words = [*LOTUS, "run", "--settings", str(path), "--rebalance-every", "12"]
    ended = Start([*words, "--", *command_of(SCRIPT, [])], folder, "job", {}).end()
    assert ended.code == 0, ended.err.decode()[-3000:]
    truths = [ended.truth.with_name(f"{ended.truth.name}.{rank}") for rank in (0, 1)]
    return [json.loads(truth.read_text()) for truth in truths], ended.err.decode()


@pytest.mark.parametrize("name", ALL)
def test_training_is_that_on_the_whole_batches(job, name):
    for rank in (rank[name] for rank in job[0]):
        if name != "norm":
            assert rank["far"] < 1e-12
        assert rank["ranks_far"] == 0
        assert rank["moved"] > 0.01  # or nothing would be shown


@pytest.mark.parametrize("name", CHANGE)
def test_the_slow_rank_gets_less(job, name):
    quick, slow = ([size for epoch in rank[name]["sizes"] for size in epoch] for rank in job[0])
    assert (quick[0], slow[0]) == (8, 8)
    assert min(slow) < 8 < max(quick)
    # AND it has next to none where it takes 20 times as long; batch norm needs two samples
    last = (quick[-2], slow[-2])
    assert last in ([(14, 2)] if name == "norm" else [(14, 2), (15, 1)])


def test_waiting_for_a_slow_rank_is_not_what_a_rank_takes_itself(job):
    # GIVEN what each step was taken to cost, and what rank 1 sleeps for each sample
    quick, slow = (rank["outside"]["own"] for rank in job[0])
    assert len(quick) == len(slow) == 33
    for (share, own), (_, other) in zip(slow, quick, strict=True):
        assert (own is None) == (other is None)
        assert own is None or own >= 30_000_000 * share
    # THEN rank 0, which waited at least as long in every step, was told so of none in which the
    # machine let it go on
    least = [min(own for share, own in found if own and share) for found in (quick, slow)]
    assert least[0] < least[1]


@pytest.mark.parametrize("name", ALL)
def test_each_step_has_its_slice_of_the_epochs_order(job, name):
    first, second = (rank[name] for rank in job[0])
    steps = [len(epoch) for epoch in first["whole"]]
    if name != "broken_off":
        assert first["lengths"] == second["lengths"] == steps
    for order, whole in zip(first["order"], first["whole"], strict=True):
        if name not in ("broken_off", "dropped", "workers"):
            assert len(whole) == -(-len(order) // WHOLE)
        assert [sorted(step) for step in whole] == [
            sorted(order[start : start + WHOLE]) for start in range(0, len(whole) * WHOLE, WHOLE)
        ]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("look", "from now on: ranks 0 and 1 do not read the same steps of the loader"),
        ("checkpoint", "re-entrant checkpoints hide its order (on rank 0)"),
        ("unfit", "shares stay as they are: it is elsewhere (on rank 1)"),
    ],
)
def test_shares_stay_where_it_cannot_be_told_what_they_take(job, name, why):
    for rank in (rank[name] for rank in job[0]):
        assert any(
            sentence.startswith("shares stay as they are") and why in sentence
            for sentence in rank["said"]
        )
    if name != "look":
        assert all(size <= 8 for epoch in job[0][0][name]["sizes"] for size in epoch)


def test_what_changes_is_said_once(job):
    lines = [line for line in job[1].splitlines() if line.startswith("lotus: ")]
    assert len(lines) == len(set(lines))
    assert (
        "lotus: shares may change after every 12 steps; --rebalance-every is experimental" in lines
    )
    first = next(line for line in lines if " steps shares go from 8, 8 to " in line)
    assert first.startswith("lotus: after ")
    assert " times as long as rank 0; a step is expected to take " in first
