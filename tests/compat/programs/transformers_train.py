"""Trains and evaluates with transformers' Trainer; prints every batch and the weights."""

import torch
from shared import Compose, Scale, Shift, digest, note
from torch.utils.data import Dataset
from transformers import PrinterCallback, Trainer, TrainingArguments


class Rows(Dataset):
    def __init__(self, size):
        self.size = size
        self.transform = Compose([Scale(), Shift()])

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        note(index)
        value = self.transform(torch.full((4,), float(index))) + torch.rand(4)
        return {"x": value, "labels": torch.tensor(index % 2)}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x, labels):
        print("batch", self.training, digest([x, labels]))
        scores = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(scores, labels), "logits": scores}


if __name__ == "__main__":
    torch.manual_seed(7)
    arguments = TrainingArguments(
        "out", num_train_epochs=2, per_device_train_batch_size=4, per_device_eval_batch_size=3,
        dataloader_num_workers=2, eval_strategy="epoch", report_to=[], use_cpu=True, seed=7,
        save_strategy="no", disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    trainer = Trainer(Model(), arguments, train_dataset=Rows(24), eval_dataset=Rows(6))
    trainer.remove_callback(PrinterCallback)  # it prints times
    trainer.train()
    print(trainer.predict(Rows(5)).metrics["test_loss"])
    print(digest(list(trainer.model.parameters())), torch.rand(()).item())
