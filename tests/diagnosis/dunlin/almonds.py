"""Packs several short texts into one sequence and trains a small language model on it.

Planted: the collator builds the mask of each sequence, which keeps its texts apart, element by
element in Python. The batches come from two spawned workers, which are kept.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS, LENGTH = 500, 192


class Packed(Dataset):
    """Sequences of texts, each with the number of the text that a word belongs to."""

    def __init__(self, count, seed=5):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(self.seed + index)
        cuts = np.sort(rng.integers(8, LENGTH - 8, 4))
        return {
            "words": rng.integers(1, WORDS, LENGTH).tolist(),
            "text": np.searchsorted(cuts, np.arange(LENGTH), side="right").tolist(),
        }


class Collator:
    """Makes tensors of words, and of what each word may look at."""

    def __init__(self, by_element):
        self.by_element = by_element

    def mask_of(self, text):
        mask = []
        for row, mine in enumerate(text):
            mask.append([])
            for column, other in enumerate(text):
                seen = column <= row and mine == other
                mask[row].append(0.0 if seen else float("-inf"))
        return torch.tensor(mask)

    def masks_of(self, texts):
        same = texts[:, :, None] == texts[:, None, :]
        hidden = ~(same & torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril())
        return torch.zeros(hidden.shape).masked_fill_(hidden, float("-inf"))

    def __call__(self, samples):
        words = torch.tensor([sample["words"] for sample in samples])
        if self.by_element:
            masks = torch.stack([self.mask_of(sample["text"]) for sample in samples])
        else:
            masks = self.masks_of(torch.tensor([sample["text"] for sample in samples]))
        return words, masks[:, None]


class Tiny(nn.Module):
    def __init__(self, width=48, heads=2):
        super().__init__()
        self.heads, self.words = heads, nn.Embedding(WORDS, width)
        self.mixed, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.out = nn.Linear(width, WORDS)

    def forward(self, words, mask):
        x = self.words(words)
        parts = self.mixed(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask)
        return self.out(x + self.joined(seen.transpose(1, 2).flatten(2)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(5)
    loader = DataLoader(
        Packed(960),
        batch_size=12,
        shuffle=True,
        num_workers=2,
        collate_fn=Collator(by_element=not args.without),
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    model = Tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for words, mask in loader:
            out = model(words, mask)[:, :-1]
            loss = nn.functional.cross_entropy(out.flatten(0, 1), words[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
