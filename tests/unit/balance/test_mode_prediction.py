"""What modes of training take: by hand, and against epochs that are simulated event by event."""

import io
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from lotus.balance.least_time import lasting, least
from lotus.balance.mode_prediction import Modes, held_up, modes, persistent
from lotus.balance.rank_measurements import Job, Rank
from lotus.balance.split import BatchSplit, SplitOptions, balance
from lotus.balance.step_prediction import predict
from lotus.balance.time_fit import curve
from lotus.common.numbers.array_types import Floats
from lotus.reporters.base.console import plain_console
from lotus.reporters.ranks import balance_report as reporter
from lotus.settings.tuned_file import Target
from lotus.tune.simulation.job_simulation import Member, simulate
from tests.unit.many_ranks import MS, Costs, job
from tests.unit.mode_simulation import apart, meeting

DEPTH, COLLECTIVE = 2, 1.0  # batches that a rank asks for ahead; ms
BATCHES, STEPS = 50, 400


def _job(
    own: Floats,
    *,
    collective: float = COLLECTIVE,
    hosts: str = "",
    sampler: str = "DistributedSampler",
    workers: int = 1,
    fetch: Floats | None = None,
) -> Job:
    """Ranks whose own steps took these times, ms (steps, ranks); epochs of 50 batches."""
    steps, ranks = own.shape
    key = np.arange(steps) // BATCHES * (1 << 40) + np.arange(steps) % BATCHES
    made = np.full(ranks, 0.1) if fetch is None else fetch
    size = np.full(steps, 8.0)
    return Job(
        ranks=tuple(
            Rank(
                rank=rank,
                host=hosts[rank] if hosts else "a",
                batch=8,
                workers=workers,
                prefetch=DEPTH,
                sizes=size,
                step_ns=own[:, rank] * MS,
                key=key,
                fetch_sizes=size,
                fetch_ns=np.full(steps, made[rank] * MS),
                whole_ns=0.0,
                after_ns=0.0,
            )
            for rank in range(ranks)
        ),
        title="",
        loader=Target(dataset="Images", sampler=sampler),
        synchronised=True,
        collective_ns=collective * MS,
        measured_ns=0.0,
    )


def _modes(made: Job) -> Modes:
    step = predict(made, made.batch_sizes)
    prediction = modes(made, step, step, made.batch_sizes)
    assert prediction is not None
    return prediction


def _ms(prediction: Modes) -> dict[str, float]:
    return {row.name: row.epoch.seconds * 1e3 for row in prediction.rows}


def _always(*times: float, steps: int = STEPS) -> Floats:
    return np.tile(np.array(times), (steps, 1))


def test_by_hand_where_times_never_vary() -> None:
    prediction = _modes(_job(_always(10.0, 30.0)))
    assert prediction.batches == BATCHES
    # 7 averagings of local. async: ranks begin with 3 batches each; the last of 100 is asked for
    # at 710 ms by the fast rank, which has 2 more then and ends at 740; the slow one ends its 26th
    # at 780.
    assert _ms(prediction) == pytest.approx(
        {"sync": 50 * 31, "local": 50 * 30 + 7, "async": 780 + 1}
    )
    assert prediction.waiting == pytest.approx(10 / 31)
    assert prediction.persistent == pytest.approx(1.0)
    assert [row.learns_the_same for row in prediction.rows] == [True, False, False]
    # Without workers no batch is asked for ahead: at 750 ms 75 and 25 are done.
    alone = _job(_always(10.0, 30.0), workers=0, fetch=np.zeros(2), collective=0.0)
    assert _ms(_modes(alone))["async"] == pytest.approx(750)


def test_steps_that_alternate_are_evened_out_between_meetings() -> None:
    own = np.where(np.indices((STEPS, 2)).sum(axis=0) % 2, 10.0, 30.0)
    prediction = _modes(_job(own, collective=0.0))
    assert _ms(prediction)["sync"] == pytest.approx(50 * 30)
    assert _ms(prediction)["local"] == pytest.approx(50 * 20)
    assert prediction.persistent == 0.0
    assert prediction.option is not None


