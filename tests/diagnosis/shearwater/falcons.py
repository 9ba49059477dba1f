"""Rates comments in two processes that average their gradients; lines of JSON are the data.

Planted: the data set shares the files out among the ranks, but not among a rank's two workers,
each of which reads all of them.
"""

import argparse
import json
import os
import random
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

RANKS, FILES, LINES, WORDS, BATCH, ANSWER = 2, 8, 60, 3000, 10, 0.011


def write_comments(folder):
    rng = random.Random(5087)
    for number in range(FILES):
        with Path(folder, f"comments-{number:02}.jsonl").open("w") as file:
            for _ in range(LINES):
                words = [rng.randrange(WORDS) for _ in range(rng.randint(8, 30))]
                line = {"words": words, "rating": 5 * sum(words) / len(words) / WORDS}
                file.write(json.dumps(line) + "\n")


class Comments(IterableDataset):
    def __init__(self, folder, rank, ranks, split):
        self.paths = sorted(Path(folder).glob("*.jsonl"))
        self.rank, self.ranks, self.split = rank, ranks, split

    def mine(self):
        paths = self.paths[self.rank :: self.ranks]
        info = get_worker_info()
        return paths[info.id :: info.num_workers] if info and self.split else paths

    def __iter__(self):
        for path in self.mine():
            with path.open() as file:
                for line in file:
                    time.sleep(ANSWER)  # the way of a line from the object store
                    comment = json.loads(line)
                    yield torch.tensor(comment["words"]), comment["rating"]


def flat(samples):
    texts, ratings = zip(*samples, strict=True)
    starts = torch.tensor([0] + [len(text) for text in texts[:-1]]).cumsum(0)
    return torch.cat(texts), starts, torch.tensor(ratings, dtype=torch.float32)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(WORDS, 32)
        self.out = nn.Sequential(nn.ReLU(), nn.Linear(32, 1))

    def forward(self, words, starts):
        return self.out(self.table(words, starts)).squeeze(1)


def train(rank, folder, args):
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(RANKS)
    meeting = Path(folder, "meeting")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    torch.manual_seed(5087)
    torch.set_num_threads(1)
    loader = DataLoader(
        Comments(folder, rank, RANKS, split=args.without),
        BATCH,
        num_workers=2,
        collate_fn=flat,
        multiprocessing_context="fork",
        persistent_workers=True,
    )
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    dist.barrier()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for words, starts, ratings in loader:
            loss = nn.functional.mse_loss(model(words, starts), ratings)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch}: loss {mean / RANKS:.3f}", flush=True)
            torch.save(model.module.state_dict(), Path(folder, "model.pt"))
    if rank == 0:
        print(f"seconds {time.perf_counter() - begin:.3f}", flush=True)
    del loader
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_comments(folder)
        torch.multiprocessing.spawn(train, (folder, args), RANKS)


if __name__ == "__main__":
    main()
