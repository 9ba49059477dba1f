"""Tells ripe plums, from few pictures with labels and many without.

Nothing is planted: a network that sees both kinds is the work. Two loaders, of one kept worker
each, are ahead of it, and a generator takes a batch of each; an average of the weights is kept.
"""

import argparse
import copy
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 40


class Plums(Dataset):
    def __init__(self, count, labelled, seed):
        draw = torch.Generator().manual_seed(seed)
        self.pictures = torch.rand(40, 3, SIDE, SIDE, generator=draw)
        self.count, self.labelled = count, labelled

    def __len__(self):
        return self.count

    def change(self, picture):
        if torch.rand(()) < 0.5:
            picture = picture.flip(2)
        place = torch.randint(SIDE - 8, (2,)).tolist()
        picture = picture.clone()
        picture[:, place[0] : place[0] + 8, place[1] : place[1] + 8] = 0.5
        return picture

    def __getitem__(self, index):
        picture = self.pictures[index % 40]
        if self.labelled:
            return self.change(picture), index % 40 % 3
        return self.change(picture), self.change(picture)


def pairs(labelled, unlabelled):
    """Yield a batch of each until the second ends; the first begins again as often as needed."""
    first = iter(labelled)
    for views in unlabelled:
        batch = next(first, None)
        if batch is None:
            first = iter(labelled)
            batch = next(first)
        yield batch, views


def build_model(width=40):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.GroupNorm(8, width), nn.SiLU(),
        nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(8, width), nn.SiLU(),
        nn.Conv2d(width, width, 3, stride=2), nn.SiLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3),
    )  # fmt: skip


class MeanTeacher:
    def __init__(self, model):
        self.model, self.mean = model, copy.deepcopy(model).requires_grad_(False)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(self, batch, views):
        (x, y), (one, other) = batch, views
        goal = self.mean(one).softmax(1)
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss = loss + nn.functional.cross_entropy(self.model(other), goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for slow, quick in zip(self.mean.parameters(), self.model.parameters(), strict=True):
            slow.lerp_(quick.detach(), 0.05)
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(157)
    kept = {"shuffle": True, "num_workers": 1, "persistent_workers": True}
    labelled = DataLoader(Plums(160, True, 157), batch_size=8, **kept)
    unlabelled = DataLoader(Plums(480, False, 163), batch_size=16, **kept)
    teacher = MeanTeacher(build_model())
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [teacher.step(*both) for both in pairs(labelled, unlabelled)]
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
