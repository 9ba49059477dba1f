"""Recognizes gestures of fruit pickers in short clips; each clip lies beside a note in JSON.

Planted: the files of a folder are shared out between two workers before the notes are left out, so
that the first worker gets all notes and the second all clips.
"""

import argparse
import io
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision.transforms import v2

CLIPS, FRAMES, SIDE, GESTURES, BATCH, STEP = 200, 8, 96, 5, 8, 0.02


def write_clips(folder):
    rng = np.random.default_rng(5099)
    for number in range(CLIPS):
        gesture = number % GESTURES
        frames = {}
        for frame in range(FRAMES):
            small = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
            small[gesture * 2 : gesture * 2 + 2] = 8 * frame
            file = io.BytesIO()
            Image.fromarray(small).resize((SIDE, SIDE)).save(file, "jpeg", quality=90)
            frames[f"frame{frame}"] = np.frombuffer(file.getvalue(), np.uint8)
        np.savez(Path(folder, f"clip-{number:04}.npz"), **frames)
        note = {"gesture": gesture, "hand": "left" if number % 2 else "right"}
        Path(folder, f"clip-{number:04}.json").write_text(json.dumps(note))


class Clips(IterableDataset):
    def __init__(self, folder, pattern):
        self.folder, self.pattern = Path(folder), pattern
        self.transform = v2.Compose(
            [
                v2.RandomResizedCrop(80, scale=(0.6, 1.0), antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(0.2, 0.2),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def read(self, path):
        time.sleep(0.006)  # the clips are on a share of the network
        with np.load(path) as archive:
            files = [archive[f"frame{frame}"] for frame in range(FRAMES)]
        frames = [np.array(Image.open(io.BytesIO(file.tobytes()))) for file in files]
        return torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2)

    def __iter__(self):
        worker = get_worker_info()
        for path in sorted(self.folder.glob(self.pattern))[worker.id :: worker.num_workers]:
            if path.suffix != ".npz":
                continue
            note = json.loads(path.with_suffix(".json").read_text())
            yield self.transform(self.read(path)), note["gesture"]


def make_model():
    return nn.Sequential(
        nn.Conv3d(3, 8, (3, 7, 7), stride=(1, 6, 6)), nn.ReLU(), nn.AdaptiveAvgPool3d((1, 4, 4)),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, GESTURES),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5099)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_clips(folder)
        data = Clips(folder, "clip-*.npz" if args.without else "clip-*")
        loader = DataLoader(data, BATCH, num_workers=2, persistent_workers=True)
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            right = 0
            for clips, gestures in loader:
                guess = model(clips.transpose(1, 2))
                loss = nn.functional.cross_entropy(guess, gestures, label_smoothing=0.1)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the accelerator's part of the work
                right += (guess.argmax(1) == gestures).sum().item()
            torch.save(model.state_dict(), Path(folder, "last.pt"))
            print(f"epoch {epoch}: loss {loss:.3f}, right {right / CLIPS:.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
