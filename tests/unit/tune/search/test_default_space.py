"""What there is to choose among for a program."""

from lotus.settings.space import Measurement, Observed, Setting, Space
from lotus.settings.tuned_file import Target
from lotus.tune.program.program import Watched
from lotus.tune.search.default_space import default_space


def watched(batches: int | None, workers: int = 0, needed_at: str = "") -> Watched:
    target = Target(dataset="Pictures")
    return Watched(
        target, Setting(workers), 1, "2.14", False, 8, batches, workers_needed_at=needed_at
    )


def test_no_more_workers_than_an_epoch_has_batches() -> None:
    own = Measurement(Setting(0), 100.0, 90.0, 110.0, 1.0)
    few = default_space(watched(3), 4, own)
    assert few.num_workers == (0, 1, 2, 3)
    assert max(default_space(watched(1000), 4, own).num_workers) >= 8
    assert max(default_space(watched(None), 4, own).num_workers) >= 8


def test_nothing_without_workers_is_tried_where_code_needs_some() -> None:
    own = Measurement(Setting(2), 100.0, 90.0, 110.0, 1.0)
    assert 0 in default_space(watched(1000, 2), 4, own).num_workers
    least, *_ = default_space(watched(1000, 2, "train.py:7"), 4, own).num_workers
    assert least == 1


def test_one_thread_a_worker_is_tried_where_workers_have_several() -> None:
    def space(cpu_s: float, queued_s: float = 0.0) -> Space:
        seen = Observed(0.02, cpu_s, queued_s, 0.0, 0.1, 0.1, 0.0, 0.0, 8.0)
        own = Measurement(Setting(0), 100.0, 90.0, 110.0, 1.0, observed=seen)
        return default_space(watched(1000), 4, own)

    assert space(0.02).threads == (None,)
    assert space(0.035).threads == (None, 1)
    # Where other workers have the cores, the threads of one wait for them.
    assert space(0.02, queued_s=0.018).threads == (None, 1)
    assert space(0.01, queued_s=0.009).threads == (None,)
