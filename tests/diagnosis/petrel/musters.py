"""Tells crews apart with triplets, from batches of a few sailors of each of some crews.

Planted: the sampler takes each number that it has drawn out of a long list, by searching it.
"""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

CREWS, SAILORS, EACH, AT_ONCE = 400, 100, 4, 8


class Muster(Dataset):
    def __init__(self):
        self.faces = np.random.default_rng(311).random((CREWS, 48), dtype=np.float32)

    def __len__(self):
        return CREWS * SAILORS

    def __getitem__(self, index):
        crew = index // SAILORS
        return torch.from_numpy(self.faces[crew]) + torch.randn(48) * 0.1, crew


class CrewsAndSailors(Sampler):
    """Batches of EACH sailors of AT_ONCE crews; nobody comes twice in an epoch."""

    def __init__(self, batches, quick):
        self.batches, self.quick = batches, quick
        self.draw = random.Random(311)

    def __len__(self):
        return self.batches

    def slowly(self, left):
        for _ in range(self.batches):
            batch = []
            for crew in self.draw.sample(range(CREWS), AT_ONCE):
                aboard = [index for index in left if index // SAILORS == crew]
                for index in self.draw.sample(aboard, min(EACH, len(aboard))):
                    left.remove(index)
                    batch.append(index)
            yield batch

    def quickly(self):
        crews = [list(range(crew * SAILORS, (crew + 1) * SAILORS)) for crew in range(CREWS)]
        for crew in crews:
            self.draw.shuffle(crew)
        for _ in range(self.batches):
            drawn = self.draw.sample(crews, AT_ONCE)
            yield [crew.pop() for crew in drawn for _ in range(min(EACH, len(crew)))]

    def __iter__(self):
        return self.quickly() if self.quick else self.slowly(list(range(CREWS * SAILORS)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(311)
    loader = DataLoader(
        Muster(),
        batch_sampler=CrewsAndSailors(130, quick=args.without),
        num_workers=2,
        persistent_workers=True,
    )
    model = nn.Sequential(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for faces, crews in loader:
            apart = torch.cdist(*[nn.functional.normalize(model(faces))] * 2)
            same = crews[:, None] == crews[None, :]
            near = apart.masked_fill(same, 9.0).amin(1)
            far = apart.masked_fill(~same, 0.0).amax(1)
            loss = (far - near + 0.3).relu().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
