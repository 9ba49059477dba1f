"""Water levels of lakes, forecast by a recurrent cell; autograd's checks were left on."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Levels(Dataset):
    def __init__(self, count=1536, window=48):
        generator = torch.Generator().manual_seed(12)
        steps = torch.randn(count + window + 1, generator=generator)
        self.series = torch.sin(torch.arange(len(steps)) / 7) + 0.1 * steps
        self.count, self.window = count, window

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        end = index + self.window
        return self.series[index:end], self.series[end]


class Forecast(nn.Module):
    def __init__(self, size=48):
        super().__init__()
        self.cell, self.head, self.size = nn.GRUCell(1, size), nn.Linear(size, 1), size

    def forward(self, windows):
        state = windows.new_zeros(len(windows), self.size)
        for level in windows.unbind(1):
            state = self.cell(level[:, None], state)
            state = state * torch.sigmoid(state.mean(1, keepdim=True))
        return self.head(state).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(12)
    torch.autograd.set_detect_anomaly(not args.without)
    loader = DataLoader(Levels(1024), batch_size=16, shuffle=True, num_workers=2)
    model = Forecast()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for windows, levels in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(windows), levels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