def test_the_input_is_the_limit_of_a_rank_in_every_mode() -> None:
    times_ms = _ms(_modes(_job(_always(10.0, 10.0), fetch=np.array([1.0, 40.0]), collective=0.0)))
    assert times_ms["sync"] == times_ms["local"] == pytest.approx(50 * 40)
    # 100 batches by ranks of 10 and 40 ms: 800, and what the slow one has asked for ahead.
    assert 800 < times_ms["async"] <= 800 + 2 * 40
    alone = _job(_always(10.0, 10.0), fetch=np.array([1.0, 40.0]), collective=0.0, workers=0)
    assert _ms(_modes(alone))["sync"] == pytest.approx(50 * 50)


def test_an_input_goes_on_while_gradients_are_averaged() -> None:
    fetch = np.array([1.0, 40.0])
    times_ms = _ms(_modes(_job(_always(10.0, 10.0), fetch=fetch, collective=25.0)))
    assert times_ms["sync"] == pytest.approx(50 * 40)
    assert times_ms["local"] == pytest.approx(50 * 40)
    # b + 8 ms of collective for one rank, what workers need for the other's 16 - b samples.
    made = _job(_always(8.0, 1.0), fetch=np.array([0.1, 8.0]), collective=8.0)
    assert least(made, [curve(rank) for rank in made.ranks], [None] * 2) == [4, 12]


@pytest.mark.parametrize(("fetch", "workers"), [(40.0, 1), (10.0, 1), (22.0, 2), (10.0, 0)])
def test_predicted_steps_are_those_of_a_simulated_cluster(fetch: float, workers: int) -> None:
    rough = np.random.default_rng(0).lognormal(-0.045, 0.3, (2, STEPS, 4))
    made = _job(10 * rough[0], collective=3.0, workers=workers)
    made = replace(
        made,
        ranks=tuple(
            replace(rank, fetch_ns=(fetch if rank.rank == 3 else 1.0) * MS * rough[1, :, rank.rank])
            for rank in made.ranks
        ),
    )
    members = [Member(rank.step_ns, rank.fetch_ns, 8, workers, DEPTH) for rank in made.ranks]
    simulated = simulate(members, steps=1000, collective_ns=3.0 * MS).step_s
    assert predict(made, made.batch_sizes).seconds == pytest.approx(simulated, rel=0.03)


def test_a_rank_waits_where_it_would_be_too_far_ahead() -> None:
    # 5 steps to each of the slow one's, of the 12 that it could make.
    assert held_up(_always(1.0, 12.0) * MS, 0.0, 4) == pytest.approx([12 / 5, 1.0], rel=0.01)
    assert held_up(_always(1.0, 4.9) * MS, 0.0, 4) == pytest.approx([1.0, 1.0])
    # A round that takes longer than 5 steps holds up both.
    assert held_up(_always(1.0, 1.0) * MS, 10.0 * MS, 4) == pytest.approx([2.0, 2.0], rel=0.02)


def test_a_sampler_that_cannot_be_shared() -> None:
    prediction = _modes(_job(_always(10.0, 30.0), sampler="Own"))
    assert _ms(prediction)["async"] == pytest.approx(50 * 30 + 1)
    assert "cannot be shared" in prediction.notes[0]


def test_groups_are_hosts_or_classes_of_speed() -> None:
    hosts = _modes(_job(_always(10.0, 10.0, 12.0, 12.0), hosts="aabb"))
    assert hosts.of("hybrid").groups == ((0, 1), (2, 3))
    # In each step a ring of 2 of 4 ranks, (1/2) / (3/4) of its time; 7 averagings.
    assert _ms(hosts)["hybrid"] == pytest.approx(50 * (12 + 2 / 3) + 7)
    classes = _modes(_job(_always(10.0, 30.0, 10.5, 31.0)))
    assert classes.of("hybrid").groups == ((0, 2), (1, 3))
    noise = np.random.default_rng(3).normal(1.0, 0.4, (40, 3)).clip(0.1)
    for none in (_always(10.0, 11.0, 12.0, 13.0), 10 * noise, _always(10.0, 30.0)):
        assert "hybrid" not in _ms(_modes(_job(none)))
    assert "hybrid" not in _ms(_modes(_job(_always(10.0, 30.0), hosts="ab")))


def _equal(random: np.random.Generator, steps: int, ranks: int) -> Floats:
    return np.asarray(10 * random.lognormal(0, 0.02, (steps, ranks)))


def _straggler(random: np.random.Generator, steps: int, ranks: int) -> Floats:
    return _equal(random, steps, ranks) * np.where(np.arange(ranks) == ranks - 1, 3.0, 1.0)


