"""What caches and other loaders have of a loader's samples, by the keys of its cuts."""

from __future__ import annotations

import pytest

from lotus.inside.cache.cached_samples import CachedSamples, CachePlan, SampleCount, SampleMaker
from lotus.inside.cache.cached_samples import key_of as key
from lotus.inside.cache.sample_store import SampleStore
from lotus.inside.isolate import shared_prefixes

torch = pytest.importorskip("torch")
transforms = pytest.importorskip("torchvision.transforms")
data = torch.utils.data

PATH = ("transform",)


class Rows(data.Dataset):
    shift = 0

    def __init__(self, *operations, root="/data", length=100):
        self.transform, self.root = transforms.Compose(operations), root
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.transform(torch.full((3, 8, 8), float(index + self.shift)))


class Shifted(Rows):
    shift = 1


def resized(*more, size=4, **state):
    return Rows(transforms.Resize(size, antialias=True), *more, **state)


def others(loader):
    dataset = getattr(loader.dataset, "dataset", loader.dataset)
    keys = {cut: key(dataset, PATH, cut) for cut in range(len(dataset.transform.transforms) + 1)}
    names = [type(each).__name__ for each in dataset.transform.transforms]
    rows = shared_prefixes.others(loader, names, keys, data.DataLoader, lambda other: other.name)
    return [(row["call_site"], row["cut"], row["overlap"]) for row in rows]


def named(name, dataset, **options):
    loader = data.DataLoader(dataset, 4, **options)
    loader.name = name
    return loader


def test_loaders_share_what_they_have_in_common():
    train = named("train", resized(transforms.RandomCrop(2)))
    # Subsets of one data set share keys; an index outside of both counts for neither.
    part = data.Subset(resized(transforms.CenterCrop(2)), range(75, 100))
    half = named("half", resized(), sampler=data.SubsetRandomSampler(range(50)))
    validation = named("validation", part)
    assert sorted(others(train)) == [("half", 1, 0.5), ("validation", 1, 0.25)]
    assert others(validation) == [("train", 1, 1.0)]
    assert half.dataset is not train.dataset


@pytest.mark.parametrize(
    "other",
    [
        lambda: resized(size=5),
        lambda: resized(root="/other"),
        lambda: resized(length=99),
        lambda: Shifted(transforms.Resize(4, antialias=True)),
        lambda: data.Subset(resized(), range(0)),
        lambda: data.ConcatDataset([resized()]),
    ],
)
def test_what_only_looks_alike_shares_no_operation(other):
    train, loader = named("train", resized()), named("other", other(), sampler=[0])
    assert [row for row in others(train) if row[1] > 0] == []
    assert loader.name == "other"


def test_samples_that_are_cached_are_counted(tmp_path):
    # GIVEN a cache of the even samples of the second half
    dataset = resized(transforms.RandomCrop(2))
    plan = CachePlan(PATH, 1, key(dataset, PATH, 1), str(tmp_path / key(dataset, PATH, 1)[:32]))
    store = SampleStore(plan.folder, 1 << 20, print)
    cached = CachedSamples(dataset, SampleMaker(dataset, plan, store, print, SampleCount()))
    for index in range(50, 100, 2):
        cached[index]

    # THEN a loader with other operations after the cut finds those that it asks for
    def shares(asked, roots=(str(tmp_path), "/nowhere"), cut=1):
        own = resized(transforms.CenterCrop(2))
        return shared_prefixes.cached_shares(own, key(own, PATH, cut), roots, asked)

    assert shares(None) == {str(tmp_path): 0.25}
    assert shares(range(50, 100, 2)) == {str(tmp_path): 1.0}
    assert shares(range(50)) == {str(tmp_path): 0.0}
    assert shares(None, cut=2) == {}
    half = data.Subset(resized(), range(50, 100))
    assert shared_prefixes.cached_shares(half, plan.key, [str(tmp_path)]) == {str(tmp_path): 0.5}
