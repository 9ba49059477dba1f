"""What is in a larder, out of baskets of like size, with a validation after each epoch."""

import argparse
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

GOODS = 2000


class Baskets(Dataset):
    def __init__(self, count, seed):
        chance = random.Random(seed)
        self.baskets = [
            torch.tensor([chance.randrange(1, GOODS) for _ in range(chance.randint(4, 40))])
            for _ in range(count)
        ]

    def __len__(self):
        return len(self.baskets)

    def __getitem__(self, index):
        basket = self.baskets[index]
        return basket[:-1], basket[-1]


class BySize:
    """Batches of baskets of like size, in random order."""

    def __init__(self, sizes, size):
        order = sorted(range(len(sizes)), key=sizes.__getitem__)
        self.batches = [order[i : i + size] for i in range(0, len(order), size)]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(random.sample(self.batches, len(self.batches)))


def pad(samples):
    baskets, last = zip(*samples, strict=True)
    return pad_sequence(baskets, batch_first=True), torch.stack(last)


class Network(nn.Module):
    def __init__(self, size=192):
        super().__init__()
        self.goods = nn.Embedding(GOODS, size, padding_idx=0)
        self.layers = nn.Sequential(nn.Linear(size, 768), nn.ReLU(), nn.Linear(768, GOODS))

    def forward(self, baskets):
        there = (baskets > 0).sum(1, keepdim=True)
        return self.layers(self.goods(baskets).sum(1) / there)


def kept(data, batch, **more):
    sizes = [len(basket) for basket in data.baskets]
    return DataLoader(
        data,
        batch_sampler=BySize(sizes, batch),
        collate_fn=pad,
        num_workers=1,
        persistent_workers=True,
        **more,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="nothing to leave out")
    parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(51)
    random.seed(51)
    train, valid = kept(Baskets(6400, 1), 64), kept(Baskets(640, 2), 128)
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(4):
            with open(Path(folder) / "losses.txt", "a") as log:
                for step, (baskets, last) in enumerate(train):
                    optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(model(baskets), last)
                    loss.backward()
                    optimizer.step()
                    log.write(f"{epoch} {step} {loss.item():.4f}\n")
            with torch.no_grad():
                right = [(model(b).topk(10).indices == last[:, None]).sum() for b, last in valid]
            print(f"epoch {epoch}: hits {sum(right).item() / len(valid.dataset):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
