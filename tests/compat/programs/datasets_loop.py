"""Iterates data sets of Hugging Face: map style, with a transform, and as streams."""

import os

import datasets
import torch
from shared import digest
from torch.utils.data import DataLoader


def augment(rows):
    """For set_transform: columns in, columns out."""
    values = torch.tensor(rows["value"])
    return {"value": list(values + torch.rand(values.shape)), "label": rows["label"]}


def double(row):
    return {"value": [2 * number for number in row["value"]], "label": row["label"]}


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
    print(torch.rand(()).item())
