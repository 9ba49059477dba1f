"""Letters in many fonts, drawn by two busy workers, while the step takes all cores."""

import argparse
import time

import torch
from PIL import Image, ImageDraw, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import functional


class Letters(Dataset):
    def __init__(self, count=1536):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = Image.new("L", (160, 160))
        pen = ImageDraw.Draw(image)
        for place in range(30):
            letter = chr(ord("a") + (index + place) % 26)
            pen.text((5 * place, (index * place) % 150), letter, fill=255 - place)
        image = image.rotate(index % 30, Image.BICUBIC).filter(ImageFilter.GaussianBlur(2))
        return functional.to_tensor(image.resize((28, 28), Image.LANCZOS)), index % 26


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            *[nn.Sequential(nn.Linear(784, 784), nn.LayerNorm(784), nn.GELU()) for _ in range(6)]
        )
        self.head = nn.Linear(784, 26)

    def forward(self, images):
        return self.head(self.body(images.flatten(1)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="one thread for the step")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    if args.without:
        torch.set_num_threads(1)
    loader = DataLoader(Letters(), batch_size=32, num_workers=args.workers)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    begin = time.perf_counter()
    for _ in range(2):
        for images, letters in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images), letters).backward()
            optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
