"""Learns which fiddle plays which score, from pictures of the one and graphs of the other.

Planted: the collate function of the second loader, which has no workers, writes the edges of each
graph into the matrix of the batch one by one; the pictures, read by workers, are ready in time.
"""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

PAIRS, BATCH, NOTES, WIDTH, STEP, DRIVE = 384, 12, 40, 16, 0.03, 0.003


class Fiddles(Dataset):
    """Pictures on a shared drive."""

    def __init__(self):
        rng = np.random.default_rng(31)
        self.files = []
        for _ in range(32):
            pixels = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(pixels).resize((72, 72)).save(file, "png")
            self.files.append(file.getvalue())
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(64),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def __len__(self):
        return PAIRS

    def __getitem__(self, index):
        time.sleep(DRIVE)
        with Image.open(io.BytesIO(self.files[index % len(self.files)])) as picture:
            return self.transform(picture.convert("RGB"))


class Scores(Dataset):
    """Graphs of the notes of a score."""

    def __init__(self):
        rng = np.random.default_rng(37)
        self.notes = torch.randn(PAIRS, NOTES, WIDTH)
        self.edges = [torch.from_numpy(rng.integers(0, NOTES, (2, 420))) for _ in range(PAIRS)]

    def __len__(self):
        return PAIRS

    def __getitem__(self, index):
        return {"notes": self.notes[index], "edges": self.edges[index]}


def one_graph(scores):
    total = sum(len(score["notes"]) for score in scores)
    beside = torch.zeros(total, total)
    offset = 0
    for score in scores:
        for source, target in score["edges"].t():
            beside[offset + source, offset + target] = 1
        offset += len(score["notes"])
    return torch.cat([score["notes"] for score in scores]), beside


def one_graph_blocks(scores):
    blocks = []
    for score in scores:
        block = torch.zeros(len(score["notes"]), len(score["notes"]))
        block[score["edges"][0], score["edges"][1]] = 1
        blocks.append(block)
    return torch.cat([score["notes"] for score in scores]), torch.block_diag(*blocks)


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.see = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(192, 32))
        self.hear = nn.Linear(WIDTH, 32)

    def forward(self, pictures, notes, beside):
        played = self.hear(beside @ notes).relu()
        return self.see(pictures) @ played.view(len(pictures), NOTES, -1).mean(1).t()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(31)
    torch.set_num_threads(1)
    pictures = DataLoader(Fiddles(), BATCH, num_workers=2, persistent_workers=True)
    collate = one_graph_blocks if args.without else one_graph
    scores = DataLoader(Scores(), BATCH, collate_fn=collate)
    model = Matcher()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for seen, (notes, beside) in zip(pictures, scores, strict=True):
            logits = model(seen, notes, beside)
            loss = nn.functional.cross_entropy(logits, torch.arange(len(logits)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of a larger model on an accelerator
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del pictures, scores


if __name__ == "__main__":
    main()
