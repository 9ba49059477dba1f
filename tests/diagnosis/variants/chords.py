"""Name chords in music that is synthesised in a stream."""

import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Chords(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        worker = get_worker_info()
        steps = torch.arange(1600) / 8000 * 2 * math.pi
        for number in range(worker.id, self.count, worker.num_workers):
            root = 110 * 2 ** (number % 12 / 12)
            wave = torch.sin(steps * root) + torch.sin(steps * root * 1.5)
            yield wave.view(50, 32), number % 12


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.GRU(32, 192, num_layers=2, batch_first=True)
        self.head = nn.Linear(192, 12)

    def forward(self, waves):
        return self.head(self.memory(waves)[0][:, -1])


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    loader = DataLoader(Chords(1100), batch_size=22, num_workers=1)
    model = Listener()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    begin = time.perf_counter()
    for waves, chords in loader:
        loss = nn.functional.cross_entropy(model(waves), chords)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
