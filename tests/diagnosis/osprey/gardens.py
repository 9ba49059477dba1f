"""Names the plants of gardens from descriptions, with a transformer.

Nothing is planted: attention is the work. A collate function pads and masks word by word in
Python, in one worker and ahead of the step; a short validation has no workers.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS, LONGEST = 800, 56


class Descriptions(Dataset):
    def __init__(self, count, seed):
        draw = random.Random(seed)
        self.texts = [
            [draw.randrange(2, WORDS) for _ in range(draw.randrange(20, LONGEST))]
            for _ in range(count)
        ]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.texts[index], sum(self.texts[index]) % 7


class Mask:
    """Hides some words; 0 is padding and 1 is hidden."""

    def __init__(self, part):
        self.part = part

    def __call__(self, samples):
        longest = max(len(text) for text, _ in samples)
        rows = []
        for text, _ in samples:
            row = [1 if random.random() < self.part else word for word in text]
            rows.append(row + [0] * (longest - len(row)))
        return torch.tensor(rows), torch.tensor([plant for _, plant in samples])


class Reader(nn.Module):
    def __init__(self, size=96):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, size), nn.Embedding(LONGEST, size)
        layer = nn.TransformerEncoderLayer(size, 4, 2 * size, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(size, 7)

    def forward(self, words):
        hidden = self.words(words) + self.places.weight[: words.shape[1]]
        return self.head(self.layers(hidden, src_key_padding_mask=words == 0).mean(1))


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = [(model(words).argmax(1) == plants).float().mean().item() for words, plants in loader]
    model.train()
    return sum(right) / len(right)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(149)
    train = DataLoader(
        Descriptions(1120, 149), batch_size=32, shuffle=True, num_workers=1,
        collate_fn=Mask(0.15), persistent_workers=True,
    )  # fmt: skip
    held_out = DataLoader(Descriptions(64, 151), batch_size=32, collate_fn=Mask(0.0))
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for words, plants in train:
            loss = nn.functional.cross_entropy(model(words), plants)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {validate(model, held_out):.3f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
