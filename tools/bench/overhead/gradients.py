"""Measures what timing the synchronisation of gradients costs a training step.

    PYTHONPATH=. python tools/bench/overhead/gradients.py [--steps 10] [--rounds 400]

The job is one process, a group of one rank on the CPU: DDP does everything except wait. Blocks of
steps with and without lotus's hook alternate. Printed is the CPU time of a step of each kind, with
its quartiles, and the same for two alternatives: DDP's own clock
(`_set_ddp_runtime_logging_sample_rate(1)`, read after each step) and torch.profiler's events,
without starting, stopping and reading them. accuracy/gradient_times.py compares the measured times.
"""

import argparse
import importlib
import statistics
import tempfile
import time

from tools.bench import provenance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--layers", type=int, default=20)
    args = parser.parse_args()
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.profiler import ProfilerActivity, profile

    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    group = {"rank": 0, "world_size": 1, "init_method": f"file://{folder}/store"}
    dist.init_process_group("gloo", **group)
    layers = [nn.Linear(16, 16) for _ in range(args.layers)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    data = torch.randn(4, 16)
    install = importlib.import_module("lotus.inside.trace.tracer")

    def block(read: bool) -> float:
        for _ in range(3):  # what is done once, as opening the log
            model(data).sum().backward()
        start = time.thread_time_ns()
        for _ in range(args.steps):
            model(data).sum().backward()
            if read:
                model._get_ddp_logging_data()
        return (time.thread_time_ns() - start) / args.steps / 1000

    block(False)
    times: dict[str, list[float]] = {
        "without": [],
        "lotus": [],
        "DDP's own clock": [],
        "torch.profiler": [],
    }
    for _ in range(args.rounds):
        times["without"].append(block(False))
        tracer = install.install({"LOTUS_RUN": folder})
        times["lotus"].append(block(False))
        tracer.uninstall()
        model.reducer._set_ddp_runtime_logging_sample_rate(1)
        times["DDP's own clock"].append(block(True))
        model.reducer._set_ddp_runtime_logging_sample_rate(100)
        with profile(activities=[ProfilerActivity.CPU]):
            times["torch.profiler"].append(block(False))
    dist.destroy_process_group()
    print(f"{provenance.cpus()}, torch {torch.__version__}, commit {provenance.commit()}")
    print(f"{args.rounds} blocks of {args.steps} steps, {args.layers} layers, us of CPU a step")
    for name, values in times.items():
        more = [value - base for value, base in zip(values, times["without"], strict=True)]
        low, middle, high = statistics.quantiles(more, n=4)
        print(
            f"{name:16} {statistics.median(values):7.1f}   more than without: {middle:5.1f} "
            f"({low:.1f} to {high:.1f})"
        )


if __name__ == "__main__":
    main()