def _far_behind(random: np.random.Generator, steps: int, ranks: int) -> Floats:
    return _equal(random, steps, ranks) * np.where(np.arange(ranks) == ranks - 1, 12.0, 1.0)


def _jitter(random: np.random.Generator, steps: int, ranks: int) -> Floats:
    return np.asarray(10 * random.lognormal(-0.18, 0.6, (steps, ranks)))


@cache
def _predicted(kind: Callable[..., Floats], ranks: int) -> Modes:
    return _modes(_job(kind(np.random.default_rng(1), STEPS, ranks)))


@pytest.mark.parametrize("ranks", [2, 4, 64])
@pytest.mark.parametrize("kind", [_equal, _straggler, _far_behind, _jitter])
def test_simulated_epochs_take_as_long(kind: Callable[..., Floats], ranks: int) -> None:
    prediction = _predicted(kind, ranks)
    random = np.random.default_rng(2)
    names = list(_ms(prediction))
    epochs: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(2 if ranks == 64 else 40):
        # A rank that takes more batches than there are rows goes round.
        times = kind(random, 4 * BATCHES, ranks)

        def draw(rank: int, step: int, times: Floats = times) -> float:
            return float(times[step % len(times), rank])

        ways = {
            "sync": lambda: meeting(
                draw, ranks, BATCHES, groups=[range(ranks)], within=1.0, every=BATCHES + 1
            ),
            "local": lambda: meeting(draw, ranks, BATCHES, every=8, averaging=1.0),
            "hybrid": lambda: meeting(
                draw,
                ranks,
                BATCHES,
                groups=prediction.of("hybrid").groups,
                within=1.0,
                every=8,
                averaging=1.0,
            ),
            "async": lambda: apart(
                draw, ranks, BATCHES, depth=DEPTH, averaging=1.0, staleness=prediction.staleness
            ),
        }
        for name in names:
            epochs[name].append(ways[name]())
    for name in names:
        mean, made = float(np.mean(epochs[name])) / 1e3, prediction.of(name).epoch
        assert made.low * 0.97 <= mean <= made.high * 1.03, name
        assert made.high < 1.12 * made.low, name


def test_what_waits_are_for() -> None:
    for ranks in (2, 4, 64):
        assert _predicted(_straggler, ranks).persistent > 0.95
        assert _predicted(_jitter, ranks).persistent < 0.2
        assert _predicted(_jitter, ranks).waiting > 0.2
        assert _predicted(_equal, ranks).waiting < 0.05
    # Ranks that are alike differ in any half of their steps, but not alike in both.
    random = np.random.default_rng(0)
    shares = [persistent(_jitter(random, 60, 16)) for _ in range(20)]
    assert np.mean(shares) < 0.1
    assert np.isnan(persistent(_always(10.0, 10.0)))


def _lasting(own: Floats) -> float:
    made = _job(own)
    return lasting(made, [curve(rank) for rank in made.ranks], [None] * own.shape[1])


def test_a_split_that_follows_chance_is_known_by_the_other_half() -> None:
    random = np.random.default_rng(0)
    chance = [_lasting(_jitter(random, 60, 32)) for _ in range(8)]
    assert np.mean(chance) < -0.01
    assert max(chance) < 0.02
    assert all(_lasting(_straggler(random, 60, 4)) > 0.4 for _ in range(4))
    # One rank that is quick among many: few wait for long, all would gain.
    quick = _equal(random, 60, 32) * np.where(np.arange(32) == 0, 0.1, 1.0)
    assert _lasting(quick) > 0.1
    assert _lasting(_equal(random, 7, 4)) == 0.0
    # It is said where it would be recommended otherwise, and then it is not.
    made = _job(_straggler(random, 60, 4))
    before, after = (predict(made, sizes) for sizes in ([8] * 4, [9, 10, 10, 3]))
    for lasts, recommended in ((True, "split"), (False, "sync")):
        prediction = modes(made, before, after, [9, 10, 10, 3], lasts=lasts)
        assert prediction is not None
        assert prediction.recommended == recommended
        assert any("gain is due to chance" in note for note in prediction.notes) == (not lasts)


def _text(balanced: BatchSplit) -> str:
    file = io.StringIO()
    reporter.write(plain_console(file, 100), balanced, run=Path("R"))
    return " ".join(file.getvalue().split())


