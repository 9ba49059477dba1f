"""Train a price model on rows of a table on disk."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, Dataset


class HouseDataset(Dataset):
    def __init__(self, csv_path, rows, in_memory=False):
        self.csv_path = csv_path
        self.rows = rows
        self.frame = pd.read_csv(csv_path) if in_memory else None

    def __len__(self):
        return self.rows

    def __getitem__(self, idx):
        frame = pd.read_csv(self.csv_path) if self.frame is None else self.frame
        row = frame.iloc[idx]
        features = torch.tensor(row.drop("price").to_numpy(dtype="float32"))
        return features, torch.tensor(row["price"], dtype=torch.float32)


parser = argparse.ArgumentParser()
parser.add_argument("--without", action="store_true")
parser.add_argument("--workers", type=int, default=2)
args = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as tmp:
    csv_path = Path(tmp) / "houses.csv"
    table = np.random.default_rng(0).normal(size=(1280, 13)).round(4)
    pd.DataFrame(table, columns=["price"] + [f"x{i}" for i in range(12)]).to_csv(
        csv_path, index=False
    )
    dataset = HouseDataset(csv_path, len(table), in_memory=args.without)
    dataloader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=args.workers)
    model = torch.nn.Linear(12, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    t0 = time.time()
    for epoch in range(3):
        running = 0.0
        for X, y in dataloader:
            pred = model(X).squeeze(-1)
            loss = torch.nn.functional.mse_loss(pred, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
            time.sleep(0.004)
        print(f"epoch {epoch} loss {running / len(dataloader):.4f}")
    print(f"seconds {time.time() - t0:.3f}")
