"""Train a tiny generative adversarial network."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self, count=2048):
        generator = torch.Generator().manual_seed(0)
        self.digits = torch.rand(count, 1, 16, 16, generator=generator)

    def __len__(self):
        return len(self.digits)

    def __getitem__(self, index):
        return self.digits[index] * 2 - 1


def endless(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=80)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    generator = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 256), nn.Tanh())
    critic = nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.LeakyReLU(), nn.Linear(128, 1))
    g_optimizer = torch.optim.Adam(generator.parameters(), 2e-4)
    c_optimizer = torch.optim.Adam(critic.parameters(), 2e-4)
    loader = DataLoader(Digits(), batch_size=32, shuffle=True, num_workers=args.workers)

    begin = time.perf_counter()
    stream = endless(loader)
    for _ in range(args.steps):
        real = next(stream) if args.without else next(iter(loader))
        fake = generator(torch.randn(len(real), 16))
        loss = critic(fake.detach()).mean() - critic(real).mean()
        c_optimizer.zero_grad()
        loss.backward()
        c_optimizer.step()
        loss = -critic(fake).mean()
        g_optimizer.zero_grad()
        loss.backward()
        g_optimizer.step()
        time.sleep(0.010)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
