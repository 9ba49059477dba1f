"""Classes seaweeds by their spectra, each of which comes with notes on its measurement.

Planted: each batch carries the notes of all points of its spectra, over a hundred thousand small
dictionaries that a worker pickles and the main process unpickles; only the names are printed.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEAWEEDS, POINTS, CLASSES, BATCH, STEP = 384, 7000, 4, 16, 0.04


class Spectra(Dataset):
    def __init__(self):
        rng = np.random.default_rng(1049)
        self.spectra = rng.gamma(2.0, 1.0, (64, POINTS)).astype(np.float32)
        self.notes = [
            [
                {"nm": 350 + 0.1 * point, "gain": point % 7, "dark": 0.01 * point, "lamp": lamp}
                for point in range(POINTS)
            ]
            for lamp in range(8)
        ]

    def __len__(self):
        return SEAWEEDS

    def __getitem__(self, index):
        spectrum = self.spectra[index % len(self.spectra)]
        spectrum = spectrum / np.median(spectrum)
        smooth = np.convolve(spectrum, np.hanning(11) / 5, mode="same").astype(np.float32)
        notes = self.notes[index % len(self.notes)]
        points = [dict(note) for note in notes]
        return torch.from_numpy(smooth), index % CLASSES, f"seaweed {index}", points


def with_notes(samples):
    spectra, classes, names, notes = zip(*samples, strict=True)
    about = [{"name": name, "points": points} for name, points in zip(names, notes, strict=True)]
    return torch.stack(spectra), torch.tensor(classes), about


def with_names(samples):
    spectra, classes, names, _ = zip(*samples, strict=True)
    return torch.stack(spectra), torch.tensor(classes), [{"name": name} for name in names]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(1049)
    torch.set_num_threads(1)
    loader = DataLoader(
        Spectra(),
        BATCH,
        shuffle=True,
        num_workers=2,
        collate_fn=with_names if args.without else with_notes,
        persistent_workers=True,
        pin_memory=torch.cuda.is_available(),
    )
    model = nn.Sequential(nn.Linear(POINTS, 64), nn.ReLU(), nn.Dropout(0.2))
    model.append(nn.Linear(64, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (spectra, classes, about) in enumerate(loader, 1):
                loss = nn.functional.cross_entropy(model(spectra), classes)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of a transformer on a card
                if step % 8 == 0:
                    print(f"epoch {epoch} {step}: loss {loss:.3f}, last {about[-1]['name']}")
            torch.save(model.state_dict(), Path(folder, f"{epoch}.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()
