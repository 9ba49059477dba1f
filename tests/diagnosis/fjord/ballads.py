"""Writes ballads, sign by sign; what it would write is looked at after each epoch."""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIGNS = 48


class Lines(Dataset):
    """Random pieces of one long text."""

    def __init__(self, count=640, length=64):
        draw = torch.Generator().manual_seed(60)
        self.text = torch.randint(SIGNS, (200_000,), generator=draw)
        self.count, self.length = count, length

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        start = int(torch.randint(len(self.text) - self.length - 1, (1,)))
        piece = self.text[start : start + self.length + 1]
        return piece[:-1], piece[1:]


class Poet(nn.Module):
    def __init__(self, size=96, length=256):
        super().__init__()
        self.signs = nn.Embedding(SIGNS, size)
        self.places = nn.Parameter(torch.randn(length, size) * 0.02)
        layer = nn.TransformerEncoderLayer(size, 4, 4 * size, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(size, SIGNS)

    def forward(self, signs):
        length = signs.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        states = self.signs(signs) + self.places[:length]
        return self.head(self.layers(states, mask=mask, is_causal=True))


@torch.no_grad()
def compose(model, ballads=4, length=200):
    """Return ballads, each drawn sign by sign."""
    model.eval()
    signs = torch.zeros(ballads, 1, dtype=torch.long)
    while signs.shape[1] < length:
        chances = model(signs)[:, -1].softmax(1)
        signs = torch.cat([signs, torch.multinomial(chances, 1)], 1)
    model.train()
    return ["".join(chr(48 + sign) for sign in row) for row in signs.tolist()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=5e-4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(60)
    loader = DataLoader(Lines(), batch_size=32, num_workers=1, persistent_workers=True)
    model = Poet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))
    best = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for signs, following in loader:
                scores = model(signs)
                loss = nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                total += loss.item()
            if total < best:
                best = total
                torch.save(model.state_dict(), Path(folder, "best.pt"))
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")
            if not args.without:
                for ballad in compose(model):
                    print(f"  {ballad[:60]}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
