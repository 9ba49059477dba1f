"""Reasons for which a rank takes longer than another: input, operations, samples, batches, step.

A rank's own time of a mean step less that of the reference, the rank in the middle of the others,
so that waiting and step add up to it; and of its input, what each operation costs a sample.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import flag, float_column, int_column
from lotus.analysis.common.scope import RunLike, table
from lotus.analysis.ranks.rank_steps import RankSteps, entries
from lotus.common.numbers.array_types import Floats, Ints

_NOTABLE = 0.05  # of two sizes of a batch, or of two costs


@dataclass(frozen=True)
class Why:
    """A rank's own time against the reference's; nanoseconds of a mean step, or a sample.

    kind: "input", "batch size", "step" (the model and all else) or "" if the means do not show it.
    """

    kind: str
    reference: int
    own_ns: float
    reference_own_ns: float
    wait_ns: float  # more than the reference's
    step_ns: float
    size: float  # samples a step
    reference_size: float
    sample_ns: float  # what making a sample takes in all
    reference_sample_ns: float
    operation: str  # the one whose cost exceeds the reference's most; ""
    operation_ns: float
    reference_operation_ns: float
    workers: int  # -1: not known
    reference_workers: int
    cores: float  # NaN: not known
    reference_cores: float
    model: str
    reference_model: str

    @property
    def times(self) -> float:
        """Time of a sample over the reference's: of the operation, or else of all."""
        if self.operation:
            return _ratio(self.operation_ns, self.reference_operation_ns)
        return _ratio(self.sample_ns, self.reference_sample_ns)


