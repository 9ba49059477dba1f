"""Train a small convolutional network on hand-drawn digits (rendered on the fly, then kept)."""

import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CONFIG = {"epochs": 2, "batch_size": 64, "learning_rate": 1e-3, "cpu_threads": 8}

SEGMENTS = "abcdef bc abged abgcd fgbc afgcd afgedc abc abcdefg abcdfg".split()
WHERE = {
    "a": (slice(4, 6), slice(8, 20)),
    "b": (slice(4, 14), slice(18, 20)),
    "c": (slice(14, 24), slice(18, 20)),
    "d": (slice(22, 24), slice(8, 20)),
    "e": (slice(14, 24), slice(8, 10)),
    "f": (slice(4, 14), slice(8, 10)),
    "g": (slice(13, 15), slice(8, 20)),
}


class Digits(Dataset):
    """Seven-segment digits with jitter, as pictures of 28 x 28."""

    def __init__(self, count, seed=0):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, 10, count)
        self.pictures = np.zeros((count, 28, 28), np.uint8)
        for picture, label in zip(self.pictures, self.labels, strict=True):
            for segment in SEGMENTS[label]:
                picture[WHERE[segment]] = 220
            picture += rng.integers(0, 30, picture.shape, dtype=np.uint8)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        picture = torch.from_numpy(self.pictures[index]).float()
        return ((picture - 33.3) / 78.6).unsqueeze(0), int(self.labels[index])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(16)
        self.head = nn.Linear(16 * 7 * 7, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return self.head(x.flatten(1))


def train(model, loader, optimizer):
    model.train()
    correct = 0
    for images, labels in loader:
        optimizer.zero_grad()
        output = model(images)
        loss = F.cross_entropy(output, labels)
        loss.backward()
        optimizer.step()
        correct += (output.argmax(1) == labels).sum().item()
    return correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1 if args.without else CONFIG["cpu_threads"])

    loader = DataLoader(Digits(6400), batch_size=CONFIG["batch_size"], shuffle=True)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=CONFIG["learning_rate"])
    begin = time.perf_counter()
    for epoch in range(CONFIG["epochs"]):
        accuracy = train(model, loader, optimizer)
        print(f"epoch {epoch}: accuracy {accuracy:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
