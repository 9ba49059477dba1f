"""Trains with loaders that accelerate prepared, goes on in the middle of an epoch, and shards."""

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.data_loader import prepare_data_loader
from accelerate.utils import set_seed
from shared import Compose, Scale, Shift, digest, note
from torch.utils.data import DataLoader, Dataset, IterableDataset


class Rows(Dataset):
    def __init__(self, size):
        self.size = size
        self.transform = Compose([Scale(), Shift()])

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        note(index)
        return self.transform(torch.full((4,), float(index))) + torch.rand(4), index % 2


class Stream(IterableDataset):
    def __iter__(self):
        for index in range(12):
            note(index)
            yield torch.full((4,), float(index))


def train():
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    training = DataLoader(Rows(24), batch_size=4, shuffle=True, num_workers=2)
    evaluation = DataLoader(Rows(10), batch_size=4)
    model, optimizer, training, evaluation = accelerator.prepare(
        model, optimizer, training, evaluation
    )
    print(type(training).__name__, isinstance(training, DataLoader), len(training))
    for epoch in range(2):
        for number, (values, labels) in enumerate(training):
            loss = torch.nn.functional.cross_entropy(model(values), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            print("train", epoch, number, digest(values), training.end_of_dataloader)
        for values, _ in evaluation:
            print("eval", digest(accelerator.gather_for_metrics(model(values))))
    for values, _ in skip_first_batches(training, 4):
        print("resumed", digest(values))
    print(digest(list(model.parameters())), torch.rand(()).item())


def shard():
    """What two processes would get, without a second one."""
    for process in range(2):
        for loader in (
            DataLoader(Rows(16), batch_size=2, num_workers=1),
            DataLoader(Stream(), batch_size=2, num_workers=1),
        ):
            part = prepare_data_loader(loader, num_processes=2, process_index=process)
            print("shard", process, [digest(batch) for batch in part])


if __name__ == "__main__":
    set_seed(7)
    train()
    shard()
