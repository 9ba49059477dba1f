"""Predict how polymers melt, from chains of differing length, padded to the longest."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Chains(Dataset):
    def __init__(self, count=2400):
        rng = np.random.default_rng(2)
        self.chains = [
            torch.from_numpy(rng.random((length, 12), np.float32))
            for length in rng.integers(20, 120, count)
        ]

    def __len__(self):
        return len(self.chains)

    def __getitem__(self, index):
        chain = self.chains[index]
        return {"atoms": chain, "melts": chain.mean()}


def pad_lists(samples):
    longest = max(len(sample["atoms"]) for sample in samples)
    atoms, mask = [], []
    for sample in samples:
        rows = sample["atoms"].tolist()
        missing = longest - len(rows)
        atoms.append(rows + [[0.0] * 12 for _ in range(missing)])
        mask.append([1.0] * len(rows) + [0.0] * missing)
    melts = [float(sample["melts"]) for sample in samples]
    return torch.tensor(atoms), torch.tensor(mask), torch.tensor(melts)


def pad_tensors(samples):
    chains = [sample["atoms"] for sample in samples]
    atoms = nn.utils.rnn.pad_sequence(chains, batch_first=True)
    lengths = torch.tensor([len(chain) for chain in chains])
    mask = (torch.arange(atoms.shape[1]) < lengths[:, None]).float()
    return atoms, mask, torch.stack([sample["melts"] for sample in samples])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)  # the machine is shared
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    pad = pad_tensors if args.without else pad_lists
    loader = DataLoader(
        Chains(), 48, shuffle=True, num_workers=args.workers, collate_fn=pad,
        persistent_workers=True,
    )  # fmt: skip
    begin = time.perf_counter()
    for _epoch in range(5):
        for atoms, mask, melts in loader:
            guess = (model(atoms)[..., 0] * mask).sum(1) / mask.sum(1)
            loss = nn.functional.mse_loss(guess, melts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
