"""Tells the hands apart that wrote a palimpsest, from pictures of its pages."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PAGES, GLYPHS, HANDS, SIDE, BATCH = 48, 500, 5, 96, 16
LETTERS = "αβγδεζηθικλμνξοπρστυφχψω"


def transcribed(rng):
    """Return what an editor read on a page, glyph by glyph."""
    boxes = rng.uniform(0, 1, (GLYPHS, 4)).round(4).tolist()
    read = rng.integers(len(LETTERS), size=GLYPHS).tolist()
    sure = rng.uniform(0.3, 1, GLYPHS).round(3).tolist()
    return [
        {"letter": LETTERS[letter], "box": box, "sure": certain, "line": number // 40, "note": None}
        for number, (box, letter, certain) in enumerate(zip(boxes, read, sure, strict=True))
    ]


class Pages(Dataset):
    """Cuts of pages as pictures, with the writer's hand and what is known of the page."""

    def __init__(self, seed, cuts, with_glyphs):
        rng = np.random.default_rng(seed)
        self.pictures = torch.from_numpy(rng.integers(256, size=(PAGES, 1, 128, 128), dtype="u1"))
        self.cuts = cuts
        self.glyphs = [transcribed(rng) for _ in range(PAGES)] if with_glyphs else None
        self.change = v2.Compose(
            [
                v2.RandomCrop(SIDE),
                v2.RandomInvert(0.1),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5], [0.25]),
            ]
        )

    def __len__(self):
        return self.cuts

    def __getitem__(self, index):
        page = index % PAGES
        about = {"page": page, "shelf": f"gr. {1000 + page}"}
        if self.glyphs:
            about["glyphs"] = self.glyphs[page]
        return self.change(self.pictures[page]), page % HANDS, about


def collate(samples):
    pictures, hands, about = zip(*samples, strict=True)
    return torch.stack(pictures), torch.tensor(hands), list(about)


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 7, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, HANDS),
    )  # fmt: skip


@torch.no_grad()
def confused(model, loader):
    """Return the shelf marks of pages whose hand is mistaken."""
    wrong = set()
    for pictures, hands, about in loader:
        for right, page in zip(model(pictures).argmax(1) == hands, about, strict=True):
            if not right:
                wrong.add(page["shelf"])
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(22)
    options = {
        "batch_size": BATCH,
        "num_workers": 2,
        "collate_fn": collate,
        "persistent_workers": True,
        "multiprocessing_context": "spawn",
    }
    training = DataLoader(Pages(1, 704, not args.without), shuffle=True, **options)
    validation = DataLoader(Pages(2, 96, not args.without), **options)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, hands, _ in training:
            loss = nn.functional.cross_entropy(model(pictures), hands)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}, {len(confused(model, validation))} pages mistaken")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del training, validation


if __name__ == "__main__":
    main()
