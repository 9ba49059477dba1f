"""A transformers Trainer whose log gets what LotusCallback measures."""

import sys
import time

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from lotus.integrations.transformers import LotusCallback


class Rows(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        time.sleep(0.01)
        return {"x": torch.full((4,), float(index)), "labels": torch.tensor(index % 2)}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x, labels):
        if sys.argv[1:] == ["fail"] and x.max() == 47:
            raise RuntimeError("mine")
        scores = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(scores, labels), "logits": scores}


if __name__ == "__main__":
    arguments = TrainingArguments(
        "out", num_train_epochs=2, per_device_train_batch_size=4, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    trainer = Trainer(Model(), arguments, train_dataset=Rows())
    trainer.add_callback(LotusCallback(trainer, directory="R"))
    trainer.train()
    for row in trainer.state.log_history:
        if "lotus/wait_share" in row:
            print("logged", row["epoch"], row["lotus/wait_share"], row["lotus/samples_per_s"])
