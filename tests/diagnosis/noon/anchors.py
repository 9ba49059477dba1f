"""Does the anchor hold? Rows of a ship's log; a board beside shows how training goes."""

import argparse
import json
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Board(threading.Thread):
    """Keeps a page of all losses so far; `page` is its newest text."""

    def __init__(self, history):
        super().__init__(daemon=True)
        self.history, self.page, self.stopped = history, "", threading.Event()

    def bars(self):
        values = enumerate(self.history)
        return [(step, "#" * int(40 * value), f"{value:.4f}") for step, value in values]

    def run(self):
        while not self.stopped.is_set():
            rows = [{"step": i, "bar": bar, "loss": text} for i, bar, text in self.bars()]
            self.stopped.wait(0.02)
            self.page = json.dumps({"rows": rows, "best": min(self.history)}, indent=1)


def validate(model, loader):
    model.eval()
    with torch.no_grad():
        right = sum(((model(rows) > 0) == (held > 0)).sum().item() for rows, held in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(14)
    log = torch.randn(20_000, 32)
    data = TensorDataset(log, (log[:, :4].sum(1, keepdim=True) > 0).float())
    training, held_out = random_split(data, [18_000, 2_000])
    loader = DataLoader(training, batch_size=100, shuffle=True, num_workers=1)
    checks = DataLoader(held_out, batch_size=500)
    model = nn.Sequential(
        nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    history = [0.7 * 0.9995**step for step in range(3000)]  # of the run that goes on
    board = Board(history)
    if not args.without:
        board.start()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for rows, held in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(rows), held)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(loss.item())
        print(f"epoch {epoch}: {validate(model, checks):.3f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    board.stopped.set()


if __name__ == "__main__":
    main()
