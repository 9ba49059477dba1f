"""The training script of balance_measured.py: DistributedDataParallel over gloo.

    torchrun --standalone --nproc-per-node 2 balance_train.py --model resnet --batch 24

It imports nothing of lotus. Rank 0 prints JSON on a line that begins with RESULT: the mean seconds
of an update for each 100 updates after the warm-up (from the end of one to the end of the next,
including reading data and waiting for other ranks), and the samples per second of all ranks.
With --scan it searches for the best split of the global batch by trying splits in turn.
With --epochs it trains so many epochs, and prints after each its seconds and the validation loss.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import balance_models
import torch
import torch.distributed as dist
from balance_search import Search
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

HELD_OUT = 2000  # pictures


class Training:
    """One rank's model, data and optimizer."""

    def __init__(self, args: argparse.Namespace) -> None:
        make, shape = balance_models.MODELS[args.model]
        torch.manual_seed(args.seed)
        self.args, self.shape = args, shape
        self.model = DistributedDataParallel(make())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.rate, momentum=0.9)
        self.loss = nn.CrossEntropyLoss()
        self.made = balance_models.pictures(shape, args.pictures, args.seed, args.strength)

    def data(self, length: int) -> balance_models.Pictures:
        return balance_models.Pictures(self.made, length, True, self.args.file)

    def loader(self, data: Any, batch: int, sampler: Any) -> "DataLoader[Any]":
        workers = self.args.workers
        return DataLoader(data, batch, sampler=sampler, num_workers=workers, drop_last=True)

    def update(self, pictures: torch.Tensor, labels: torch.Tensor, weight: float = 1.0) -> None:
        self.optimizer.zero_grad()
        loss = self.loss(self.model(pictures), labels)
        (loss if weight == 1.0 else loss * weight).backward()
        self.optimizer.step()

    def evaluate(self, data: Any) -> tuple[float, float]:
        """(loss, share that is right) on this rank's part of the data, averaged over the ranks."""
        rank, world = dist.get_rank(), dist.get_world_size()
        module = self.model.module
        module.eval()
        sums = torch.zeros(3, dtype=torch.float64)
        with torch.no_grad():
            for part in range(rank, -(-len(data) // 100), world):
                rows = [data[row] for row in range(part * 100, min(part * 100 + 100, len(data)))]
                labels = torch.tensor([label for _, label in rows])
                outputs = module(torch.stack([picture for picture, _ in rows]))
                right = (outputs.argmax(1) == labels).sum()
                sums += torch.tensor([self.loss(outputs, labels) * len(rows), right, len(rows)])
        module.train()
        dist.all_reduce(sums)
        return float(sums[0] / sums[2]), float(sums[1] / sums[2])


def measure(train: Training) -> dict[str, Any]:
    """Return the time of updates with the batch size that the loader has."""
    args, world = train.args, dist.get_world_size()
    data = train.data(args.length)
    sampler: Any = DistributedSampler(data, seed=args.seed)
    loader = train.loader(data, args.batch, sampler)
    ends: list[int] = []
    sizes: list[int] = []
    wanted, epoch = args.warm + args.updates, 0
    while len(ends) < wanted:
        sampler.set_epoch(epoch)
        epoch += 1
        for pictures, labels in loader:
            train.update(pictures, labels)
            ends.append(time.perf_counter_ns())
            sizes.append(len(labels))
            if len(ends) == wanted:
                break
    took = [(after - before) / 1e9 for before, after in pairwise(ends)]
    took = took[args.warm - 1 :]
    counted = sum(sizes[args.warm :])
    each: list[Any] = [None] * world
    dist.all_gather_object(each, (sizes[-1], counted))
    hundreds = [statistics.fmean(took[at : at + 100]) for at in range(0, len(took), 100)]
    return {
        "updates": len(took),
        "mean_s": statistics.fmean(took),
        "median_s": statistics.median(took),
        "deviation_s": statistics.pstdev(took),
        "per_100_s": hundreds,
        "samples_per_s": sum(count for _, count in each) / sum(took),
        "batches": [size for size, _ in each],
    }


def scan(train: Training) -> dict[str, Any]:
    """Splits in turn, each for a block of updates, as rank 0's search asks for them."""
    args, rank, world = train.args, dist.get_rank(), dist.get_world_size()
    starts = [tuple(int(size) for size in sizes.split("/")) for sizes in args.scan]
    total = sum(starts[0])
    search = Search(starts, args.most)
    block = args.block + args.warm_block
    data = train.data(total * block)
    while True:
        split = torch.zeros(world, dtype=torch.int64)
        if rank == 0 and (proposed := search.ask()) is not None:
            split = torch.tensor(proposed)
        dist.broadcast(split, 0)
        if not split.any():
            break
        mine = int(split[rank])
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(args.seed))
        before = int(split[:rank].sum()) * block
        loader = train.loader(data, mine, order[before : before + mine * block].tolist())
        began = 0
        for number, (pictures, labels) in enumerate(loader, 1):
            train.update(pictures, labels, mine * world / total)
            if number == args.warm_block:
                began = time.perf_counter_ns()
        if rank == 0:
            search.tell((time.perf_counter_ns() - began) / 1e9 / args.block)
    if rank:
        return {}
    table = {"/".join(map(str, split)): values for split, values in search.times.items()}
    return {"block": args.block, "best": list(search.best()), "seconds": table}


def epochs(train: Training) -> dict[str, Any]:
    """Whole epochs: what each took, and the loss on pictures that are not trained on."""
    args = train.args
    data = train.data(args.pictures)
    sampler: Any = DistributedSampler(data, seed=args.seed)
    loader = train.loader(data, args.batch, sampler)
    held = balance_models.pictures(train.shape, HELD_OUT, 1_000_000 + args.seed, args.strength)
    other = balance_models.Pictures(held, HELD_OUT, False)
    results: list[dict[str, Any]] = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        dist.barrier()
        began = time.perf_counter_ns()
        sizes = []
        for pictures, labels in loader:
            train.update(pictures, labels)
            sizes.append(len(labels))
        dist.barrier()
        seconds = (time.perf_counter_ns() - began) / 1e9
        loss, right = train.evaluate(other)
        each: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(each, (sizes[:1], sum(sizes)))
        results.append(
            {
                "seconds": seconds,
                "loss": loss,
                "right": right,
                "batches": [size for first, _ in each for size in first],
                "samples": [samples for _, samples in each],
            }
        )
    return {"epochs": results}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--model", choices=balance_models.MODELS, required=True)
    add("--batch", type=int, required=True, help="of a rank")
    add("--updates", type=int, default=100, help="that are timed")
    add("--warm", type=int, default=10, help="updates before these, at least one")
    add("--length", type=int, default=32768, help="of the data set: pictures, over and over")
    add("--workers", type=int, default=0)
    add("--pictures", type=int, default=2048, help="different ones")
    add("--strength", type=float, default=20.0, help="of what tells classes apart")
    add("--rate", type=float, default=0.01, help="of learning")
    add("--file", type=Path, help="write pictures there first, read them from there")
    add("--seed", type=int, default=0)
    add("--epochs", type=int)
    add("--scan", nargs="+", metavar="32/32", help="splits to begin with")
    add("--most", type=int, default=40, help="splits that are tried")
    add("--block", type=int, default=20, help="updates that are timed of each")
    add("--warm-block", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    random.seed(1000 * args.seed + dist.get_rank())
    train = Training(args)
    if args.file is not None:
        args.file = args.file.with_suffix(f".{dist.get_rank()}")
        balance_models.write(args.file, train.made[0])
    dist.barrier()
    task: Callable[[Training], dict[str, Any]] = measure
    if args.scan:
        task = scan
    elif args.epochs:
        task = epochs
    results = task(train)
    if dist.get_rank() == 0:
        print("RESULT " + json.dumps(results), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
