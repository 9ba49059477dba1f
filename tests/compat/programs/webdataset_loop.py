"""Iterates tar files with WebDataset's pipelines, by torch's loader and by its own."""

import functools
import io
import os
import tarfile

import torch
import webdataset
from shared import Compose, Scale, Shift, digest
from torch.utils.data import DataLoader


def write_shards():
    """Two shards of eight samples: a text of one number, and a class."""
    for shard in range(2):
        with tarfile.open(f"shard-{shard}.tar", "w") as tar:
            for number in range(8 * shard, 8 * shard + 8):
                for ending, text in (("txt", f"{number}.5"), ("cls", f"{number % 3}")):
                    entry = tarfile.TarInfo(f"{number:03}.{ending}")
                    entry.size = len(text)
                    tar.addfile(entry, io.BytesIO(text.encode()))


def parse(sample):
    return {**sample, "value": torch.tensor([float(sample["txt"])] * 4)}


def noisy(value):
    return value + torch.rand(4)


def negative(label):
    return -label


def small(sample):
    return sample["cls"] < 2


def pairs(samples):
    """A stage that the program wrote: it hands over each sample twice."""
    for sample in samples:
        yield sample
        yield sample


def shards():
    names = sorted(name for name in os.listdir() if name.endswith(".tar"))
    return webdataset.WebDataset(names, shardshuffle=False, seed=5)


def loop(name, loader, epochs=1):
    for epoch in range(epochs):
        for batch in loader:
            print(name, epoch, digest(batch))


if __name__ == "__main__":
    write_shards()
    torch.manual_seed(7)
    data = shards().shuffle(4, seed=3).decode().map(parse).map_dict(value=noisy, cls=negative)
    data = data.to_tuple("value", "cls").map_tuple(Compose([Scale(), Shift()]), negative)
    for workers in (0, 2):
        loop("torch", DataLoader(data, batch_size=3, num_workers=workers), epochs=2 - workers // 2)

    own = shards().decode().map(parse).select(small).rename(x="value", y="cls").to_tuple("x", "y")
    own = own.compose(pairs).map_tuple(functools.partial(torch.add, 1), None).batched(4)
    for workers in (0, 2):
        loader = webdataset.WebLoader(own, batch_size=None, num_workers=workers)
        loop("own", loader.unbatched().shuffle(6, seed=2).batched(5))

    # A sample that cannot be parsed is left out; the epoch is as long as the program says.
    broken = webdataset.DataPipeline(
        shards(),
        webdataset.decode(),
        webdataset.map(lambda sample: 1 / sample["cls"], handler=webdataset.ignore_and_continue),
    )
    loop("broken", DataLoader(broken.with_epoch(7), batch_size=4))
    print(torch.rand(()).item())