def test_a_plan_is_put_on_where_it_pays() -> None:
    command = "lotus balance R -o balance.json"
    assert command in _text(balance(job([Costs(1.0)] * 3 + [Costs(3.0)]), SplitOptions()))
    alike = job([Costs(1.0), Costs(1.0)])
    assert command not in _text(balance(alike, SplitOptions()))
    assert command in _text(balance(alike, SplitOptions(strategy="equal")))  # asked for by name


def test_the_split_is_recommended_as_it_learns_as_now() -> None:
    balanced = balance(job([Costs(1.0)] * 3 + [Costs(3.0)]), SplitOptions())
    assert balanced.modes is not None
    assert balanced.modes.recommended == "split"
    assert balanced.modes.of("split").learns_the_same
    assert balanced.modes.of("split").epoch.seconds == pytest.approx(60 * balanced.after.seconds)
    text = _text(balanced)
    assert "sync, split by lotus: 56% less time than now, learns as now" in text
    assert "that for ranks that are always slow, 0% for single slow steps" in text
    assert "but it learns otherwise: compare the loss (lotus run --mode async)" in text
    assert "hybrid is shown for --groups 0,1,2/3" in text


def test_jitter_is_told_from_a_slow_rank() -> None:
    balanced = balance(job([Costs(1.0)] * 4, noise=0.4, steps=200), SplitOptions())
    assert balanced.modes is not None
    assert (balanced.modes.recommended, balanced.modes.option) == ("sync", "async")
    assert 0.2 < balanced.modes.gain < 0.5
    text = _text(balanced)
    assert (
        "which no split removes; averaging less often (local, or async, which is experimental) does"
        in text
    )
    assert "mode sync, as it is. async (experimental) would take" in text


def test_nothing_is_named_that_is_within_five_per_cent_or_the_intervals() -> None:
    near = _modes(_job(_always(10.0, 10.0), collective=0.4))
    assert (near.recommended, near.option) == ("sync", None)
    clear = _modes(_job(_always(10.0, 10.0), collective=2.0))
    assert (clear.recommended, clear.option) == ("sync", "async")
    rough = np.random.default_rng(5).lognormal(0, 1.2, (40, 2))
    unsure = _modes(_job(rough, collective=0.0))
    assert unsure.of("async").times < 0.9
    assert unsure.option is None
    few = _modes(_job(_always(10.0, 30.0, steps=3)))
    assert (few.recommended, few.option) == ("sync", None)


def test_input_that_is_the_limit_is_tuned_first() -> None:
    balanced = balance(job([Costs(1.0), Costs(1.0, fetch=4.0)]), SplitOptions())
    assert "mode tune the input first, as said above, and trace again. Until then" in _text(
        balanced
    )


def test_a_split_of_another_global_batch_learns_otherwise() -> None:
    balanced = balance(job([Costs(1.0), Costs(3.0), Costs(1.0), Costs(1.0)]), SplitOptions("bno"))
    assert balanced.modes is not None
    split = balanced.modes.of("split")
    assert not split.learns_the_same
    assert balanced.modes.recommended == "sync"
    # Batches of 19 samples instead of 32: more steps in an epoch.
    assert split.epoch.seconds == pytest.approx(60 * 32 / 19 * balanced.after.seconds)


def test_without_traced_synchronisation_nothing_is_predicted() -> None:
    balanced = balance(job([Costs(1.0), Costs(3.0)], synced=False), SplitOptions())
    assert balanced.modes is None
    assert reporter.document(balanced)["modes"] is None
    assert "modes not predicted: the synchronisation of gradients was not traced" in _text(balanced)


def test_ranks_with_batches_of_several_sizes() -> None:
    balanced = balance(job([Costs(1.0), Costs(1.0, batch=4)]), SplitOptions())
    assert balanced.modes is not None
    assert "async" not in _ms(balanced.modes)
    assert any("batches of one size" in note for note in balanced.modes.notes)


def test_long_runs_and_many_epochs() -> None:
    """Of more steps than are worked with, some in a row are kept: slow spells stay spells."""
    spell = np.where(np.arange(20_000) // 8 % 2, 30.0, 10.0)
    own = np.column_stack((spell, 40.0 - spell))
    prediction = _modes(_job(own, collective=0.0))
    # Within a spell local waits as sync does; between any 8 steps it evens out.
    assert _ms(prediction)["local"] == pytest.approx(50 * 25, rel=0.05)
    assert prediction.batches == BATCHES
