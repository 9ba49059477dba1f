"""Grades the singing of contraltos, from spectrograms of the notes of each song."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SONGS, NOTES, BINS, BATCH, STEP = 880, (8, 16), 48, 16, 0.015


class Songs(Dataset):
    """A song is as many spectrograms as it has notes, each as long as the note was held."""

    def __init__(self, seed, songs):
        rng = np.random.default_rng(seed)
        self.held = [rng.integers(6, 40, size=rng.integers(*NOTES)) for _ in range(songs)]
        self.voice = torch.from_numpy(rng.gamma(2, 1, (BINS, 4000)).astype(np.float32))
        self.change = transforms.Compose(
            [transforms.Normalize([2.0], [1.4]), transforms.RandomErasing(0.2, (0.02, 0.1))]
        )

    def __len__(self):
        return len(self.held)

    def __getitem__(self, index):
        start, notes = index * 7 % 3000, []
        for held in self.held[index].tolist():
            note = self.change(self.voice[None, :, start : start + held])[0]
            notes.append(note.t().contiguous())
            start += held
        return notes, index % 10 / 10


class Notes:
    """Gathers the notes of all songs: as they are, or end to end in one tensor."""

    def __init__(self, end_to_end):
        self.end_to_end = end_to_end

    def __call__(self, samples):
        notes = [note for song, _ in samples for note in song]
        counts = [len(song) for song, _ in samples]
        grades = torch.tensor([grade for _, grade in samples])
        if not self.end_to_end:
            return notes, counts, grades
        return (torch.cat(notes), [len(note) for note in notes]), counts, grades


class Ear(nn.Module):
    def __init__(self):
        super().__init__()
        self.note = nn.Sequential(nn.Conv1d(BINS, 32, 5, stride=3), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, notes, counts):
        if isinstance(notes, tuple):
            notes = notes[0].split(notes[1])
        padded = nn.utils.rnn.pad_sequence(list(notes), batch_first=True)
        heard = self.note(padded.transpose(1, 2)).amax(2)
        songs = torch.stack([song.mean(0) for song in heard.split(counts)])
        return self.head(songs)[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(39)
    torch.set_num_threads(1)
    options = {
        "batch_size": BATCH,
        "num_workers": 2,
        "collate_fn": Notes(args.without),
        "persistent_workers": True,
        "multiprocessing_context": "forkserver",
    }
    training = DataLoader(Songs(1, SONGS), shuffle=True, **options)
    validation = DataLoader(Songs(2, SONGS // 5), **options)
    model = Ear()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for notes, counts, grades in training:
            loss = nn.functional.mse_loss(model(notes, counts), grades)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the accelerator's work
        with torch.no_grad():
            off = [(model(notes, counts) - grades).abs() for notes, counts, grades in validation]
        print(f"epoch {epoch}: loss {loss:.3f}, off by {torch.cat(off).mean():.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del training, validation


if __name__ == "__main__":
    main()
