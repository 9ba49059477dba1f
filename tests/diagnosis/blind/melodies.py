"""Train a recurrent network on melodies of different lengths."""

import argparse
import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset


class Melodies(Dataset):
    def __init__(self, count):
        rng = random.Random(5)
        self.notes = [
            torch.tensor([rng.randrange(88) for _ in range(rng.randint(30, 80))])
            for _ in range(count)
        ]

    def __len__(self):
        return len(self.notes)

    def __getitem__(self, index):
        return {"notes": self.notes[index], "style": index % 4}


def collate(samples):
    samples.sort(key=lambda sample: len(sample["notes"]), reverse=True)
    return {
        "notes": pad_sequence([sample["notes"] for sample in samples], batch_first=True),
        "lengths": torch.tensor([len(sample["notes"]) for sample in samples]),
        "style": torch.tensor([sample["style"] for sample in samples]),
    }


class StyleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(88, 48)
        self.gru = nn.GRU(48, 112, num_layers=2, batch_first=True)
        self.head = nn.Linear(112, 4)

    def forward(self, notes, lengths):
        packed = pack_padded_sequence(self.embed(notes), lengths, batch_first=True)
        return self.head(self.gru(packed)[1][-1])


class Runner:
    def __init__(self, workers):
        self.model = StyleNet()
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.loader = DataLoader(
            Melodies(600),
            batch_size=20,
            shuffle=True,
            num_workers=workers,
            collate_fn=collate,
            persistent_workers=True,
        )

    def epoch(self):
        for batch in self.loader:
            logits = self.model(batch["notes"], batch["lengths"])
            loss = nn.functional.cross_entropy(logits, batch["style"])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    runner = Runner(args.workers)
    start = time.perf_counter()
    for _ in range(2):
        runner.epoch()
    print(f"seconds {time.perf_counter() - start:.3f}")
