"""Predicts what is bought next, from the baskets of three shops; validates after each epoch."""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

GOODS, LENGTH = 800, 40


class Shop(Dataset):
    """Goods in the order in which they were bought; the last is to be predicted."""

    def __init__(self, count, seed):
        draw = torch.Generator().manual_seed(seed)
        self.baskets = torch.randint(GOODS, (count, LENGTH + 1), generator=draw)
        self.hours = torch.randint(24, (count,), generator=draw)

    def __len__(self):
        return len(self.baskets)

    def __getitem__(self, index):
        goods = self.baskets[index].clone()
        goods[:-1][torch.rand(LENGTH) < 0.1] = 0
        return {"goods": goods[:-1], "next": goods[-1], "hour": self.hours[index]}


class Shopper(nn.Module):
    def __init__(self, size=160):
        super().__init__()
        self.goods = nn.Embedding(GOODS, size)
        self.hours = nn.Embedding(24, size)
        self.places = nn.Parameter(torch.zeros(LENGTH, size))
        layer = nn.TransformerEncoderLayer(size, 4, 3 * size, 0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(size, GOODS)

    def forward(self, batch):
        states = self.goods(batch["goods"]) + self.places + self.hours(batch["hour"])[:, None]
        return self.head(self.layers(states).mean(1))


def train(model, loader, optimizer):
    model.train()
    total = 0.0
    for batch in loader:
        loss = nn.functional.cross_entropy(model(batch), batch["next"])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    ranks = []
    for batch in loader:
        scores = model(batch)
        wanted = scores.gather(1, batch["next"][:, None])
        ranks.append((scores > wanted).sum(1))
    return 1 / (1 + torch.cat(ranks).float()).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(67)
    shops = ConcatDataset([Shop(count, seed) for seed, count in enumerate((560, 400, 240))])
    order = torch.randperm(len(shops)).tolist()
    train_loader = DataLoader(
        Subset(shops, order[60:]), 24, shuffle=True, num_workers=2, persistent_workers=True
    )
    held_out = DataLoader(Subset(shops, order[:60]), 30)
    model = Shopper()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", 0.5, patience=1)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            loss = train(model, train_loader, optimizer)
            score = validate(model, held_out)
            scheduler.step(score)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, Path(folder, "last.pt"))
            print(f"epoch {epoch}: loss {loss:.4f}, score {score:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
