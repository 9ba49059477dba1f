"""The quantities of BalanceNet Orchestrator as measured in a run, and how each was obtained."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lotus.balance.bno_formula import Orchestrated, orchestrate
from lotus.balance.rank_measurements import Job
from lotus.common.errors import LotusError
from lotus.common.numbers.array_types import Floats


@dataclass(frozen=True)
class Quantities:
    """The inputs of equations 1 to 5. `how` says in words how OPS, MU, NL and B were obtained."""

    ops: Floats  # (N,) samples per second
    memory: Floats  # (N,) bytes
    latency: Floats  # (N, N) ns
    base: float
    how: Mapping[str, str]


def quantities(
    job: Job, latencies: Mapping[tuple[int, int], float] | None = None, base: float | None = None
) -> Quantities:
    """Return the quantities of a job's ranks.

    `latencies` maps pairs of ranks, in either order, to ns, if they are known from elsewhere.
    Raises LotusError for a rank that does not exist.
    """
    basis = {}
    ops = np.array([rank.sizes.sum() / max(rank.step_ns.sum(), 1.0) * 1e9 for rank in job.ranks])
    basis["OPS"] = "samples per second of the rank's own steps" + (
        ", exposed synchronisation taken out" if job.synchronised else ""
    )
    memory = np.array([rank.memory_bytes for rank in job.ranks])
    basis["MU"] = "memory of the rank's processes, the most that was seen"
    if np.isnan(memory).any():
        memory = np.ones(len(job.ranks))
        basis["MU"] = "not measured (no rank's epoch came to its end): taken as equal on all ranks"
    latency, basis["NL"] = _latency(job, latencies or {})
    if base is None:
        base = job.global_batch / len(job.ranks)
        basis["B"] = f"the traced batch of a rank, {base:g} samples on average"
    else:
        basis["B"] = f"{base:g} samples, as given"
    return Quantities(ops, memory, latency, base, basis)


def _latency(job: Job, links: Mapping[tuple[int, int], float]) -> tuple[Floats, str]:
    count = len(job.ranks)
    after = np.array([rank.after_ns for rank in job.ranks])
    known = not np.isnan(after).any()
    if known:
        # A collective does not distinguish pairs of ranks.
        matrix = (after[:, None] + after[None, :]) / 2.0
        basis = (
            "not measured for pairs: the mean of what both ranks took from the last rank's arrival "
            "to the averaged gradients"
        )
        if len({rank.host for rank in job.ranks}) > 1:
            basis += ", within the error of the hosts' clocks"
    else:
        matrix = np.ones((count, count))
        basis = "not measured (no synchronisation was traced): taken as equal between all ranks"
    np.fill_diagonal(matrix, 0.0)
    for pair, time in links.items():
        if max(pair) >= count or pair[0] == pair[1]:
            raise LotusError(
                f"--link {pair[0]}-{pair[1]}: the run has ranks 0 to {count - 1}, and a link "
                "joins two of them"
            )
        matrix[pair] = matrix[pair[::-1]] = time
    if links:
        all_given = len({tuple(sorted(pair)) for pair in links}) == count * (count - 1) // 2
        if not all_given and not known:
            raise LotusError(
                "no latency was measured in this run, so --link must give that of every pair"
            )
        basis = "as given" if all_given else f"as given for {len(links)} pairs; else {basis}"
    return matrix, basis


def run(measured: Quantities) -> Orchestrated:
    """Apply the formula to the measured quantities."""
    return orchestrate(measured.ops, measured.memory, measured.latency, measured.base)


def sum_words(result: Orchestrated, job: Job) -> str:
    """Say whether the formula keeps the global batch, with the figure."""
    total, was = sum(result.sizes), job.global_batch
    weights = f"its sum over NCW is {math.fsum(result.ncw.tolist()):.2f} for {len(job.ranks)} ranks"
    if total == was:
        return f"the formula happens to keep the global batch of {was} here; {weights}"
    return (
        f"the formula does not keep the global batch: it makes {total} samples of {was} "
        f"({total / was - 1:+.0%}), so a step trains on another batch than the program's; {weights}"
    )
