"""Tells rails from crakes in small pictures, with torchvision's second transforms.

Planted: ElasticTransform warps each picture, which takes most of the time. Beside it, a collate
function mixes the pictures of a batch in a Python loop over their rows (some 10 %).
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2

SIDE = 96


class Pictures(Dataset):
    def __init__(self, count, transform):
        generator = torch.Generator().manual_seed(97)
        shape = (100, 3, SIDE + 16, SIDE + 16)
        self.pictures = torch.randint(0, 255, shape, dtype=torch.uint8, generator=generator)
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = tv_tensors.Image(self.pictures[index % 100])
        return self.transform(picture), index % 2


def build_transform(warp):
    steps = [
        v2.RandomCrop(SIDE),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.5, 0.5, 0.5], [0.25, 0.25, 0.25]),
    ]
    if warp:
        steps.insert(2, v2.ElasticTransform(alpha=60.0, sigma=4.0))
    return v2.Compose(steps)


def mix_rows(samples):
    """Put each second row of the next picture into a picture, and mix their labels."""
    pictures = torch.stack([picture for picture, _ in samples])
    labels = torch.tensor([float(label) for _, label in samples])
    mixed = pictures.clone()
    for number in range(len(samples)):
        following = pictures[(number + 1) % len(samples)]
        for row in range(0, SIDE, 2):
            mixed[number, :, row] = 0.5 * pictures[number, :, row] + 0.5 * following[:, row]
    return mixed, (labels + labels.roll(-1)) / 2


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=4),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 1),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(97)
    pictures = Pictures(560, build_transform(warp=not args.without))
    loader = DataLoader(pictures, batch_size=16, shuffle=True, collate_fn=mix_rows, drop_last=True)
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for batch, kinds in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(batch).squeeze(1), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
