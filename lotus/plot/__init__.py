"""Figures of a run, a sweep or the result of a tuning: one function each, which returns its Axes.

    import lotus
    run = lotus.load("my-run")
    lotus.plot.causes(run)                     # a new figure
    lotus.plot.timeline(run, ax=axes[0])       # or on existing Axes
    lotus.plot.figure_1(lotus.load("my-sweep"))

The functions draw what `lotus.analysis` computed. If a run has no data for a figure, the Axes say
so in words. `loader` chooses a loader of the run; the default is the one with most samples. Figures
need matplotlib (pip install matplotlib); `lotus report --html` does not.
"""

from lotus.plot.counter_figures import counters, functions, top_down
from lotus.plot.loop_figures import causes, operations, ranks, shares, workers
from lotus.plot.sweep_figures import (
    backend,
    cores,
    cpu_seconds,
    dram_loads,
    elapsed,
    figure_1,
    frontend,
    ipc,
    sample_cost,
    samples_per_second,
    waits,
)
from lotus.plot.time_figures import batches, memory, throughput, timeline
from lotus.plot.trial_figures import trials

__all__ = [
    "backend",
    "batches",
    "causes",
    "cores",
    "counters",
    "cpu_seconds",
    "dram_loads",
    "elapsed",
    "figure_1",
    "frontend",
    "functions",
    "ipc",
    "memory",
    "operations",
    "ranks",
    "sample_cost",
    "samples_per_second",
    "shares",
    "throughput",
    "timeline",
    "top_down",
    "trials",
    "waits",
    "workers",
]
