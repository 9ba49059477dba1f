"""Names birds by a feather; gradients of four small batches are added up for each update."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Feathers(Dataset):
    """Pictures of different widths."""

    def __init__(self, count=320, seed=47):
        draw = torch.Generator().manual_seed(seed)
        widths = torch.randint(40, 64, (count,), generator=draw).tolist()
        self.pictures = [torch.rand(3, 64, width, generator=draw) for width in widths]
        self.birds = torch.randint(30, (count,), generator=draw)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.pictures[index], self.birds[index]


def pad(rows):
    """One batch, as wide as its widest picture."""
    width = max(picture.shape[2] for picture, _ in rows)
    pictures = [nn.functional.pad(picture, (0, width - picture.shape[2])) for picture, _ in rows]
    return torch.stack(pictures), torch.stack([bird for _, bird in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(47)
    loader = DataLoader(Feathers(), batch_size=8, shuffle=True, collate_fn=pad)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 30),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for step, (pictures, birds) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(pictures), birds, label_smoothing=0.1)
            (loss / 4).backward()
            if step % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
