"""Forecast the passengers of a metro on the graph of its stations, with a validation."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, SubsetRandomSampler

STATIONS = 160


class Passengers(Dataset):
    def __init__(self, hours):
        self.counts = torch.randn(hours + 13, STATIONS)

    def __len__(self):
        return len(self.counts) - 13

    def __getitem__(self, hour):
        return self.counts[hour : hour + 12].T, self.counts[hour + 12]


class Network(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.register_buffer("links", torch.softmax(torch.randn(STATIONS, STATIONS), 1))
        self.first = nn.Linear(12, width)
        self.second = nn.Linear(width, width)
        self.last = nn.Linear(width, 1)

    def forward(self, counts):
        states = torch.relu(self.first(self.links @ counts))
        states = torch.relu(self.second(self.links @ states))
        return self.last(states).squeeze(2)


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    passengers = Passengers(1000)
    train = DataLoader(passengers, 32, sampler=SubsetRandomSampler(range(800)))
    valid = DataLoader(passengers, 64, sampler=range(800, 1000))
    model = Network()
    optimizer = torch.optim.Adam(model.parameters())
    begin = time.perf_counter()
    for _epoch in range(4):
        model.train()
        for counts, following in train:
            loss = nn.functional.l1_loss(model(counts), following)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            losses = [nn.functional.l1_loss(model(counts), then).item() for counts, then in valid]
        print(f"loss: {sum(losses) / len(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
