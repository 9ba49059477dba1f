"""Settings that make the same loader are one; what no loader may have is refused."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lotus.settings.space import Measurement, Setting, Space

settings = st.builds(
    Setting,
    num_workers=st.integers(0, 64),
    prefetch_factor=st.none() | st.integers(1, 2048),
    pin_memory=st.booleans(),
    persistent_workers=st.booleans(),
    start_method=st.sampled_from([None, "fork", "spawn", "forkserver"]),
    in_order=st.none() | st.booleans(),
    threads=st.none() | st.integers(1, 64),
    torch_threads=st.none() | st.integers(1, 64),
)


def test_without_workers_nothing_but_pinning_counts() -> None:
    full = Setting(0, 4, True, True, "spawn", False, 2)
    assert full.normal() == Setting(0, pin_memory=True)
    assert full.normal() != Setting(0)


def test_torch_threads_count_without_workers_too() -> None:
    assert Setting(0, 4, threads=2, torch_threads=1).normal() == Setting(0, torch_threads=1)
    assert Setting(0, torch_threads=1).kwargs() == Setting(0).kwargs()
    assert sorted([Setting(0, torch_threads=1), Setting(1), Setting(0)])[0] == Setting(0)


def test_a_space_is_of_what_trials_can_measure() -> None:
    space = Space((0, 2), (2,))
    assert Setting(2) in space
    assert Setting(2, torch_threads=1) not in space
    assert Setting(0, torch_threads=1) not in space
    with pytest.raises(KeyError):
        space.values("torch_threads")


def test_an_unsaid_prefetch_factor_is_torchs_two() -> None:
    assert Setting(3).normal() == Setting(3, 2).normal() != Setting(3, 1).normal()


@given(settings)
def test_normal_settings_stay_and_make_the_same_loader(setting: Setting) -> None:
    assert setting.normal().normal() == setting.normal()
    assert setting.normal().kwargs() == setting.kwargs()


@given(settings)
def test_json_gives_the_setting_back(setting: Setting) -> None:
    assert Setting.from_json(json.loads(json.dumps(setting.as_json()))) == setting


@given(st.lists(settings, max_size=6))
def test_settings_can_be_sorted_fewer_workers_first(some: list[Setting]) -> None:
    ordered = sorted(some)
    assert [s.num_workers for s in ordered] == sorted(s.num_workers for s in some)
    for first, other in itertools.pairwise(ordered):
        assert first <= other
        assert (first == other) or not other <= first


def test_arguments_replace_what_torch_refuses_without_workers() -> None:
    assert Setting(0, 4, False, True, "spawn").kwargs() == {
        "num_workers": 0,
        "prefetch_factor": None,
        "pin_memory": False,
        "persistent_workers": False,
        "multiprocessing_context": None,
    }
    assert Setting(2, 4, True, True, "spawn", False, 3).kwargs() == {
        "num_workers": 2,
        "prefetch_factor": 4,
        "pin_memory": True,
        "persistent_workers": True,
        "multiprocessing_context": "spawn",
        "in_order": False,
    }
    assert "multiprocessing_context" not in Setting(2).kwargs()  # the program's own stays


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"prefetch_factor": 2},
        {"num_workers": 1, "batch_size": 8},
        {"num_workers": -1},
        {"num_workers": True},
        {"num_workers": 2.0},
        {"num_workers": "2"},
        {"num_workers": None},
        {"num_workers": 1, "prefetch_factor": 0},
        {"num_workers": 1, "threads": 0},
        {"num_workers": 1, "torch_threads": 0},
        {"num_workers": 0, "torch_threads": 1.5},
        {"num_workers": 1, "pin_memory": 1},
        {"num_workers": 1, "pin_memory": None},
        {"num_workers": 1, "start_method": "thread"},
    ],
)
def test_what_is_no_setting_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match=r"setting|must be"):
        Setting.from_json(data)


def test_settings_of_a_space_are_normal_and_come_once() -> None:
    space = Space((0, 1), (None, 2, 3), (False, True), (False, True), ("fork", None))
    listed = list(space.settings())
    assert len(listed) == len(set(listed)) == 2 + 2 * 2 * 2 * 2
    assert all(setting == setting.normal() for setting in listed)
    assert space.size() == 48


@given(
    st.builds(
        Setting,
        num_workers=st.sampled_from([0, 1, 2, 5]),
        prefetch_factor=st.sampled_from([None, 1, 2, 3]),
        pin_memory=st.booleans(),
        persistent_workers=st.sampled_from([False, False, True]),
        start_method=st.sampled_from([None, "spawn", "fork"]),
        in_order=st.sampled_from([None, True, False]),
    )
)
def test_a_space_contains_what_it_lists(setting: Setting) -> None:
    space = Space((0, 1, 5), (None, 3), (False, True), (False,), (None, "spawn"), (None, True))
    assert (setting in space) == (setting.normal() in set(space.settings()))
    assert all(listed in space for listed in space.settings())


@pytest.mark.parametrize(
    "make",
    [
        lambda: Space(()),
        lambda: Space((1, 1)),
        lambda: Space((-1,)),
        lambda: Space((1,), (0,)),
        lambda: Space((1,), pin_memory=(True, 1)),
        lambda: Space((1,), start_method=("no",)),
    ],
)
def test_an_impossible_space_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"value|must be"):
        make()


def test_a_failed_measurement_has_no_rate() -> None:
    failed = Measurement.failure(Setting(1), "out of memory", 2.5)
    assert (failed.samples_per_s, failed.seconds, failed.failed) == (0.0, 2.5, "out of memory")
    with pytest.raises(ValueError, match="no rate"):
        Measurement(Setting(1), 5.0, 4.0, 6.0, 1.0, failed="killed")
    with pytest.raises(ValueError, match="reason"):
        Measurement.failure(Setting(1), "")
