"""Writes sayings like those in old almanacs, letter by letter, with a small transformer.

Nothing planted: the transformer, on the processor, is the work; windows of one text in memory are
cut in the main process, and each step writes a line to a log.
"""

import argparse
import json
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONTEXT, WIDTH, BATCH, STEPS = 96, 160, 16, 60
SAYINGS = (
    "rain on the seventh makes hay in the barn",
    "when the rooster crows on the dung hill the weather will change or stay as it is",
    "a cool wet may fills the farmer's barn and cask",
)


class Letters(Dataset):
    def __init__(self, text):
        self.letters = sorted(set(text))
        number = {letter: place for place, letter in enumerate(self.letters)}
        self.text = torch.tensor([number[letter] for letter in text])

    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, index):
        start = index * 37 % (len(self.text) - CONTEXT - 1)
        window = self.text[start : start + CONTEXT + 1]
        return window[:-1], window[1:]


class Writer(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, letters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, window):
        seen = self.letter(window) + self.place.weight
        return self.out(self.layers(seen, mask=self.mask, is_causal=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(337)
    torch.set_num_threads(1)
    data = Letters("\n".join(SAYINGS * 60))
    loader = DataLoader(data, BATCH, shuffle=True)
    model = Writer(len(data.letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    with tempfile.TemporaryFile("w") as log:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (window, after) in enumerate(loader):
                loss = nn.functional.cross_entropy(model(window).flatten(0, 1), after.flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                log.write(json.dumps({"epoch": epoch, "step": step, "loss": loss.item()}) + "\n")
                log.flush()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
