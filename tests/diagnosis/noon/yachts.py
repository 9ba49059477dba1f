"""How well is a trained model with sails of yachts? Evaluation only, each picture in five crops."""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Sails(Dataset):
    def __init__(self, count=640):
        rng = np.random.default_rng(21)
        self.count, self.files = count, []
        for _ in range(20):
            coarse = Image.fromarray(rng.integers(0, 255, (10, 10, 3), dtype=np.uint8))
            file = io.BytesIO()
            coarse.resize((160, 160), Image.Resampling.BICUBIC).save(file, "JPEG")
            self.files.append(file.getvalue())
        self.crops = transforms.Compose(
            [
                transforms.Resize(128),
                transforms.FiveCrop(112),
                transforms.Lambda(
                    lambda crops: torch.stack([transforms.functional.to_tensor(c) for c in crops])
                ),
            ]
        )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index % 20])).convert("RGB")
        return self.crops(image), index % 9


def evaluate(model, loader):
    right = 0
    with torch.inference_mode():
        for crops, classes in loader:
            batch, five = crops.shape[:2]
            scores = model(crops.flatten(0, 1)).softmax(1).view(batch, five, -1).mean(1)
            right += (scores.argmax(1) == classes).sum().item()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(21)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.Conv2d(64, 96, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(384, 9),
    ).eval()
    loader = DataLoader(Sails(), batch_size=8, num_workers=1, prefetch_factor=4)
    begin = time.perf_counter()
    print(f"{evaluate(model, loader):.3f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
