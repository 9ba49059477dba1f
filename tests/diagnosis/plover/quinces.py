"""Learns which quinces ripen, with a trainer that has hooks and validates twice an epoch.

Nothing is planted: wide layers are the work, in training and in a validation that takes a sixth of
the time. Rows are collated without workers.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

ROWS, MEASURES, WIDTH = 7000, 48, 1280


class Ripening(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(MEASURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
            nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2),
        )  # fmt: skip

    def training_step(self, batch):
        measures, ripe = batch
        return nn.functional.cross_entropy(self.layers(measures), ripe)

    def validation_step(self, batch):
        measures, ripe = batch
        return (self.layers(measures).argmax(1) == ripe).float().mean()


class Trainer:
    """Runs the steps of a model, and its validation at some share of each epoch."""

    def __init__(self, epochs, share):
        self.epochs, self.share = epochs, share

    def fit(self, model, training, validation):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        every = int(len(training) * self.share)
        for epoch in range(self.epochs):
            for step, batch in enumerate(training):
                loss = model.training_step(batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if (step + 1) % every == 0:
                    self.validate(model, validation, epoch)

    @torch.no_grad()
    def validate(self, model, validation, epoch):
        model.eval()
        right = [model.validation_step(batch).item() for batch in validation]
        model.train()
        print(f"epoch {epoch}: right {sum(right) / len(right):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(607)
    measures = torch.randn(ROWS, MEASURES)
    quinces = TensorDataset(measures, (measures[:, :3].sum(1) > 0).long())
    kept, held = random_split(quinces, [0.8, 0.2])
    training = DataLoader(kept, batch_size=56, shuffle=True)
    validation = DataLoader(held, batch_size=200)
    model = Ripening()
    trainer = Trainer(args.epochs, share=0.5)
    begin = time.perf_counter()
    trainer.fit(model, training, validation)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
