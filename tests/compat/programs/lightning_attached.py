"""Fits a model whose samples sleep, with validation four times an epoch, until there is `stop`.

Writes a file `trained` when it has trained for the first time after a validation.
"""

import time
from pathlib import Path

import lightning
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, size, pause):
        self.size, self.pause = size, pause

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        time.sleep(self.pause)
        return torch.full((4,), float(index)), index % 2


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.validated = False

    def loss(self, batch):
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def training_step(self, batch, number):
        if self.validated:
            Path("trained").touch()
        if Path("stop").exists():
            self.trainer.should_stop = True
        return self.loss(batch)

    def validation_step(self, batch, number):
        self.validated = not self.trainer.sanity_checking
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    trainer = lightning.Trainer(
        max_epochs=-1,
        val_check_interval=0.25,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    training = DataLoader(Rows(320, 0.03), batch_size=4, shuffle=True, num_workers=2)
    validation = DataLoader(Rows(16, 0.03), batch_size=4, num_workers=1)
    trainer.fit(Model(), training, validation)
    print("fitted")
