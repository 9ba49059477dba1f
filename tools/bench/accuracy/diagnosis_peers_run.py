"""Runs a program under another tool, without changing the program; needs nothing of lotus.

    python diagnosis_peers_run.py TOOL PROGRAM OUT

The tool's output is then in the folder OUT. `DataLoader.__iter__` is patched, so that a loop over a
loader does what the tool's documentation asks users to write:

- traceml: `traceml.init(mode="auto")`, and each loop's body inside `traceml.trace_step(model)`. The
  model is the loop's variable or its object's attribute. (Started by `traceml run`.)
- torch: `profile()` around the program with `step()` after each batch, for the first 100 steps, and
  its table by total time. (torch-tb-profiler, which gave advice, is deprecated, and its 0.4.3 finds
  no loader in the traces of torch 2.15.)
- loadtune: it makes the loaders itself, so it gets the data set, batch size and collate function of
  the program's first loader, and its number of workers as the baseline. Its training step is one
  batch of the program's loop (by greenlet). What it cannot use: the program's own sampler,
  worker_init_fn, the start method and prefetching, code outside of the loop, and torch.compile of
  the program's model.
"""

import contextlib
import inspect
import runpy
import sys
import types
from pathlib import Path

from torch.nn import Identity, Module
from torch.utils.data import DataLoader

STEPS = 50  # measured by loadtune for each setting, as in the examples of its README
PROFILED = 100  # steps


def around_each_body(inside):
    """Run the body of each loop over a loader inside of `inside(frame of the loop)`."""
    original = DataLoader.__iter__

    def batches(loader):
        for batch in original(loader):
            with inside(inspect.currentframe().f_back):
                yield batch

    DataLoader.__iter__ = batches


def model_of(frame):
    """The model that a loop trains; where there is none, one without parameters."""
    names = {**vars(frame.f_locals.get("self", Identity())), **frame.f_locals}
    models = [value for value in names.values() if isinstance(value, Module)]
    return names["model"] if names.get("model") in models else (models or [Identity()])[0]


def run(program):
    sys.argv = [program]
    runpy.run_path(program, run_name="__main__")


def traceml(program, out):
    import traceml_ai

    traceml_ai.init(mode="auto")
    around_each_body(lambda frame: traceml_ai.trace_step(model_of(frame)))
    run(program)


def torch(program, out):
    from torch.profiler import ProfilerAction, profile

    def first_steps(number):
        if number >= PROFILED:
            return ProfilerAction.NONE
        last = number == PROFILED - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    @contextlib.contextmanager
    def step(frame):
        yield
        profiler.step()

    around_each_body(step)
    with profile(schedule=first_steps) as profiler:
        run(program)
    table = profiler.key_averages().table(sort_by="cpu_time_total", row_limit=12)
    (out / "table.txt").write_text(table)


def loadtune(program, out):
    import torch as the_torch
    from greenlet import getcurrent, greenlet
    from loadtune import Workload, cli

    asked = []
    original, tuner = DataLoader.__iter__, getcurrent()

    def for_ever(loader):
        while True:
            yield tuner.switch()

    def first_loop(loader):
        if asked:
            return original(loader)
        asked.append(loader)
        return for_ever(loader)

    def train_step(model, optimizer, batch, device):
        loop.switch(batch)
        return 0.0

    def get_workload():
        return Workload(
            name=Path(program).stem,
            make_dataset=lambda: loader.dataset,
            make_model=lambda: the_torch.nn.Linear(1, 1),
            train_step=train_step,
            make_optimizer=lambda model: the_torch.optim.SGD(model.parameters(), lr=0.1),
            default_batch_size=loader.batch_size or loader.batch_sampler.batch_size,
            collate_fn=loader.collate_fn,
        )

    DataLoader.__iter__ = first_loop
    loop = greenlet(run)
    loop.switch(program)
    (loader,) = asked
    sys.modules["peers_workload"] = types.ModuleType("peers_workload")
    sys.modules["peers_workload"].get_workload = get_workload
    (out / "workload.py").write_text("from peers_workload import get_workload\n")
    words = ["tune", str(out / "workload.py"), "--fast", "--steps", str(STEPS), "--no-plots"]
    cli.main([*words, "--workers", str(loader.num_workers), "--out", str(out / "report.md")])
    loop.throw()


def main():
    tool, program, out = sys.argv[1:4]
    {"traceml": traceml, "torch": torch, "loadtune": loadtune}[tool](program, Path(out))


if __name__ == "__main__":
    main()
