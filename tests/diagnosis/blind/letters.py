"""Train and validate a letter classifier from folders of pictures."""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2


def draw_letters(root, per_letter):
    for letter in "ABCDEF":
        folder = Path(root, letter)
        folder.mkdir(parents=True)
        for number in range(per_letter):
            picture = Image.new("L", (40, 40), 20 + number)
            ImageDraw.Draw(picture).text((10 + number % 12, 14), letter, fill=255)
            picture.save(folder / f"{number}.png")


class Classifier:
    def __init__(self):
        self.net = nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(32, 32, 5, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(512, 6),
        )
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.02)

    def train(self, loader):
        for pictures, letters in loader:
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.net(pictures), letters).backward()
            self.optimizer.step()

    @torch.inference_mode()
    def validate(self, loader):
        hits = [(self.net(pictures).argmax(1) == letters).sum() for pictures, letters in loader]
        return sum(hits).item() / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    transform = v2.Compose(
        [v2.Grayscale(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)],
    )
    with tempfile.TemporaryDirectory() as root:
        draw_letters(f"{root}/train", 56)
        draw_letters(f"{root}/valid", 16)
        options = {"num_workers": args.workers, "persistent_workers": True}
        train = DataLoader(ImageFolder(f"{root}/train", transform), 16, shuffle=True, **options)
        valid = DataLoader(ImageFolder(f"{root}/valid", transform), 32, **options)
        classifier = Classifier()
        begin = time.perf_counter()
        for epoch in range(3):
            classifier.train(train)
            print(f"epoch {epoch} accuracy {classifier.validate(valid):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
