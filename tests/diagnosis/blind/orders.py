"""Train on orders, with gradients gathered over several batches."""

import argparse
import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Orders(Dataset):
    def __init__(self, count):
        self.lines = [
            json.dumps({"items": [(n * k) % 50 for k in range(12)], "paid": n % 2})
            for n in range(count)
        ]

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        order = json.loads(self.lines[index])
        return torch.tensor(order["items"]), torch.tensor(float(order["paid"]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    embed = nn.Embedding(50, 96)
    layer = nn.TransformerEncoderLayer(96, 4, 384, batch_first=True)
    body = nn.TransformerEncoder(layer, 3)
    head = nn.Linear(96, 1)
    modules = nn.ModuleList([embed, body, head])
    optimizer = torch.optim.AdamW(modules.parameters(), 3e-4)
    loader = DataLoader(Orders(5200), batch_size=40, shuffle=True, num_workers=args.workers)
    begin = time.perf_counter()
    for step, (items, paid) in enumerate(loader, 1):
        logits = head(body(embed(items)).mean(1)).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, paid)
        (loss / 4).backward()
        if step % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
