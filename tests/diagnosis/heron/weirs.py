"""Sends batches of pictures of fish at weirs to a service that trains on them, and waits for it.

Nothing is planted that lies in the data: the service, which stands for an accelerator elsewhere,
takes 70 ms for a batch, and two workers are ahead of it. Some samples are sharpened, and slow.
"""

import argparse
import threading
import time

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, BATCH = 48, 12


class Fish(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(197)
        small = rng.integers(0, 255, (20, 12, 12, 3), dtype=np.uint8)
        self.pictures = [Image.fromarray(one).resize((SIDE, SIDE)) for one in small]
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = self.pictures[index % 20]
        if index % 40 == 0:  # taken in muddy water
            large = picture.resize((160, 160), Image.BICUBIC)
            large = large.filter(ImageFilter.UnsharpMask(4)).filter(ImageFilter.MedianFilter(3))
            picture = large.resize((SIDE, SIDE))
        array = np.asarray(picture, np.float32) / 255
        return torch.from_numpy(array).permute(2, 0, 1).contiguous(), float(index % 2)


class Service:
    """Trains a small model, and answers after the time of the accelerator."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.model = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Flatten())
        self.model.append(nn.LazyLinear(1))
        self.optimizer = None
        self.answered = threading.Event()
        self.loss = 0.0

    def train(self, pictures, labels):
        self.answered.clear()
        timer = threading.Timer(self.seconds, self.answered.set)
        timer.start()
        found = self.model(pictures).squeeze(1)
        if self.optimizer is None:
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2)
        loss = nn.functional.binary_cross_entropy_with_logits(found, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.answered.wait()
        timer.join()
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(197)
    loader = DataLoader(
        Fish(720), batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True
    )
    service = Service(0.07)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for pictures, labels in loader:
            total += service.train(pictures, labels.float())
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
