"""Learns to balance a pole from replayed experience, without workers, as it plays on.

Nothing planted: the device's step and the game itself are the work; batches of the replay are put
together in the main process within a moment.
"""

import argparse
import random
import time
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


@dataclass
class Config:
    rounds: int
    steps: int = 24
    batch: int = 32
    kept: int = 4000
    discount: float = 0.97
    polyak: float = 0.02
    device: float = 0.07


class Pole:
    """A pole on a cart, roughly."""

    def __init__(self):
        self.rng = np.random.default_rng(5179)
        self.reset()

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, 4).astype(np.float32)
        return self.state.copy()

    def step(self, action):
        place, speed, angle, turn = self.state
        force = 10.0 if action else -10.0
        pull = (force + 0.05 * turn**2 * np.sin(angle)) / 1.1
        push = (9.8 * np.sin(angle) - np.cos(angle) * pull) / (0.5 * (4 / 3 - 0.09))
        change = np.array([speed, pull, turn, push], np.float32)
        self.state = self.state + np.float32(0.02) * change
        return self.state.copy(), 1.0, bool(abs(self.state[2]) > 0.21 or abs(place) > 2.4)


class Replay(Dataset):
    def __init__(self, kept):
        self.steps = deque(maxlen=kept)

    def __len__(self):
        return len(self.steps)

    def __getitem__(self, index):
        return self.steps[index]


class Agent:
    def __init__(self, config):
        self.config = config
        self.values, self.slow = (
            nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2)) for _ in range(2)
        )
        self.slow.load_state_dict(self.values.state_dict())
        self.optimizer = torch.optim.Adam(self.values.parameters(), lr=1e-3)

    @torch.no_grad()
    def act(self, state, chance):
        if random.random() < chance:
            return random.randrange(2)
        return int(self.values(torch.from_numpy(state)).argmax())

    def learn(self, states, actions, rewards, following, ends):
        with torch.no_grad():
            best = self.slow(following).amax(1)
            goal = rewards.float() + self.config.discount * best * ~ends
        value = self.values(states).gather(1, actions[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(value, goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            pairs = zip(self.slow.parameters(), self.values.parameters(), strict=True)
            for slow, quick in pairs:
                slow.lerp_(quick, self.config.polyak)
        time.sleep(self.config.device)  # in place of a larger network on a device
        return loss.item()


def play(game, agent, replay, count, chance):
    state = game.state.copy()
    for _ in range(count):
        action = agent.act(state, chance)
        following, reward, end = game.step(action)
        replay.steps.append((state, action, reward, following, end))
        state = game.reset() if end else following


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", "--epochs", type=int, default=5)
    args = parser.parse_args()
    random.seed(5179)
    torch.manual_seed(5179)
    config = Config(args.rounds)
    game, agent, replay = Pole(), Agent(config), Replay(config.kept)
    play(game, agent, replay, 400, chance=1.0)
    begin = time.perf_counter()
    for number in range(config.rounds):
        sampler = RandomSampler(replay, True, num_samples=config.steps * config.batch)
        loader = DataLoader(replay, config.batch, sampler=sampler)
        losses = []
        for batch in loader:
            losses.append(agent.learn(*batch))
            play(game, agent, replay, 8, chance=0.5 / (number + 1))
        print(f"round {number}: loss {np.mean(losses):.4f}, kept {len(replay)}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
