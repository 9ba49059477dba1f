"""Learns which pictures of deserts show the same mirage, from anchors and hard negatives.

Planted: after each epoch the hardest negatives of all pictures are looked for pair by pair in
plain Python, which takes about as long as the epoch.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PICTURES, SIDE, PLACES, CODE, BATCH, STEP = 960, 40, 48, 32, 24, 0.06


class Mirages(Dataset):
    """A picture, another one of the same place, and a negative."""

    def __init__(self):
        generator = torch.Generator().manual_seed(1069)
        places = torch.rand(PLACES, 3, 8, 8, generator=generator)
        self.places = torch.arange(PICTURES) % PLACES
        self.pictures = nn.functional.interpolate(places, size=(SIDE, SIDE))
        self.negatives = torch.randint(0, PICTURES, (PICTURES,), generator=generator)
        self.change = v2.Compose(
            [
                v2.RandomResizedCrop(32, scale=(0.6, 1.0), antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(0.3, 0.3),
                v2.RandomGrayscale(0.1),
            ]
        )

    def __len__(self):
        return PICTURES

    def picture(self, index):
        return self.change(self.pictures[self.places[index]])

    def __getitem__(self, index):
        same = (index + PLACES) % PICTURES
        return self.picture(index), self.picture(same), self.picture(self.negatives[index]), index


def hardest(codes, places):
    """The nearest picture of another place, for each picture."""
    rows = codes.tolist()
    places = places.tolist()
    found = []
    for row, place in zip(rows, places, strict=True):
        best, nearest = 0, -9.0
        for other, code in enumerate(rows):
            if places[other] != place:
                likeness = sum(a * b for a, b in zip(row, code, strict=True))
                if likeness > nearest:
                    best, nearest = other, likeness
        found.append(best)
    return torch.tensor(found)


def hardest_at_once(codes, places):
    likeness = codes @ codes.T
    return likeness.masked_fill(places[:, None] == places, -9.0).argmax(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(1069)
    torch.set_num_threads(1)
    data = Mirages()
    mine = hardest_at_once if args.without else hardest
    model = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(192, CODE))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    data.negatives.share_memory_()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        codes = torch.zeros(PICTURES, CODE)
        for pictures, same, negatives, indices in loader:
            anchors = nn.functional.normalize(model(pictures), dim=1)
            loss = nn.functional.triplet_margin_loss(anchors, model(same), model(negatives))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of a residual network on an accelerator
            codes[indices] = anchors.detach()
        data.negatives.copy_(mine(codes, data.places))
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
