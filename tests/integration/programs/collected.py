"""Makes batches whose objects bring on full collections of garbage, and prints their numbers."""

import gc
import os

from torch.utils.data import DataLoader, Dataset

FULL, count = 2, 0


def note(phase, info):
    global count
    count += phase == "start" and info["generation"] == FULL


class Objects(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        before = count
        if index % 3 == 0:
            kept = [[number] for number in range(200)]
            gc.collect()
            del kept
        return os.getpid(), count - before


if __name__ == "__main__":
    gc.disable()
    gc.callbacks.append(note)
    loader = DataLoader(Objects(), batch_size=2, num_workers=2, collate_fn=list)
    for number, batch in enumerate(loader):
        gc.collect()  # of the main process: no batch has it
        print(number, sum(collections for _, collections in batch))
