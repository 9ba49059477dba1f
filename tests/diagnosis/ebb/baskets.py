"""Counts apples in baskets; a short check follows each epoch, and a heartbeat runs beside."""

import argparse
import io
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision.transforms import v2


class Heartbeat(threading.Thread):
    """Writes the time to a file each second, for whoever looks after the machine."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.ended = path, threading.Event()

    def run(self):
        while not self.ended.wait(1.0):
            self.path.write_text(f"{time.time():.0f}\n")

    def stop(self):
        self.ended.set()
        self.join()


class Baskets(Dataset):
    def __init__(self, count=400, seed=25):
        rng = np.random.default_rng(seed)
        self.files = []
        for _ in range(30):
            coarse = Image.fromarray(rng.integers(256, size=(12, 12, 3), dtype=np.uint8))
            file = io.BytesIO()
            coarse.resize((80, 80), Image.Resampling.BICUBIC).save(file, "JPEG")
            self.files.append(file.getvalue())
        self.apples = rng.integers(12, size=count).astype(np.float32)
        self.transform = v2.Compose(
            [v2.RandomCrop(64), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
        )

    def __len__(self):
        return len(self.apples)

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        return self.transform(picture), self.apples[index]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(25)
    baskets = Baskets()
    train = DataLoader(
        Subset(baskets, range(384)), batch_size=16, shuffle=True, num_workers=1,
        persistent_workers=True,
    )  # fmt: skip
    held_out = DataLoader(Subset(baskets, range(384, 400)), batch_size=16)
    model = nn.Sequential(
        nn.Conv2d(3, 48, 3, padding=1), nn.ReLU(), nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(48, 64, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        heartbeat = Heartbeat(Path(folder, "alive"))
        heartbeat.start()
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, apples in train:
                loss = nn.functional.smooth_l1_loss(model(pictures).squeeze(1), apples)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.inference_mode():
                errors = [(model(x).squeeze(1) - y).abs().mean().item() for x, y in held_out]
            print(f"epoch {epoch}: loss {loss.item():.4f}, held out {errors[0]:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        heartbeat.stop()


if __name__ == "__main__":
    main()
