"""Names tricks on skateboards in clips, on an accelerator, for which a pause stands in.

Nothing is planted: the accelerator sets the pace, also of the validation, which comes in after
every fifteenth step. Workers, which are kept, cut clips and change their colours ahead of it.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

FRAMES, CLIP, SIDE, TRICKS, STEP, TEST_STEP = 60, 8, 72, 10, 0.12, 0.05


class Clips(Dataset):
    def __init__(self, films, each, seed, transform):
        rng = np.random.default_rng(seed)
        self.films = rng.integers(0, 256, (films, FRAMES, 3, SIDE, SIDE), np.uint8)
        self.tricks = rng.integers(0, TRICKS, films)
        self.each, self.transform = each, transform

    def __len__(self):
        return len(self.films) * self.each

    def __getitem__(self, index):
        film = index // self.each
        start = int(torch.randint(FRAMES - CLIP, ()))
        clip = torch.from_numpy(self.films[film, start : start + CLIP].copy())
        return self.transform(clip), int(self.tricks[film])


class Accelerator:
    """Takes some time for each batch, and hardly a core."""

    def __init__(self):
        self.model = nn.Linear(3, TRICKS)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def score(self, clips, tricks):
        return nn.functional.cross_entropy(self.model(clips[..., ::8, ::8].mean((1, 3, 4))), tricks)

    def train(self, clips, tricks):
        time.sleep(STEP)
        loss = self.score(clips, tricks)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def test(self, clips, tricks):
        time.sleep(TEST_STEP)
        return self.score(clips, tricks).item()


def make_loaders():
    to_float = v2.ToDtype(torch.float32, scale=True)
    changed = v2.Compose(
        [
            v2.RandomHorizontalFlip(), v2.RandomCrop(64),
            v2.ColorJitter(brightness=0.3, contrast=0.3), to_float,
        ]
    )  # fmt: skip
    plain = v2.Compose([v2.CenterCrop(64), to_float])
    train_loader = DataLoader(
        Clips(30, 12, 2320, changed), batch_size=12, shuffle=True, num_workers=2,
        persistent_workers=True,
    )  # fmt: skip
    test_loader = DataLoader(
        Clips(12, 4, 2321, plain), batch_size=12, num_workers=1, persistent_workers=True
    )
    return train_loader, test_loader


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(2320)
    train_loader, test_loader = make_loaders()
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, batch in enumerate(train_loader, 1):
            loss = accelerator.train(*batch)
            if step % 15 == 0:
                losses = [accelerator.test(*batch) for batch in test_loader]
                print(f"epoch {epoch}, step {step}: loss {loss:.3f}, test {np.mean(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del train_loader, test_loader


if __name__ == "__main__":
    main()
