"""Passengers of trams on camera: one process of a distributed training, gradients accumulated."""

import argparse
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Trams(Dataset):
    def __init__(self, count=512):
        generator = torch.Generator().manual_seed(48)
        self.frames = torch.randint(
            0, 256, (count, 3, 64, 64), dtype=torch.uint8, generator=generator
        )

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, index):
        frame = self.frames[index].float() / 255
        if torch.rand(()) < 0.5:
            frame = frame.flip(2)
        return frame, frame.mean((1, 2))[:1] * 10


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="nothing to leave out")
    parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(48)
    with tempfile.TemporaryDirectory() as folder:
        address = f"file://{Path(folder) / 'meeting'}"
        dist.init_process_group("gloo", init_method=address, rank=0, world_size=1)
        data = Trams()
        sampler = DistributedSampler(data)
        loader = DataLoader(
            data, batch_size=16, sampler=sampler, num_workers=1, persistent_workers=True
        )
        model = DistributedDataParallel(
            nn.Sequential(
                nn.Conv2d(3, 32, 5, stride=2, padding=2),
                nn.BatchNorm2d(32),
                nn.ReLU(),
                nn.Conv2d(32, 64, 5, padding=2),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(2),
                nn.Flatten(),
                nn.Linear(256, 1),
            )
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        begin = time.perf_counter()
        for epoch in range(4):
            sampler.set_epoch(epoch)
            for step, (frames, passengers) in enumerate(loader, 1):
                with model.no_sync() if step % 2 else nullcontext():
                    loss = nn.functional.mse_loss(model(frames), passengers) / 2
                    loss.backward()
                if step % 2 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
            print(f"epoch {epoch}: loss {2 * loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
