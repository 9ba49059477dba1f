"""Learns which players get along in a band, from graphs of who played with whom.

Nothing planted: the accelerator's step sets the pace, in training and validation. Four workers
walk about in the graph in Python and pad what they find, ahead of it.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PLAYERS, FEATURES, WALKS, LENGTH, BANDS, BATCH, STEP = 5000, 16, 8, 12, 768, 16, 0.055


def make_graph():
    draw = random.Random(5209)
    graph = {player: set() for player in range(PLAYERS)}
    for player in range(PLAYERS):
        for other in draw.sample(range(PLAYERS), draw.randint(2, 9)):
            graph[player].add(other)
            graph[other].add(player)
    return {player: sorted(others) for player, others in graph.items()}


class Walk:
    """Random walks from a player."""

    def __init__(self, graph):
        self.graph = graph

    def __call__(self, player):
        walks = []
        for _ in range(random.randint(WALKS // 2, WALKS)):
            walk = [player]
            while len(walk) < LENGTH:
                walk.append(random.choice(self.graph[walk[-1]]))
            walks.append(walk)
        return walks


class Lookup:
    def __init__(self, features):
        self.features = features

    def __call__(self, walks):
        return self.features[torch.tensor(walks)]


class Disturb:
    def __call__(self, walks):
        return walks + 0.1 * torch.randn_like(walks)


class Bands(Dataset):
    def __init__(self, players, features, transform):
        self.players, self.transform = players, transform
        self.well = (features[:, :4].sum(1) > 0).float()

    def __len__(self):
        return len(self.players)

    def __getitem__(self, index):
        player = self.players[index]
        return self.transform(player), self.well[player]


def pad(samples):
    walks, well = zip(*samples, strict=True)
    padded = torch.zeros(len(walks), max(map(len, walks)), LENGTH, FEATURES)
    for row, found in zip(padded, walks, strict=True):
        row[: len(found)] = found
    return padded, torch.stack(well)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(FEATURES, 32, batch_first=True), nn.Linear(32, 1)

    def forward(self, walks):
        last = self.rnn(walks.flatten(0, 1))[0][:, -1]
        return self.out(last.unflatten(0, walks.shape[:2]).mean(1)).squeeze(1)


@torch.no_grad()
def validate(model, loader):
    right = count = 0
    for walks, well in loader:
        time.sleep(STEP / 2)
        right += ((model(walks) > 0) == (well > 0)).sum().item()
        count += len(well)
    return right / count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5209)
    random.seed(5209)
    torch.set_num_threads(1)
    graph, features = make_graph(), torch.randn(PLAYERS, FEATURES)
    steps = [Walk(graph), Lookup(features)]
    training = Bands(list(range(BANDS)), features, v2.Compose([*steps, Disturb()]))
    validation = Bands(list(range(BANDS, BANDS + 192)), features, v2.Compose(steps))
    options = {"num_workers": 4, "collate_fn": pad, "persistent_workers": True}
    loader = DataLoader(training, BATCH, shuffle=True, **options)
    held_out = DataLoader(validation, BATCH, **options)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for walks, well in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(walks), well)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of the large network on an accelerator
        print(f"epoch {epoch}: loss {loss:.3f}, right {validate(model, held_out):.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader, held_out


if __name__ == "__main__":
    main()
