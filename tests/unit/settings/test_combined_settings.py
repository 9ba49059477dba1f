"""Several files of settings as one."""

from dataclasses import replace
from pathlib import Path

import pytest

from lotus.common.errors import LotusError
from lotus.settings.combined_settings import combined
from lotus.settings.space import Setting
from lotus.settings.tuned_file import AlternativeUse, Entry, SampleCache, Target, Tuned

TARGET = Target(None, "train.py:57", "ImageFolder", 480, "RandomSampler")
OWN = Setting(0)
TUNED = Entry(TARGET, Setting(2, 4), OWN, iterable_safe=True)
USES = (AlternativeUse("uint8_tensors", False), AlternativeUse("in_place_normalize", True))
ADVICE = Entry(replace(TARGET, dataset_length=None), OWN, OWN, alternatives=USES)
CACHE = Entry(TARGET, OWN, OWN, cache=SampleCache(("transform",), 1, ("Resize",), None, 1 << 20))
OTHER = Entry(replace(TARGET, call_site="train.py:80"), Setting(1), OWN)


def files(**entries: Entry) -> dict[Path, Tuned]:
    return {Path(f"{name}.json"): Tuned((entry,), host=name) for name, entry in entries.items()}


@pytest.mark.parametrize("names", [("tuned", "advice"), ("advice", "tuned")])
def test_the_setting_of_one_and_the_alternatives_of_the_other_are_used(
    names: tuple[str, str],
) -> None:
    entries = {"tuned": TUNED, "advice": ADVICE}
    document = combined(files(**{name: entries[name] for name in names}))
    (entry,) = document.loaders
    assert (entry.setting, entry.before, entry.iterable_safe) == (Setting(2, 4), OWN, True)
    assert entry.alternatives == USES
    assert document.host == names[0]


def test_the_setting_of_one_and_the_cache_of_the_other_are_used() -> None:
    (entry,) = combined(files(plan=CACHE, tuned=TUNED)).loaders
    assert (entry.setting, entry.cache) == (TUNED.setting, CACHE.cache)


def test_samples_that_alternatives_make_are_cached() -> None:
    (entry,) = combined(files(plan=CACHE, advice=ADVICE, tuned=TUNED)).loaders
    assert (entry.setting, entry.cache, entry.alternatives) == (TUNED.setting, CACHE.cache, USES)


def test_entries_of_different_loaders_stay_apart() -> None:
    document = combined(files(tuned=TUNED, other=OTHER))
    assert document.loaders == (TUNED, OTHER)
    numbers = files(a=Entry(Target(0), Setting(1)), b=Entry(Target(1), Setting(2)))
    assert [each.setting.num_workers for each in combined(numbers).loaders] == [1, 2]


def test_entries_of_one_file_are_never_joined() -> None:
    twice = Tuned((TUNED, replace(TUNED, setting=Setting(1))))
    assert combined({Path("tuned.json"): twice}) == twice


def test_the_same_setting_twice_is_no_conflict() -> None:
    assert combined(files(tuned=TUNED, again=TUNED)).loaders == (TUNED,)


def test_one_file_and_none_stay_as_they_are() -> None:
    assert combined(files(tuned=TUNED)) == Tuned((TUNED,), host="tuned")
    assert combined({}) == Tuned(())


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (TUNED, replace(TUNED, setting=Setting(4)), "both change the setting of the loader of"),
        (CACHE, replace(CACHE, cache=replace(CACHE.cache, cut=0)), "both cache samples of"),
    ],
)
def test_what_contradicts_is_refused(first: Entry, second: Entry, message: str) -> None:
    with pytest.raises(LotusError, match=f"^first.json and second.json {message}"):
        combined(files(first=first, second=second))
