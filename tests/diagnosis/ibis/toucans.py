"""Looks for toucans in pictures of camera traps, which a manifest lists.

Planted: the manifest of all cameras, a JSON file of half a megabyte, is read and parsed again for
each picture, to look one entry up.
"""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

PICTURES, LISTED, SIDE, BATCH, STEP = 240, 5_000, 80, 16, 0.05


def write(folder):
    rng = np.random.default_rng(887)
    draw = random.Random(887)
    for number in range(24):
        small = rng.integers(0, 256, (8, 10, 3), dtype=np.uint8)
        Image.fromarray(small).resize((120, 96)).save(Path(folder, f"{number:02}.jpg"))
    manifest = {
        f"trap-{number:05}": {
            "file": f"{number % 24:02}.jpg",
            "toucan": number % 3 == 0,
            "camera": f"C{draw.randrange(80):02}",
            "box": [draw.randrange(20), draw.randrange(16), 90, 80],
            "battery": round(draw.random(), 3),
        }
        for number in range(LISTED)
    }
    Path(folder, "manifest.json").write_text(json.dumps(manifest))


class Manifest:
    def __init__(self, path, keep):
        self.path, self.keep, self.kept = path, keep, None

    def entry(self, key):
        if self.kept is not None:
            return self.kept[key]
        entries = json.loads(self.path.read_text())
        if self.keep:
            self.kept = entries
        return entries[key]


class Traps(Dataset):
    def __init__(self, folder, keep):
        self.folder = Path(folder)
        self.manifest = Manifest(self.folder / "manifest.json", keep)
        self.transform = transforms.Compose(
            [
                transforms.Resize((SIDE, SIDE)),
                transforms.RandomHorizontalFlip(),
                transforms.ColorJitter(0.3, 0.3),
                transforms.ToTensor(),
            ]
        )

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        entry = self.manifest.entry(f"trap-{index * 20:05}")
        with Image.open(self.folder / entry["file"]) as picture:
            cut = picture.convert("RGB").crop(entry["box"])
        return self.transform(cut), float(entry["toucan"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 8, 7, stride=4)
        self.out = nn.Linear(8, 1)

    def forward(self, pictures):
        time.sleep(STEP)  # in place of a large backbone
        return self.out(torch.relu(self.features(pictures)).mean((2, 3))).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(887)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        data = Traps(folder, keep=args.without)
        loader = DataLoader(data, BATCH, shuffle=True, num_workers=2, persistent_workers=True)
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, found in loader:
                scores = model(pictures)
                loss = nn.functional.binary_cross_entropy_with_logits(scores, found.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()
