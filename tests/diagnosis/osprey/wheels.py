"""Learns to keep a wheel balanced from replays, beside a thread that ranks them.

Planted: this thread of the main process ranks all replays again and again in pure Python, and the
training step, made of many small operations, waits for the interpreter.
"""

import argparse
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Replays(Dataset):
    def __init__(self, count):
        draw = torch.Generator().manual_seed(103)
        self.states = torch.rand(500, 20, generator=draw)
        self.rewards = torch.rand(500, generator=draw)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        state = self.states[index % 500]
        return state, self.states[(index + 1) % 500], self.rewards[index % 500]


class Ranking(threading.Thread):
    """Keeps the order of the replays, best first, for a page that shows them."""

    def __init__(self, rewards, pause):
        super().__init__(daemon=True)
        self.pause, self.ended, self.order = pause, threading.Event(), []
        self.rewards = dict(enumerate(rewards.tolist()))

    def discounted(self, number, span=30):
        return sum(self.rewards.get(number + later, 0.0) * 0.97**later for later in range(span))

    def run(self):
        while not self.ended.wait(self.pause):
            values = {number: self.discounted(number) for number in self.rewards}
            self.order = sorted(values, key=values.get, reverse=True)


class Critic(nn.Module):
    def __init__(self, size=48, blocks=8):
        super().__init__()
        self.enter = nn.Linear(20, size)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(size), nn.Linear(size, size), nn.SiLU())
            for _ in range(blocks)
        )
        self.leave = nn.Linear(size, 1)

    def forward(self, state):
        hidden = self.enter(state)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.leave(hidden).squeeze(1)


class Learner:
    def __init__(self):
        self.critic, self.target = Critic(), Critic()
        self.optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-3, foreach=False)

    def follow(self):
        with torch.no_grad():
            for slow, quick in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                slow.lerp_(quick, 0.01)

    def step(self, state, later, reward):
        with torch.no_grad():
            goal = reward + 0.97 * self.target(later)
        loss = nn.functional.smooth_l1_loss(self.critic(state), goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.follow()
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(103)
    replays = Replays(6400)
    loader = DataLoader(
        replays, batch_size=32, shuffle=True, num_workers=1, persistent_workers=True
    )
    learner = Learner()
    ranking = Ranking(replays.rewards, pause=60 if args.without else 0.002)
    ranking.start()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [learner.step(*batch) for batch in loader]
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    ranking.ended.set()
    ranking.join()


if __name__ == "__main__":
    main()
