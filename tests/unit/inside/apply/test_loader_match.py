"""Which setting a loader is meant for, by its length where nothing else tells."""

from types import SimpleNamespace

import pytest

from lotus.inside.apply.loader_match import Matching

SITE = "train.py:5"


class RandomSampler:
    pass


class Pictures:
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


def loader(length: int) -> SimpleNamespace:
    data = Pictures(length)
    return SimpleNamespace(
        dataset=data, sampler=RandomSampler(), batch_sampler=None, _dataset_kind=0
    )


def entry(length: int | None, **changes: object) -> dict[str, object]:
    wanted = {"call_site": SITE, "dataset": "Pictures", "sampler": "RandomSampler"}
    return {"loader": {**wanted, "number": 0, "dataset_length": length, **changes}}


def meant(found_on: list[int | None], made: list[int]) -> list[int | None]:
    """The length that the setting of each loader was found on, after all of them were made."""
    matching = Matching([entry(length) for length in found_on])
    loaders = [(loader(length), matching.made(loader(length), SITE)) for length in made]
    indices = [
        index if index is not None else matching.iterated(loader, SITE)[0]
        for loader, index in loaders
    ]
    return [None if index is None else found_on[index] for index in indices]


@pytest.mark.parametrize(
    ("found_on", "made", "expected"),
    [
        ([6000], [6000], [6000]),
        ([6000], [2400], [6000]),
        ([6000], [9000], [6000]),
        ([6000], [2400, 2400], [6000, 6000]),  # as of two runs of one function
        ([6000], [1000, 6000], [None, 6000]),
        ([6000], [1000, 2400], [None, None]),
        ([6000, 1000], [6000, 1000], [6000, 1000]),
        ([6000, 1000], [6000, 400], [6000, 1000]),
        ([6000, 1000], [2400, 1000], [6000, 1000]),
        ([6000, 1000], [2400, 400], [None, None]),
        ([6000, 1000], [2400], [None]),
        ([6000], [0], [6000]),
    ],
)
def test_the_length_decides_where_several_may_be_meant(
    found_on: list[int | None], made: list[int], expected: list[int | None]
) -> None:
    assert meant(found_on, made) == expected


@pytest.mark.parametrize("name", ["call_site", "dataset", "sampler"])
def test_the_length_is_no_note_where_place_class_or_sampler_do_not_tell(name: str) -> None:
    for value in (None, "Other"):
        matching = Matching([entry(6000, **{name: value})])
        made = loader(2400)
        assert matching.made(made, SITE) is None
        assert matching.iterated(made, SITE) == (None, "")


def test_an_entry_without_a_length_fits_any() -> None:
    matching = Matching([entry(None)])
    assert matching.made(loader(5), SITE) == 0


def test_a_loader_that_is_made_later_cannot_take_what_another_got() -> None:
    matching = Matching([entry(6000)])
    train, held = loader(2400), loader(500)
    assert matching.made(train, SITE) is None
    index, note = matching.iterated(train, SITE)
    assert index == 0
    assert note.endswith("gets the setting that was found on 6000 samples")
    assert matching.made(held, SITE) is None
    index, note = matching.iterated(held, SITE)
    assert index is None
    assert "loaders of 2400 and 500 samples are made there" in note


def test_an_entry_for_every_loader_is_for_all() -> None:
    matching = Matching([{"loader": {"every": True}}, entry(7)])
    assert matching.made(loader(7), "other.py:1") == 0
