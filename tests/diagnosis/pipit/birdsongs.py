"""Tells birds by their songs, whose notes an app has sent in.

Planted: workers are spawned anew for each epoch, and each time all recordings, a quarter of a
million notes as Python objects, are pickled for each of the two.
"""

import argparse
import random
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

SONGS, NOTES, BIRDS, FRAMES, BANDS, BATCH, STEP = 640, 400, 10, 96, 40, 16, 0.03


@dataclass
class Note:
    at: float
    pitch: float
    loud: float


def songs(count):
    drawn = random.Random(23)
    made = []
    for number in range(count):
        low = 0.05 * (number % BIRDS)
        made.append(
            [Note(drawn.random(), low + drawn.random() / 2, drawn.random()) for _ in range(NOTES)]
        )
    return made


class Songs(Dataset):
    def __init__(self, notes):
        self.notes = notes

    def __len__(self):
        return len(self.notes)

    def __getitem__(self, index):
        shift = random.uniform(-0.05, 0.05)
        picture = torch.zeros(FRAMES, BANDS)
        notes = self.notes[index]
        at = torch.tensor([note.at for note in notes])
        pitch = torch.tensor([note.pitch for note in notes]) + shift
        loud = torch.tensor([note.loud for note in notes])
        rows, columns = (at * FRAMES).long(), (pitch.clamp(0, 0.999) * BANDS).long()
        picture.index_put_((rows, columns), loud, accumulate=True)
        return picture.log1p(), index % BIRDS


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.frames, self.bird = nn.GRU(BANDS, 24, batch_first=True), nn.Linear(24, BIRDS)

    def forward(self, pictures):
        return self.bird(self.frames(pictures)[0].amax(1))


def accuracy(model, loader):
    with torch.no_grad():
        right = [(model(pictures).argmax(1) == birds).float() for pictures, birds in loader]
    return torch.cat(right).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(23)
    torch.set_num_threads(1)
    train, held = random_split(Songs(songs(SONGS)), [600, 40])
    loader = DataLoader(
        train,
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=args.without,
        multiprocessing_context="spawn",
    )
    checks = DataLoader(held, 40)
    model = Listener()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, birds in loader:
            loss = nn.functional.cross_entropy(model(pictures), birds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # a larger network
        print(f"epoch {epoch}: loss {loss:.3f}, right {accuracy(model, checks):.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
