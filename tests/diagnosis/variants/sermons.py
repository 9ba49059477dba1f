"""Fine-tune a speech model; a checkpoint is written and flushed after every few steps."""

import argparse
import os
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sermons(Dataset):
    def __init__(self, count):
        self.speech = torch.randn(64, 80, 100)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.speech[index % 64], index % 32


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="one checkpoint, at the end")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)

    loader = DataLoader(Sermons(3200), batch_size=20, shuffle=True, num_workers=args.workers)
    frozen = nn.Linear(2048, 4096)
    head = nn.Linear(80, 32)
    optimizer = torch.optim.SGD(head.parameters(), 0.01)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        begin = time.perf_counter()
        for step, (speech, labels) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(head(speech.mean(2)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.02)  # the accelerator's part of the step
            if step == len(loader) or (step % 5 == 0 and not args.without):
                state = {"frozen": frozen.state_dict(), "head": head.state_dict(), "step": step}
                with open(path, "wb") as file:
                    torch.save(state, file)
                    os.fsync(file.fileno())
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()
