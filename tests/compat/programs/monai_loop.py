"""Iterates MONAI's data sets and caches with its loaders, by processes and by threads."""

import os

import numpy
from monai.data import (
    CacheDataset,
    DataLoader,
    Dataset,
    PersistentDataset,
    ThreadDataLoader,
    pickle_hashing,
)
from monai.transforms import (
    Compose,
    EnsureChannelFirstd,
    Lambdad,
    LoadImaged,
    OneOf,
    RandFlipd,
    RandGaussianNoised,
    ScaleIntensityd,
)
from monai.utils import set_determinism
from shared import digest


def write_volumes(count=8):
    noise = numpy.random.default_rng(7)
    for number in range(count):
        numpy.save(f"{number}.npy", noise.random((6, 6, 6), dtype=numpy.float32))
    return [{"image": f"{number}.npy", "label": number} for number in range(count)]


def chain():
    first = Compose(
        [EnsureChannelFirstd("image", channel_dim="no_channel"), ScaleIntensityd("image")]
    )
    either = OneOf([RandGaussianNoised("image", prob=1), Lambdad("image", abs)])
    return Compose([LoadImaged("image"), first, RandFlipd("image", prob=0.5), either])


def loop(name, loader, epochs=1):
    for epoch in range(epochs):
        for batch in loader:
            print(name, epoch, digest([batch["image"].as_tensor(), batch["label"]]))


def keep(transform):
    return PersistentDataset(items, transform, "kept", hash_transform=pickle_hashing)


if __name__ == "__main__":
    items = write_volumes()
    for workers in (0, 2):
        set_determinism(5)
        common = {"batch_size": 3, "num_workers": workers, "shuffle": True}
        loop("plain", DataLoader(Dataset(items, chain()), **common), epochs=2)
        cached = CacheDataset(items, chain(), num_workers=1, progress=False)
        loop("cached", DataLoader(cached, **common))
        transform = chain()
        kept = keep(transform)
        loop("kept", DataLoader(kept, **common))
        # What it is called by must not depend on whether its transforms are timed.
        print(len(transform), kept.transform_hash, keep(transform).transform_hash)
        print(sorted(os.listdir("kept")))
        loop("ahead", ThreadDataLoader(Dataset(items, chain()), **common))
    threads = ThreadDataLoader(
        Dataset(items, LoadImaged("image")), use_thread_workers=True, num_workers=2, batch_size=4
    )
    loop("threads", threads)
    print(numpy.random.rand())
