"""Which banners are clicked: clicks are rare, so that a sampler draws them more often."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler, WeightedRandomSampler

VIEWS = 4_000_000


class Views(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.banner = torch.randint(0, 5000, (VIEWS,), generator=generator, dtype=torch.int32)
        self.clicked = torch.rand(VIEWS, generator=generator) < 0.01

    def __len__(self):
        return VIEWS

    def __getitem__(self, index):
        return self.banner[index], self.clicked[index]


class Classes(Sampler):
    """Draws the class first, then a view of it: no pass over all weights."""

    def __init__(self, clicked, count):
        self.of_class = [torch.nonzero(clicked == value)[:, 0] for value in (0, 1)]
        self.count = count

    def __len__(self):
        return self.count

    def __iter__(self):
        for value in torch.randint(0, 2, (self.count,)).tolist():
            views = self.of_class[value]
            yield int(views[torch.randint(0, len(views), ())])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)  # the machine is shared
    views = Views()
    count = 1536
    if args.without:
        sampler = Classes(views.clicked, count)
    else:
        weights = torch.where(views.clicked, 99.0, 1.0)
        sampler = WeightedRandomSampler(weights, count, replacement=False)
    loader = DataLoader(views, 128, sampler=sampler, num_workers=args.workers)
    model = nn.Sequential(nn.Embedding(5000, 64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    begin = time.perf_counter()
    for _round in range(12):  # of training, each with its own validation in real life
        for banner, clicked in loader:
            guess = model(banner)[:, 0]
            loss = nn.functional.binary_cross_entropy_with_logits(guess, clicked.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
