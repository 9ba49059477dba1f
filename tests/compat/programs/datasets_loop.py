"""Iterates data sets of Hugging Face: map style, with transforms, and as streams."""

import os

import datasets
import torch
from shared import digest
from torch.utils.data import DataLoader
from torchvision.transforms import v2

resize = v2.Resize((4, 4))
flips = v2.Compose([v2.RandomHorizontalFlip(), v2.RandomApply([v2.RandomVerticalFlip(p=1)], p=1)])


def augment(rows):
    """For set_transform: columns in, columns out."""
    values = torch.tensor(rows["value"])
    return {"value": list(values + torch.rand(values.shape)), "label": rows["label"]}


def double(row):
    return {"value": [2 * number for number in row["value"]], "label": row["label"]}


def picture(rows):
    """It calls what it finds among the globals of its module."""
    squares = [torch.tensor(number).repeat(32).reshape(1, 8, 8) for number in rows["value"]]
    return {"value": [flips(resize(square)) for square in squares], "label": rows["label"]}


def even(row):
    return row["label"] % 2 == 0


async def later(row):
    return row


def loop(name, loader, epochs=1):
    for epoch in range(epochs):
        for batch in loader:
            print(name, epoch, batch["label"].tolist(), digest(batch["value"]))


if __name__ == "__main__":
    torch.manual_seed(7)
    datasets.disable_progress_bars()
    columns = {"value": [[float(n), 1.0] for n in range(20)], "label": list(range(20))}
    made = datasets.Dataset.from_dict(columns)
    made.save_to_disk("saved")
    saved = datasets.load_from_disk("saved")

    tensors = saved.map(double).with_format("torch")
    loop("tensors", DataLoader(tensors, batch_size=6, shuffle=True, num_workers=2), epochs=2)

    augmented = saved.with_transform(augment)
    loader = DataLoader(augmented, batch_size=6, num_workers=2, persistent_workers=True)
    loop("augmented", loader, epochs=2)
    loop("here", DataLoader(augmented, batch_size=6, drop_last=True))
    # What it is called by in the cache must not depend on who looked at it.
    print(augmented._fingerprint, augmented.map(double)._fingerprint)
    print(augmented.format["type"], augmented.shuffle(seed=3)[:2]["label"])

    shards = saved.to_iterable_dataset(num_shards=3).map(double).shuffle(seed=3, buffer_size=4)
    loop("stream", DataLoader(shards.with_format("torch"), batch_size=6, num_workers=2), epochs=2)

    for number in range(2):
        saved.shard(2, number).to_parquet(f"part-{number}.parquet")
    files = sorted(name for name in os.listdir() if name.startswith("part-"))
    stream = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
    loop("files", DataLoader(stream.with_format("torch"), batch_size=4, num_workers=2))
    loop("single", DataLoader(stream.take(5).with_format("torch"), batch_size=2))

    stages = saved.to_iterable_dataset(num_shards=2).map(double).filter(even).map(later)
    stages = stages.map(lambda row: row).with_format("torch")
    for workers in (0, 2):
        loop("stages", DataLoader(stages, batch_size=3, num_workers=workers))
    key = saved.map(picture, batched=True)._fingerprint
    pictures = saved.with_transform(picture)
    loop("pictures", DataLoader(pictures, batch_size=5))
    # Nor on whether its transforms are timed.
    assert saved.map(picture, batched=True)._fingerprint == key
    print(key, pictures.with_format(**pictures.format)._fingerprint)
    print(torch.rand(()).item())
