"""Drawings of jackdaws by two networks that play against each other."""

import argparse
import time

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

NOISE = 48


class Drawings(Dataset):
    """Drawn when they are asked for."""

    def __init__(self, count=1280):
        self.count = count
        self.transform = v2.Compose(
            [v2.ToImage(), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)]
        )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        image = Image.new("L", (32, 32))
        draw = ImageDraw.Draw(image)
        x, y = rng.integers(6, 20, 2).tolist()
        draw.ellipse((x - 5, y - 4, x + 6, y + 5), fill=200)
        draw.line((x, y, x + 10, y + 4), fill=255, width=2)
        return self.transform(image) * 2 - 1


def networks():
    generator = nn.Sequential(
        nn.Linear(NOISE, 128 * 64),
        nn.Unflatten(1, (128, 8, 8)),
        nn.ReLU(),
        nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(64, 1, 4, stride=2, padding=1),
        nn.Tanh(),
    )
    critic = nn.Sequential(
        nn.Conv2d(1, 64, 4, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(64, 128, 4, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(128 * 64, 1),
    )
    return generator, critic


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(22)
    loader = DataLoader(
        Drawings(), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True
    )
    generator, critic = networks()
    for_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    for_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judge = nn.functional.binary_cross_entropy_with_logits
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for drawings in loader:
            ones, zeros = torch.ones(len(drawings), 1), torch.zeros(len(drawings), 1)
            forged = generator(torch.randn(len(drawings), NOISE))
            found = judge(critic(drawings), ones) + judge(critic(forged.detach()), zeros)
            for_critic.zero_grad()
            found.backward()
            for_critic.step()
            fooled = judge(critic(forged), ones)
            for_generator.zero_grad()
            fooled.backward()
            for_generator.step()
        print(f"epoch {epoch}: critic {found.item():.3f}, generator {fooled.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
