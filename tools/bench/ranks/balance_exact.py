"""Checks that training with the shares of a balance.json equals training on the global batch.

    python tools/bench/ranks/balance_exact.py           about a minute on two cores
    python tools/bench/ranks/balance_exact.py --last    only with all options together

Two gloo ranks take 11 and 5 samples of each global batch of 16 and train a small MLP in float64 for
three epochs. Printed is a line for each way to start them: the largest absolute difference of their
weights from those of one process that trains on the same global batches, and from each other. Exit
code 1: with shares, a difference exceeds 1e-12.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WORLD, EPOCHS, SIZE, SHARES = 2, 3, 8, (11, 5)
MOST = 1e-12  # rounding of float64 over all steps
LOTUS = [sys.executable, "-m", "lotus"]
WAYS = (
    "",
    "--settings balance.json",
    "--mode sync --settings balance.json",
    "--settings tuned.json --settings balance.json",
    "--mode sync --settings tuned.json --settings balance.json",
    "--mode sync --settings balance.json --rebalance-every 5",
    "--settings balance.json -- lotus trace",
    "--mode sync --settings tuned.json --settings balance.json --rebalance-every 5 -- lotus trace",
)


def train(rank: int, folder: Path) -> None:
    """Train as a user's script does; write the rank's weights and batches."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=WORLD)
    x, y = samples()
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = TensorDataset(x, y, torch.arange(len(x)))
    sampler = DistributedSampler(data, seed=7)
    loader = DataLoader(data, SIZE, sampler=sampler)
    batches = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, labels, numbers in loader:
            batches.append(numbers.tolist())
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    results = {"batches": batches, "weights": weights(model)}
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


def samples() -> Any:
    import torch

    generator = torch.Generator().manual_seed(5)
    x = torch.randn(203, 6, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 3, (len(x),), generator=generator)


def network() -> Any:
    import torch
    from torch import nn

    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def weights(model: Any) -> list[float]:
    return [
        number
        for parameter in model.parameters()
        for number in parameter.detach().flatten().tolist()
    ]


def alone(batches: list[list[int]]) -> list[float]:
    """One process that trains on the same global batches."""
    import torch
    from torch import nn

    x, y = samples()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batch in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    return weights(model)


def job(way: str, folder: Path) -> tuple[float, float]:
    """(how far from one process, how far from each other) both ranks' weights are."""
    from lotus.settings import share_plan, tuned_file
    from lotus.settings.space import Setting
    from lotus.settings.tuned_file import Entry, Target, Tuned

    share_plan.write(folder / "balance.json", share_plan.SharePlan(SHARES, "lotus"))
    kept = Setting(2, prefetch_factor=2, persistent_workers=True)
    entry = Entry(Target(dataset="TensorDataset"), kept)
    tuned_file.write(folder / "tuned.json", Tuned((entry,)))
    options, _, trace = way.partition(" -- ")
    command = [sys.executable, str(Path(__file__).resolve()), "--start"]
    if trace:
        command = [*LOTUS, "trace", "-q", "-o", str(folder / "trace"), "--", *command]
    if options:
        command = [*LOTUS, "run", *options.split(), "--", *command]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"the ranks of {way!r} failed:\n{ended.stderr}")
    ranks = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(WORLD)]
    steps = zip(*(rank["batches"] for rank in ranks), strict=True)
    undivided = alone([[*first, *second] for first, second in steps])
    far = [difference(rank["weights"], undivided) for rank in ranks]
    return max(far), difference(ranks[0]["weights"], ranks[1]["weights"])


def difference(some: list[float], others: list[float]) -> float:
    return max(abs(value - other) for value, other in zip(some, others, strict=True))


def main() -> int:
    worst = 0.0
    print(f"{'from one process':>16}  {'each other':>10}  two ranks, {SHARES[0]} and {SHARES[1]}")
    for way in WAYS[-1:] if "--last" in sys.argv else WAYS:
        with tempfile.TemporaryDirectory() as folder:
            far, apart = job(way, Path(folder))
        words = f"lotus run {way}" if way else "as written, 8 and 8"
        print(f"{far:16.1e}  {apart:10.1e}  {words}", flush=True)
        worst = max(worst, far, apart) if way else worst
    return int(worst > MOST)


def start() -> None:
    """Start both ranks in the folder that this runs in."""
    words = [sys.executable, __file__]
    ranks = [
        subprocess.Popen(words, env={**os.environ, "RANK": str(rank)}) for rank in range(WORLD)
    ]
    sys.exit(max(rank.wait() for rank in ranks))


if __name__ == "__main__":
    if "--start" in sys.argv:
        start()
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), Path.cwd())
    else:
        sys.exit(main())
