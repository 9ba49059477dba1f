"""Runs loadtune (PyPI) on a workload of workloads.py; needs nothing of lotus.

    python loadtune_run.py NAME [--data DIR]

loadtune runs with its defaults (baseline, up to 6 trials, 110 steps each) and all trials in one
process, which is faster (`--fast`). It makes its loaders itself from the data set. Prints its
choice as JSON: the best of its trials, or the baseline if that trial is not faster.
"""

import argparse
import json
import time
from pathlib import Path

import torch
import workloads
from loadtune import Workload, tune


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=list(workloads.BATCHES))
    parser.add_argument("--data", type=Path, default=workloads.PICTURES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    name = options.name
    step = workloads.STEPS[name]()
    data = workloads.data(name, options.data)
    workload = Workload(
        name=name,
        make_dataset=lambda: data,
        make_model=lambda: torch.nn.Linear(1, 1),
        train_step=lambda model, optimizer, batch, device: step(workloads.inputs(batch)),
        make_optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        default_batch_size=workloads.SIZES[name],
    )
    begin = time.monotonic()
    result = tune(workload, verbose=False)
    seconds = time.monotonic() - begin
    knobs = result.baseline.knobs
    if result.best is not None and result.best.throughput > result.baseline.throughput:
        knobs = result.best.knobs.to_dict()
    tried = [result.baseline.knobs] + [trial.knobs.to_dict() for trial in result.trials]
    names = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")
    setting = {key: knobs[key] for key in names}
    settings = {json.dumps([setting[key] for key in names]) for setting in tried}
    print(json.dumps({"best": setting, "settings_tried": len(settings), "seconds": seconds}))


if __name__ == "__main__":
    main()
