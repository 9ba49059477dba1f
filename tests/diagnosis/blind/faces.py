"""Train a variational autoencoder on small faces."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Faces(Dataset):
    def __init__(self, count):
        self.faces = torch.rand(count, 1, 28, 28)

    def __len__(self):
        return len(self.faces)

    def __getitem__(self, index):
        return self.faces[index]


class Autoencoder(nn.Module):
    def __init__(self, code=24):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 49, 2 * code),
        )
        self.decoder = nn.Sequential(
            nn.Linear(code, 64 * 49),
            nn.Unflatten(1, (64, 7, 7)),
            nn.ConvTranspose2d(64, 32, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 1, 4, 2, 1),
            nn.Sigmoid(),
        )

    def forward(self, faces):
        mean, log_var = self.encoder(faces).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        kl = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(1).mean()
        return self.decoder(code), kl


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    loader = DataLoader(Faces(9600), batch_size=64, shuffle=True, num_workers=args.workers)
    begin = time.perf_counter()
    for faces in loader:
        output, kl = model(faces)
        loss = nn.functional.binary_cross_entropy(output, faces, reduction="sum") / len(faces) + kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
