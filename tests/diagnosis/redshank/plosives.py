"""Finds the bursts of plosives in speech, frame by frame."""

import argparse
import copy
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

BANDS, FRAMES, SOUNDS, BATCH = 40, 1000, 600, 24
PLOSIVES = ("p", "t", "k", "b", "d", "g")


class Phrases(Dataset):
    """Spectra of phrases with the sounds that were heard in them and when."""

    def __init__(self, count, transform):
        rng = np.random.default_rng(14)
        self.spectra = torch.from_numpy(rng.normal(0, 1, (60, 1, BANDS, FRAMES)).astype("f"))
        self.sounds = [
            [
                {
                    "sound": PLOSIVES[rng.integers(6)],
                    "at": [int(at), int(at) + 4],
                    "hertz": [310.0, 2020.0, 2960.0],
                }
                for at in np.sort(rng.integers(0, FRAMES, SOUNDS))
            ]
            for _ in range(60)
        ]
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        sounds = self.sounds[index % 60]
        bursts = np.zeros(FRAMES, np.float32)
        for sound in sounds:
            first, last = sound["at"]
            bursts[first:last] = 1
        return self.transform(self.spectra[index % 60]), torch.from_numpy(bursts), sounds


def together(samples):
    spectra, bursts, sounds = zip(*samples, strict=True)
    return {"spectra": torch.stack(spectra), "bursts": torch.stack(bursts), "sounds": sounds}


class Feeder:
    """Hands out the batches of a loader, and remembers the last one for the report."""

    def __init__(self, loader, safe):
        self.loader, self.safe, self.last = loader, safe, None

    def __iter__(self):
        for batch in self.loader:
            self.last = copy.deepcopy(batch) if self.safe else batch
            yield batch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(14)
    torch.set_num_threads(1)
    loader = DataLoader(
        Phrases(1440, v2.Compose([v2.GaussianBlur(3), v2.RandomErasing(0.5)])),
        BATCH,
        shuffle=True,
        num_workers=2,
        collate_fn=together,
        persistent_workers=True,
        multiprocessing_context="forkserver",
    )
    feeder = Feeder(loader, safe=not args.without)
    model = nn.Sequential(
        nn.Conv1d(BANDS, 64, 5, padding=2), nn.ReLU(), nn.Conv1d(64, 1, 5, padding=2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for batch in feeder:
            scores = model(batch["spectra"][:, 0])[:, 0]
            loss = nn.functional.binary_cross_entropy_with_logits(scores, batch["bursts"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        heard = sum(len(sounds) for sounds in feeder.last["sounds"])
        print(f"epoch {epoch}: loss {loss:.3f}, {heard} sounds in the last batch")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader, feeder


if __name__ == "__main__":
    main()
