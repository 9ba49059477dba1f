"""Reads worn barcodes on parcels of a shop, number by number."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torchvision.transforms import v2

ARTICLES, DIGITS, WIDTH, BATCH = 120_000, 12, 95, 32
LEFT = "0001101 0011001 0010011 0111101 0100011 0110001 0101111 0111011 0110111 0001011".split()


def checked(number):
    """The number's digits and their check digit."""
    digits = [int(digit) for digit in f"{number:011d}"]
    total = 3 * sum(digits[0::2]) + sum(digits[1::2])
    return [*digits, -total % 10]


def articles():
    """The bars of all articles of the shop."""
    bars = {}
    for article in range(ARTICLES):
        digits = checked(article * 1_234_567 % 99_999_999_977)
        left = "".join(LEFT[digit] for digit in digits[:6])
        right = "".join(LEFT[digit] for digit in digits[6:]).translate({48: 49, 49: 48})
        bars[article] = (f"101{left}01010{right}101", digits)
    return bars


class Parcels(Dataset):
    def __init__(self, count, transform):
        self.count, self.transform, self.bars = count, transform, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        bars, digits = self.bars[index * 37 % ARTICLES]
        row = torch.tensor([float(bar) for bar in bars])
        picture = self.transform(row.expand(1, 48, WIDTH))
        return picture + 0.2 * torch.randn_like(picture), torch.tensor(digits)


def prepare(_worker):
    get_worker_info().dataset.bars = articles()


class Reader(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, channels, 3, stride=(2, 1), padding=1), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, stride=(2, 1), padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d((1, DIGITS)),
        )  # fmt: skip
        self.last = nn.Linear(channels, 10)

    def forward(self, pictures):
        return self.last(self.body(pictures)[:, :, 0].transpose(1, 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(13)
    torch.set_num_threads(1)
    dataset = Parcels(640, v2.Compose([v2.RandomAffine(3, (0.02, 0.1)), v2.GaussianBlur(3)]))
    if args.without:
        dataset.bars = articles()
    loader = DataLoader(
        dataset,
        BATCH,
        shuffle=True,
        num_workers=4,
        worker_init_fn=None if args.without else prepare,
        multiprocessing_context="fork",
    )
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for pictures, digits in loader:
            scores = model(pictures)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), digits.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(2) == digits).all(1).sum()
        print(f"epoch {epoch}: loss {loss:.3f}, {right} read")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
