"""Tells gargoyles from grotesques; every few steps, a held-out part is looked at."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Carvings(Dataset):
    """Views of carvings, mirrored at random."""

    def __init__(self, count, seed):
        draw = torch.Generator().manual_seed(seed)
        self.views = torch.rand(count, 3, 48, 48, generator=draw)
        self.kinds = torch.randint(2, (count,), generator=draw)

    def __len__(self):
        return len(self.views)

    def __getitem__(self, index):
        view = self.views[index]
        if torch.rand(()) < 0.5:
            view = view.flip(2)
        return (view - view.mean()) / view.std(), self.kinds[index]


def held_out_loader(carvings, kept=False):
    return DataLoader(
        carvings, batch_size=32, num_workers=2, persistent_workers=kept, prefetch_factor=4
    )


def validate(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for views, kinds in loader:
            right += int((model(views).argmax(1) == kinds).sum())
    model.train()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--look-every", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(38)
    loader = DataLoader(
        Carvings(1152, seed=38), batch_size=32, shuffle=True, num_workers=1,
        persistent_workers=True,
    )  # fmt: skip
    others = Carvings(192, seed=39)
    kept = held_out_loader(others, kept=True)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        best = 0.0
        for step, (views, kinds) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(views), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % args.look_every == 0:
                held_out = kept if args.without else held_out_loader(others)
                best = max(best, validate(model, held_out))
        print(f"epoch {epoch}: best {best:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