def explain(
    run: RunLike, steps: RankSteps, ranks: pd.DataFrame, row: int, others: Ints
) -> Why | None:
    """Compare `row` of the ranks with the middle one of `others`, by own time of a mean step."""
    wait, step = float_column(ranks, "wait_ns"), float_column(ranks, "step_ns")
    own = np.nan_to_num(wait) + step
    others = others[~np.isnan(own[others])]
    if not len(others) or np.isnan(own[row]):
        return None
    at = int(others[np.argsort(own[others], kind="stable")[(len(others) - 1) // 2]])
    more, size = own[row] - own[at], float_column(ranks, "size")
    waited, stepped = np.nan_to_num(wait)[row] - np.nan_to_num(wait)[at], step[row] - step[at]
    larger = size[row] / size[at] - 1 if size[at] > 0 else 0.0
    if not more > 0:
        kind = ""
    elif larger > _NOTABLE and own[at] * larger >= more / 2:
        kind = "batch size"
    else:
        kind = "input" if waited >= more / 2 else "step"
    name, cost, theirs = _dearest(run, steps, int(steps.ranks[row]), int(steps.ranks[at]))
    each = float_column(ranks, "sample_ns")
    workers, cores = int_column(ranks, "workers"), float_column(ranks, "cores")
    return Why(
        kind=kind,
        reference=int(steps.ranks[at]),
        own_ns=float(own[row]),
        reference_own_ns=float(own[at]),
        wait_ns=float(waited),
        step_ns=float(stepped),
        size=float(size[row]),
        reference_size=float(size[at]),
        sample_ns=float(each[row]),
        reference_sample_ns=float(each[at]),
        operation=name,
        operation_ns=cost,
        reference_operation_ns=theirs,
        workers=int(workers[row]),
        reference_workers=int(workers[at]),
        cores=float(cores[row]),
        reference_cores=float(cores[at]),
        model=str(ranks["model"].iloc[row] or ""),
        reference_model=str(ranks["model"].iloc[at] or ""),
    )


def _dearest(run: RunLike, steps: RankSteps, rank: int, reference: int) -> tuple[str, float, float]:
    """Return the operation that costs `rank` most above `reference`, and both costs of a sample.

    "" if no operation costs notably more. Operations inside others are in those.
    """
    ops = table(run, "ops")
    if not len(ops) or "operation" not in ops:
        return "", math.nan, math.nan
    whose = int_column(ops, "rank")
    mine = np.isin(whose, (rank, reference)) & np.isin(int_column(ops, "loader"), steps.loaders)
    mine &= ~flag(ops, "nested")
    ops = ops[mine]
    names = ops["operation"].astype("category").cat
    codes, took = names.codes.to_numpy().astype(np.int64), float_column(ops, "duration_ns")
    good = (codes >= 0) & ~np.isnan(took)
    count = len(names.categories)
    first = (whose[mine] == rank) & good
    second = (whose[mine] == reference) & good
    sums = [np.bincount(codes[rows], took[rows], count) for rows in (first, second)]
    made = [_samples(run, steps, number) for number in (rank, reference)]
    if not count or not all(made):
        return "", math.nan, math.nan
    cost, theirs = (total / samples for total, samples in zip(sums, made, strict=True))
    dearest = int(np.argmax(cost - theirs))
    if not cost[dearest] > (1 + _NOTABLE) * theirs[dearest]:
        return "", math.nan, math.nan
    return str(names.categories[dearest]), float(cost[dearest]), float(theirs[dearest])


def _samples(run: RunLike, steps: RankSteps, rank: int) -> float:
    """Return samples that were made for the rank, in batches whose making was recorded."""
    batches = table(run, "batches")
    mine = (int_column(batches, "rank") == rank) & np.isin(
        int_column(batches, "loader"), steps.loaders
    )
    mine &= ~np.isnan(float_column(batches, "fetch_ns"))
    return float(np.nansum(float_column(batches, "size")[mine]))


@dataclass(frozen=True)
class RankFacts:
    """The facts of each rank (R,); what is not known is NaN, "" or -1."""

    cores: Floats
    models: list[str]
    workers: Ints
    sample_ns: Floats


def facts(run: RunLike, steps: RankSteps) -> RankFacts:
    """Return the workers, cores and processor of each rank, as far as the run tells."""
    loaders = table(run, "loaders")
    mine = np.isin(int_column(loaders, "loader"), steps.loaders)
    count: dict[int, int] = {}
    for rank, workers in zip(
        int_column(loaders, "rank")[mine], int_column(loaders, "num_workers")[mine], strict=True
    ):
        count[int(rank)] = max(int(workers), count.get(int(rank), -1))
    batches = table(run, "batches")
    at = np.isin(int_column(batches, "loader"), steps.loaders)
    size, fetch = float_column(batches, "size")[at], float_column(batches, "fetch_ns")[at]
    known = ~np.isnan(size) & ~np.isnan(fetch)
    rank = int_column(batches, "rank")[at][known]
    row = np.minimum(np.searchsorted(steps.ranks, rank), len(steps.ranks) - 1)
    ours = steps.ranks[row] == rank
    samples = np.bincount(row[ours], size[known][ours], len(steps.ranks))
    took = np.bincount(row[ours], fetch[known][ours], len(steps.ranks))
    manifest, listed = run.manifest, defaultdict(list)
    for entry in entries(manifest, "ranks"):
        if isinstance(entry.get("rank"), int):
            listed[entry["rank"]].append(entry)
    processors = [
        processor({**manifest, "ranks": listed[int(rank)]}, int(rank), host)
        for rank, host in zip(steps.ranks, steps.hosts, strict=True)
    ]
    return RankFacts(
        cores=np.array([cores for cores, _ in processors]),
        models=[model for _, model in processors],
        workers=np.array([count.get(int(rank), -1) for rank in steps.ranks], np.int64),
        sample_ns=np.where(samples > 0, took / np.maximum(samples, 1), np.nan),
    )


def processor(manifest: Mapping[str, Any], rank: int, host: str) -> tuple[float, str]:
    """Return (cores that the rank may use at once, model of the CPU); NaN and "" if not known.

    By affinity and quota, from the first that has them: the rank's entry of `ranks`, its host's of
    `hosts`, the host that the run was begun on.
    """
    places = [
        entry.get("cpu") for entry in entries(manifest, "ranks")
        if entry.get("rank") == rank and entry.get("host", host) in (host, None)
    ]  # fmt: skip
    places += [
        entry.get("cpu") for entry in entries(manifest, "hosts") if entry.get("host") == host
    ]
    if not host or manifest.get("host") in (host, None):
        places.append(manifest.get("cpu"))
    cpus = [cpu for cpu in places if isinstance(cpu, Mapping)]
    affinity = next(
        filter(_sound, (cpu.get("affinity") or cpu.get("logical") for cpu in cpus)), None
    )
    quota = next(filter(_sound, (cpu.get("quota") for cpu in cpus)), None)
    limits = [float(entry) for entry in (affinity, quota) if entry is not None]
    model = next((cpu["model"] for cpu in cpus if isinstance(cpu.get("model"), str)), "")
    return min(limits, default=math.nan), model


def _sound(cores: object) -> bool:
    return isinstance(cores, (int, float)) and 0 < cores < 1 << 20


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan
