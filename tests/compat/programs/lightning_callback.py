"""A Lightning fit whose loggers get what LotusCallback measures: TensorBoard's event files."""

import sys
import time
import warnings

import lightning
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.data import DataLoader, Dataset

from lotus.integrations.lightning import LotusCallback

warnings.filterwarnings("ignore")


class Rows(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.full((4,), float(index)), index % 2


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch, number):
        if sys.argv[1:] == ["fail"] and self.current_epoch == 1:
            raise RuntimeError("mine")
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[LotusCallback("R")],
        logger=False if sys.argv[1:] == ["quiet"] else TensorBoardLogger("logs"),
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    trainer.fit(Model(), DataLoader(Rows(), batch_size=4))
    print("fitted", trainer.global_step)
