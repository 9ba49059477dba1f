"""Fits, validates and tests a small model with a LightningModule, a LightningDataModule, a Trainer.

Prints all that the user sees of it and the weights, bit for bit.
"""

import lightning
import torch
from shared import Compose, Scale, Shift, digest, note
from torch.utils.data import DataLoader, Dataset, random_split


class Rows(Dataset):
    def __init__(self, size):
        self.size = size
        self.transform = Compose([Scale(), Shift()])

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        note(index)
        value = self.transform(torch.full((4,), float(index)))
        return value + torch.rand(4), index % 2


class Data(lightning.LightningDataModule):
    def setup(self, stage):
        if stage == "fit":
            self.train, self.val = random_split(Rows(32), [24, 8])

    def train_dataloader(self):
        return DataLoader(
            self.train, batch_size=4, shuffle=True, num_workers=2, persistent_workers=True
        )

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=4, num_workers=1)

    def test_dataloader(self):
        return DataLoader(Rows(10), batch_size=4)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def loss(self, batch):
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def training_step(self, batch, number):
        loss = self.loss(batch)
        print("train", self.current_epoch, number, digest(batch), loss.item().hex())
        return loss

    def validation_step(self, batch, number):
        self.log("val_loss", self.loss(batch))

    def test_step(self, batch, number):
        self.log("test_loss", self.loss(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    lightning.seed_everything(7, workers=True)
    model, data = Model(), Data()
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=1,
    )
    trainer.fit(model, data)
    print(trainer.global_step, {name: v.item().hex() for name, v in trainer.logged_metrics.items()})
    print(trainer.test(model, data, verbose=False))
    print(digest(list(model.parameters())), torch.rand(()).item())
