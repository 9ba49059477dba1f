"""Learns how marionettes move from the threads that are pulled, with a recurrent network.

Nothing planted: the recurrent network, on the processor, is the work; one worker puts windows of
plays together in Python ahead of it, and each epoch ends with a short check and a checkpoint.
"""

import argparse
import math
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

THREADS, JOINTS, FRAMES, BATCH = 9, 14, 48, 32


class Plays(Dataset):
    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.plays = [
            {"threads": [rng.uniform(0.5, 2) for _ in range(THREADS)], "mood": rng.random()}
            for _ in range(count)
        ]

    def __len__(self):
        return len(self.plays)

    def __getitem__(self, index):
        play = self.plays[index]
        pulled = [
            [math.sin(speed * frame / 6 + play["mood"]) for speed in play["threads"]]
            for frame in range(FRAMES)
        ]
        joints = [[sum(now[:3]) / 3] * JOINTS for now in pulled]
        return torch.tensor(pulled), torch.tensor(joints)


class Puppet(nn.Module):
    def __init__(self, width=384):
        super().__init__()
        self.memory = nn.LSTM(THREADS, width, num_layers=2, batch_first=True)
        self.pose = nn.Linear(width, JOINTS)

    def forward(self, pulled):
        states, _ = self.memory(pulled)
        return self.pose(states)


@torch.no_grad()
def check(model, loader):
    model.eval()
    losses = [nn.functional.mse_loss(model(pulled), joints) for pulled, joints in loader]
    model.train()
    return float(torch.stack(losses).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(313)
    torch.set_num_threads(1)
    training = DataLoader(
        Plays(640, 313), BATCH, shuffle=True, num_workers=1, persistent_workers=True
    )
    held_out = DataLoader(Plays(64, 317), 2 * BATCH)
    model = Puppet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pulled, joints in training:
                loss = nn.functional.mse_loss(model(pulled), joints)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.4f}, held out {check(model, held_out):.4f}")
            torch.save(model.state_dict(), Path(folder, f"{epoch}.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
