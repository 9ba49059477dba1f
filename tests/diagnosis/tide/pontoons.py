"""Wear of pontoons from photographs; the best weights are kept as small files."""

import argparse
import io
import json
import lzma
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Keeper:
    """Writes a checkpoint of model and optimizer after an epoch, and keeps the best ones."""

    def __init__(self, folder, best=3, packed=True):
        self.folder, self.best, self.packed = folder, best, packed
        self.scores = {}

    def save(self, epoch, score, **parts):
        content = io.BytesIO()
        torch.save({name: part.state_dict() for name, part in parts.items()}, content)
        path = self.folder / f"epoch-{epoch:03d}.pt"
        data = content.getvalue()
        path.write_bytes(lzma.compress(data, preset=6) if self.packed else data)
        self.scores[path.name] = score
        for name in sorted(self.scores, key=self.scores.get)[self.best :]:
            del self.scores[name]
            (self.folder / name).unlink()
        (self.folder / "scores.json").write_text(json.dumps(self.scores, indent=2))


class WearNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(), nn.Linear(3 * 32 * 32, 128), nn.ReLU(), nn.Dropout(0.3)
        )
        self.head = nn.Linear(128, 1)

    def forward(self, photographs):
        return self.head(self.body(photographs)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(13)
    data = TensorDataset(torch.rand(4000, 3, 32, 32), torch.rand(4000))
    loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=1, persistent_workers=True)
    model = WearNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(Path(folder), packed=not args.without)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for photographs, wear in loader:
                loss = nn.functional.smooth_l1_loss(model(photographs), wear)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            keeper.save(epoch, total, model=model, optimizer=optimizer)
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
