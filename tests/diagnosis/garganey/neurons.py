"""Tells stages of sleep apart by what the neurons of a night have been heard to do."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

NIGHT, HELD, CHANNELS, TIMES, STAGES, BATCH = 1280, 400, 16, 512, 5, 16


class Waves(Dataset):
    """Half a minute of a night each, as a picture of electrodes by time."""

    def __init__(self, count, seed, transform):
        generator = torch.Generator().manual_seed(seed)
        self.waves = torch.randn(count, 1, CHANNELS, TIMES, generator=generator)
        self.stages = torch.randint(STAGES, (count,), generator=generator)
        self.transform = transform

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, index):
        return self.transform(self.waves[index])[0], self.stages[index]


class Sleep(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(CHANNELS, width, 7, padding=3), nn.ReLU())
        self.body = nn.Sequential(
            nn.Conv1d(width, width, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(width, 2 * width, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(4),
        )  # fmt: skip
        self.last = nn.Linear(8 * width, STAGES)

    def forward(self, waves):
        return self.last(self.body(self.first(waves)).flatten(1))


@torch.no_grad()
def score(model, loader):
    """How much of the held-out nights is right."""
    model.eval()
    right = sum((model(waves).argmax(1) == stages).sum().item() for waves, stages in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(52)
    train = Waves(NIGHT, 52, v2.Compose([v2.Normalize([0.0], [1.2]), v2.RandomErasing(0.4)]))
    held = Waves(HELD, 53, v2.Normalize([0.0], [1.2]))
    loader = DataLoader(train, BATCH, shuffle=True)
    held_loader = DataLoader(held, 4 * BATCH)
    model = Sleep()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    every = len(loader) if args.without else 4
    best, steps = 0.0, 0
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for waves, stages in loader:
            loss = nn.functional.cross_entropy(model(waves), stages)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps % every == 0:
                best = max(best, score(model, held_loader))
        print(f"epoch {epoch}: loss {loss:.3f}, best {best:.0%}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
