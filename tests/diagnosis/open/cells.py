"""Train a microscopy classifier with augmentation from torchvision.transforms.v2."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

parser = argparse.ArgumentParser()
parser.add_argument("--without", action="store_true")
parser.add_argument("--workers", type=int, default=2)
args = parser.parse_args()

torch.manual_seed(0)


class CellDataset(Dataset):
    def __init__(self, count, transform=None):
        self.images = torch.randint(0, 256, (count, 3, 96, 96), dtype=torch.uint8)
        self.labels = torch.randint(0, 4, (count,))
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        image = self.images[idx]
        if self.transform:
            image = self.transform(image)
        return image, self.labels[idx]


steps = [
    v2.RandomHorizontalFlip(),
    v2.RandomVerticalFlip(),
    v2.ElasticTransform(alpha=30.0, sigma=2.0),
    v2.RandomCrop(88),
    v2.ToDtype(torch.float32, scale=True),
    v2.Normalize([0.5, 0.5, 0.5], [0.25, 0.25, 0.25]),
]
if args.without:
    del steps[2]

dataset = CellDataset(384, transform=v2.Compose(steps))
loader = DataLoader(dataset, batch_size=12, shuffle=True, num_workers=args.workers)

start = time.time()
for epoch in range(3):
    seen = 0
    for _images, labels in loader:
        time.sleep(0.012)  # device step
        seen += len(labels)
    print(f"epoch {epoch}: {seen} samples")
print(f"seconds {time.time() - start:.3f}")
