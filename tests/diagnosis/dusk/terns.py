"""Songs of terns, rare kinds drawn more often; two workers read them out of a slow archive."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler


class Songs(Dataset):
    def __init__(self, count=1200):
        self.kinds = [min(int(9 * (i / count) ** 2), 7) for i in range(count)]

    def __len__(self):
        return len(self.kinds)

    def read(self, index):
        """A song of the archive, which answers after a millisecond."""
        time.sleep(0.001)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(64, 32, generator=generator)

    def __getitem__(self, index):
        song = self.read(index)
        begin = int(torch.randint(16, ()))
        return song[begin : begin + 48] * (0.8 + 0.4 * torch.rand(())), self.kinds[index]


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.head = nn.GRU(32, 160, 2, batch_first=True), nn.Linear(160, 8)

    def forward(self, songs):
        return self.head(self.cells(songs)[0][:, -1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="nothing to leave out")
    parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(49)
    data = Songs()
    often = torch.bincount(torch.tensor(data.kinds)).float()
    sampler = WeightedRandomSampler((1 / often)[data.kinds], len(data))
    loader = DataLoader(
        data, batch_size=12, sampler=sampler, num_workers=2, persistent_workers=True
    )
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(2):
        total = 0.0
        for songs, kinds in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(songs), kinds)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
