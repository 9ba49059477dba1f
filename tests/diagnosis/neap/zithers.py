"""Transcribes zither music: spectra in, strings out."""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pieces(Dataset):
    """Windows of spectra and the strings that sound."""

    def __init__(self, count=384, frames=60, seed=46):
        draw = torch.Generator().manual_seed(seed)
        self.spectra = torch.rand(count, frames, 80, generator=draw)
        self.strings = (self.spectra[:, :, :32] > 0.7).float()

    def __len__(self):
        return len(self.spectra)

    def __getitem__(self, index):
        return self.spectra[index].log1p(), self.strings[index]


class Transcriber(nn.Module):
    def __init__(self, size=224):
        super().__init__()
        self.recurrent = nn.LSTM(80, size, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * size, 32)

    def forward(self, spectra):
        return self.head(self.recurrent(spectra)[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(46)
    loader = DataLoader(Pieces(), batch_size=16, shuffle=True, num_workers=2)
    model = Transcriber()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log.jsonl").open("w") as log:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (spectra, strings) in enumerate(loader):
                scores = model(spectra)
                loss = nn.functional.binary_cross_entropy_with_logits(scores, strings)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                rate = schedule.get_last_lr()[0]
                print(json.dumps({"step": step, "loss": loss.item(), "rate": rate}), file=log)
                log.flush()
            print(f"epoch {epoch}: last loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
