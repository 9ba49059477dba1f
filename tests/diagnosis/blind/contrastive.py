"""Train an encoder and measure its neighbours after each epoch."""

import argparse
import os
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def nearest(bank):
    """The nearest other row of each row."""
    found = []
    for i in range(len(bank)):
        distances = (bank - bank[i]).square().sum(1)
        distances[i] = float("inf")
        found.append(int(distances.argmin()))
    return found


def evaluate(encoder, points, labels):
    with torch.no_grad():
        bank = encoder(points)
    hits = [labels[i] == labels[j] for i, j in enumerate(nearest(bank))]
    return sum(bool(hit) for hit in hits) / len(hits)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=7)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    labels = torch.randint(0, 8, (4096,))
    points = torch.randn(8, 48)[labels] + torch.randn(4096, 48)
    encoder = nn.Sequential(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.Adam(encoder.parameters())
    loader = DataLoader(
        TensorDataset(points, labels), batch_size=128, shuffle=True, num_workers=args.workers
    )
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for x, y in loader:
                z = nn.functional.normalize(encoder(x), dim=1)
                same = (y[:, None] == y[None]).float()
                loss = nn.functional.mse_loss(z @ z.T, same)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(0.004)
            if epoch == args.epochs - 1 or not args.without:
                hits = evaluate(encoder, points, labels)
                print(f"epoch {epoch}: neighbours of one class {hits:.3f}")
                torch.save(encoder.state_dict(), os.path.join(folder, f"{epoch}.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
