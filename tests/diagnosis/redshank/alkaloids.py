"""Predicts how well alkaloids dissolve, from the letters of their formulas."""

import argparse
import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

LETTERS = "CNOSPFclBrnos()[]=#@+-123456789"
MOLECULES, BATCH = 1280, 32


class Molecules(Dataset):
    """Formulas as numbers of their letters; some letters are hidden on the way."""

    def __init__(self):
        rng = random.Random(21)
        self.formulas = [
            "".join(rng.choices(LETTERS, k=rng.randint(30, 90))) for _ in range(MOLECULES)
        ]
        self.numbers = {letter: number for number, letter in enumerate(LETTERS, 2)}

    def __len__(self):
        return MOLECULES

    def __getitem__(self, index):
        formula = self.formulas[index]
        letters = torch.tensor([self.numbers[letter] for letter in formula])
        letters[torch.rand(len(letters)) < 0.05] = 1
        return letters, formula.count("O") / len(formula) * 10


def padded(samples):
    letters, targets = zip(*samples, strict=True)
    return pad_sequence(letters, batch_first=True), torch.tensor(targets)


class Solubility(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS) + 2, width, padding_idx=0)
        self.gru = nn.GRU(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.last = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, letters):
        seen, _ = self.gru(self.letters(letters))
        there = (letters > 0)[..., None]
        return self.last((seen * there).sum(1) / there.sum(1))[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(21)
    torch.set_num_threads(1)
    loader = DataLoader(
        Molecules(),
        BATCH,
        shuffle=True,
        num_workers=2,
        collate_fn=padded,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = Solubility()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, args.epochs * len(loader))
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for letters, targets in loader:
            loss = nn.functional.mse_loss(model(letters), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
