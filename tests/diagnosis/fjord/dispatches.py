"""Sorts news agency dispatches by desk; the texts lie in a store elsewhere."""

import argparse
import random
import time
from collections import Counter

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE, DESKS = 4096, 8


class Store:
    """A stand-in for a store of objects: each request takes a moment, whatever it asks for."""

    def __init__(self, objects, moment=0.009):
        self.objects, self.moment = objects, moment

    def get(self, key):
        time.sleep(self.moment)
        return self.objects[key]

    def get_many(self, keys):
        time.sleep(self.moment)
        return [self.objects[key] for key in keys]


class Dispatches(Dataset):
    def __init__(self, store, desks, at_once):
        self.store, self.desks, self.at_once = store, desks, at_once

    def __len__(self):
        return len(self.desks)

    def prepare(self, index, text):
        counts = Counter(hash(word) % SIZE for word in text.split())
        places = torch.tensor(list(counts), dtype=torch.long)
        bag = torch.zeros(SIZE)
        bag[places] = torch.tensor(list(counts.values()), dtype=torch.float32)
        return {"bag": bag, "desk": self.desks[index]}

    def __getitem__(self, index):
        return self.prepare(index, self.store.get(f"dispatch/{index:06d}"))

    def __getitems__(self, indices):
        keys = [f"dispatch/{index:06d}" for index in indices]
        texts = self.store.get_many(keys) if self.at_once else list(map(self.store.get, keys))
        return [self.prepare(index, text) for index, text in zip(indices, texts, strict=True)]


def write(count):
    draw = random.Random(54)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 9))) for _ in range(3000)]
    texts = {f"dispatch/{n:06d}": " ".join(draw.choices(words, k=120)) for n in range(count)}
    return texts, [draw.randrange(DESKS) for _ in range(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(54)
    texts, desks = write(800)
    dispatches = Dispatches(Store(texts), desks, at_once=args.without)
    loader = DataLoader(
        dispatches, args.batch_size, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = nn.Sequential(nn.Linear(SIZE, 192), nn.ReLU(), nn.Dropout(0.2), nn.Linear(192, DESKS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        model.train()
        for step, batch in enumerate(loader):
            loss = nn.functional.cross_entropy(model(batch["bag"]), batch["desk"])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step}: loss {loss.item():.4f}")
        scheduler.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
