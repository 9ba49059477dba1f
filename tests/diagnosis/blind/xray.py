"""Train on small grey pictures with random augmentation."""

import argparse
import random
import time

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


def salt_and_pepper(picture, share=0.02):
    picture = picture.copy()
    pixels = picture.load()
    for y in range(picture.height):
        for x in range(picture.width):
            chance = random.random()
            if chance < share:
                pixels[x, y] = 0
            elif chance > 1 - share:
                pixels[x, y] = 255
    return picture


def salt_and_pepper_array(picture, share=0.02):
    values = np.array(picture)
    chance = np.random.random(values.shape)
    values[chance < share] = 0
    values[chance > 1 - share] = 255
    return Image.fromarray(values)


class XRays(Dataset):
    def __init__(self, count, transforms):
        rng = np.random.default_rng(0)
        shots = rng.integers(0, 256, (64, 96, 96), dtype=np.uint8)
        self.pictures = [Image.fromarray(shot) for shot in shots]
        self.count = count
        self.transforms = transforms

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transforms(self.pictures[index % 64]), index % 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    chain = transforms.Compose(
        [
            transforms.RandomRotation(10),
            salt_and_pepper_array if args.without else salt_and_pepper,
            transforms.CenterCrop(88),
            transforms.ToTensor(),
        ]
    )
    loader = DataLoader(XRays(9600, chain), batch_size=32, num_workers=args.workers)
    begin = time.perf_counter()
    for _pictures, _labels in loader:
        time.sleep(0.004)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
