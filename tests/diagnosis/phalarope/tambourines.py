"""Transcribes songs for percussion; each beat of a song is a small tensor.

Planted: a batch comes from the spawned workers as a list of a thousand small tensors, each with
shared memory of its own, and is put together only in the main process.
"""

import argparse
import time

import torch
import torch.multiprocessing
from torch import nn
from torch.utils.data import DataLoader, Dataset

SONGS, BEATS, VALUES, STROKES, BATCH = 384, 36, 32, 6, 24


class Songs(Dataset):
    """Songs, each of some beats of different lengths."""

    def __len__(self):
        return SONGS

    def __getitem__(self, index):
        source = torch.Generator().manual_seed(4099 + index)
        values = torch.randn(BEATS * VALUES, generator=source)
        lengths = torch.randint(VALUES // 2, VALUES, (BEATS,), generator=source).tolist()
        beats = [beat.clone() for beat in values.split(VALUES)]
        beats = [beat[:length].clone() for beat, length in zip(beats, lengths, strict=True)]
        return beats, index % STROKES


class Together:
    def __init__(self, joined):
        self.joined = joined

    def __call__(self, songs):
        beats = [beat for song, _ in songs for beat in song]
        strokes = torch.tensor([stroke for _, stroke in songs])
        lengths = torch.tensor([len(beat) for beat in beats])
        return torch.cat(beats) if self.joined else beats, lengths, strokes


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(VALUES, 64)
        self.out = nn.Linear(64, STROKES)

    def forward(self, values, lengths):
        parts = values.split(lengths.tolist())
        beats = nn.utils.rnn.pad_sequence(parts, batch_first=True)
        beats = nn.functional.pad(beats, (0, VALUES - beats.shape[1]))
        return self.out(torch.relu(self.into(beats)).unflatten(0, (-1, BEATS)).mean(1))


def set_up(_worker):
    torch.multiprocessing.set_sharing_strategy("file_system")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(4099)
    torch.multiprocessing.set_sharing_strategy("file_system")
    loader = DataLoader(
        Songs(),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="spawn",
        worker_init_fn=set_up,
        collate_fn=Together(joined=args.without),
    )
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    next(iter(loader))
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for values, lengths, strokes in loader:
            if not torch.is_tensor(values):
                values = torch.cat(values)
            loss = nn.functional.cross_entropy(model(values, lengths), strokes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
