"""Learns to tag words of old reports on snipes, in sentences of different length.

Planted: the collate function pads sentences as Python lists and builds masks word by word.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS, TAGS, LONGEST, PAD = 3000, 9, 90, 0


class Reports(Dataset):
    """Numbers of words and of their tags."""

    def __init__(self, count):
        rng = np.random.default_rng(157)
        lengths = rng.integers(20, LONGEST, count)
        self.sentences = [rng.integers(1, WORDS, length) for length in lengths]

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, index):
        words = self.sentences[index]
        return words, words % TAGS


def pad_word_by_word(sentences):
    """Pad words and tags, and mask what no word may attend to."""
    longest = max(len(words) for words, _ in sentences)
    batch, labels, masks = [], [], []
    for words, tags in sentences:
        row, row_tags, mask = [], [], []
        for place in range(longest):
            is_word = place < len(words)
            row.append(int(words[place]) if is_word else PAD)
            row_tags.append(int(tags[place]) if is_word else -100)
            mask.append(
                [abs(place - other) > 16 or other >= len(words) for other in range(longest)]
            )
        batch.append(row)
        labels.append(row_tags)
        masks.append(mask)
    return torch.tensor(batch), torch.tensor(labels), torch.tensor(masks)


def pad_at_once(sentences):
    lengths = torch.tensor([len(words) for words, _ in sentences])
    pairs = [map(torch.from_numpy, pair) for pair in zip(*sentences, strict=True)]
    words, tags = (
        nn.utils.rnn.pad_sequence(list(one), batch_first=True, padding_value=value)
        for one, value in zip(pairs, (PAD, -100), strict=True)
    )
    places = torch.arange(words.shape[1])
    far = (places[:, None] - places[None, :]).abs() > 16
    return words, tags, far[None] | (places[None, None, :] >= lengths[:, None, None])


class Tagger(nn.Module):
    def __init__(self, size=32):
        super().__init__()
        self.table = nn.Embedding(WORDS, size, padding_idx=PAD)
        self.query = nn.Linear(size, size)
        self.leave = nn.Linear(size, TAGS)

    def forward(self, words, masks):
        seen = self.table(words)
        scores = self.query(seen) @ seen.transpose(1, 2) / seen.shape[-1] ** 0.5
        weights = scores.masked_fill(masks, -1e4).softmax(-1)
        return self.leave(weights @ seen)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(157)
    collate = pad_at_once if args.without else pad_word_by_word
    loader = DataLoader(
        Reports(3200), batch_size=16, shuffle=True, num_workers=1, collate_fn=collate
    )
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for words, tags, masks in loader:
            scores = model(words, masks)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), tags.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
