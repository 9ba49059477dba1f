"""The ranks that hold the others up, with the certainty and the reason.

A rank, or a host's ranks together, is a straggler if it is last in more of the steps than it would
be if all were alike (one in so many as took part), beyond what chance does, and if it is behind the
others by an amount that matters. Chance: in a number of blocks of neighbouring steps, as steps that
follow each other are alike, the share of steps in which it was last is compared by Student's t, and
over as many steps as theirs are worth if they were independent by Wilson's interval; the wider of
both counts, at 5 % over all ranks (Bonferroni). Why it is so is said by `rank_reasons`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.common.scope import RunLike
from lotus.analysis.ranks.rank_reasons import RankFacts, Why, explain, facts
from lotus.analysis.ranks.rank_steps import UNDECIDED, Cells, RankSteps, entries, rank_steps
from lotus.common.numbers.array_types import Bools, Floats, Ints
from lotus.common.numbers.statistics import LEVEL, t_quantile, wilson

LEAST_STEPS = 20  # below, nobody is named
LEAST_BEHIND = 0.03  # of a step's time, on average
LEAST_TIMES = 1.1  # as often last as if all were alike
_BLOCKS, _LEAST_BLOCK = 20, 5  # blocks; steps in one
_LEAST_INDEPENDENT, _FAR = 5.0, 4.0  # steps; standard deviations of lateness
_MOST_EXPLAINED = 4  # stragglers


@dataclass(frozen=True)
class LastShare:
    """The share of being last. low and high: 95 %. sure: more often than by chance."""

    times: int
    steps: int  # that were decided, and that it took part in
    share: float
    low: float
    high: float
    fair: float  # if all were alike
    sure: bool


@dataclass(frozen=True)
class Straggler:
    """A rank, or those of a host among which nobody stands out (`host` is then not None)."""

    ranks: list[int]
    host: str | None
    last: LastShare
    behind_ns: float  # mean lateness
    cost_ns: float  # of a mean step: what all would gain if it came with the second latest
    why: Why | None


@dataclass(frozen=True)
class RankSummary:
    """The verdict on the ranks, as a report shows it.

    table    one row per rank: rank host cores model steps first_step last_step wait_ns step_ns
             sync_ns late_ns (means of a step) last_steps last_share last_low last_high lead_ns
             (mean over the second latest where it was last) size (samples a step) sample_ns (to
             make one) workers
    over     one row per step: step ranks last (rank, -1: nobody) lead_second_ns lead_median_ns
    stragglers  those that are last most often
    missing  ranks of the job that took no step in what was recorded
    mean_ns  a step from one synchronisation to the next, NaN without any
    """

    steps: RankSteps
    table: pd.DataFrame
    over: pd.DataFrame
    stragglers: list[Straggler]
    nearest: Straggler | None  # who was last most often, where nobody is a straggler
    missing: list[int]
    decided: int  # steps that the shares are of
    undecided: int
    mean_ns: float
    more: list[int] = field(default_factory=list)  # stragglers beyond those


def rank_summary(run: RunLike) -> RankSummary | None:
    """Return the verdict on the ranks; None for a run of one process, or without steps."""
    steps = rank_steps(run)
    if steps is None:
        return None
    machines = facts(run, steps)
    counted = _counted(steps)
    shares = last_shares(steps, counted)
    ranks = _table(steps, shares, machines)
    stragglers = []
    named_rows = named(steps)
    for rows, share, host in named_rows[:_MOST_EXPLAINED]:
        others = np.setdiff1d(np.arange(len(steps.ranks)), rows)
        why = explain(run, steps, ranks, _worst(steps, rows), others)
        stragglers.append(_straggler(steps, rows, share, host, why))
    took = {int(rank) for rank in steps.ranks}
    known = {entry["rank"] for entry in entries(run.manifest, "ranks") if _is_rank(entry)}
    whole = set(range(steps.world_size)) if steps.world_size <= 1 << 20 else set()
    return RankSummary(
        steps=steps,
        table=ranks,
        over=_over(steps),
        stragglers=stragglers,
        nearest=None if stragglers else _nearest(steps, shares),
        missing=sorted((whole | known) - took),
        decided=int(counted.sum()),
        undecided=int((steps.warm & (steps.last == UNDECIDED)).sum()) if steps.synced else 0,
        mean_ns=_mean_step(steps),
        more=sorted(
            int(steps.ranks[row]) for rows, *_ in named_rows[_MOST_EXPLAINED:] for row in rows
        ),
    )


def _is_rank(entry: Mapping[str, Any]) -> bool:
    return type(entry.get("rank")) is int and entry["rank"] >= 0


# -- who was last ----------------------------------------------------------------------------------


def last_shares(
    steps: RankSteps, counted: Bools, groups: Ints | None = None, rows: Bools | None = None
) -> list[LastShare]:
    """Return how often each rank, or each of `groups` (R,), was last in the steps `counted`.

    Groups are numbered from 0. `rows`: only among these ranks, of whom the last has to be one.
    """
    kept = np.arange(len(steps.ranks)) if rows is None else np.flatnonzero(rows)
    of = np.arange(len(kept)) if groups is None else groups[kept]
    count = int(of.max(initial=-1)) + 1
    columns = np.flatnonzero(counted)
    there = steps.present[np.ix_(kept, columns)]
    place = np.full(len(steps.ranks), -1)
    place[kept] = of
    last = place[steps.last[columns]]
    alike = 1.0 / np.maximum(there.sum(axis=0), 1)  # of each rank that took part
    number_of = max(1, min(_BLOCKS, len(columns) // _LEAST_BLOCK))
    block = np.arange(len(columns)) * number_of // max(len(columns), 1)
    edges = np.searchsorted(block, np.arange(number_of))
    expected = np.zeros((count, number_of))
    taken = np.zeros((count, number_of))
    if len(columns):
        for group in range(count):
            members = there[of == group]
            expected[group] = np.add.reduceat(members.sum(axis=0) * alike, edges)
            taken[group] = np.add.reduceat(members.any(axis=0).astype(float), edges)
    hits = np.zeros((count, number_of))
    np.add.at(hits, (last, block), 1.0)
    alike_for = _run_lengths(steps.late[np.ix_(kept, columns)], of, count)
    return [
        _share(hits[group], expected[group], taken[group], count, float(alike_for[group]))
        for group in range(count)
    ]


def _run_lengths(late: Cells, of: Ints, count: int) -> Floats:
    """Return how many consecutive steps count as one independent step, of each group.

    From the correlation of neighbouring steps' lateness, as of an AR(1) process; its estimate is
    low by (1 + 3 r) / n (Marriott and Pope 1954, Kendall 1954). One that is late by so many
    standard deviations that none of them could make up for it is late in every step by itself.
    """
    lengths = np.ones(count)
    for group in range(count):
        rows = late[of == group].astype(np.float64)
        size = (~np.isnan(rows)).sum(axis=1, keepdims=True)
        mean = np.nansum(rows, axis=1, keepdims=True) / np.maximum(size, 1)
        rows = np.nan_to_num(rows - mean)
        power = (rows**2).sum(axis=1)
        far = mean[:, 0] > _FAR * np.sqrt(power / np.maximum(size[:, 0], 1))
        near = (rows[:, 1:] * rows[:, :-1]).sum(axis=1)
        r = np.divide(near, power, out=np.zeros(len(rows)), where=power > 0)
        r = r + (1 + 3 * r) / np.maximum(size[:, 0], 1)
        r = np.clip(r, 0.0, 0.99)
        lengths[group] = np.where(far, 1.0, (1 + r) / (1 - r)).max(initial=1.0)
    return lengths


def _share(hits: Floats, expected: Floats, taken: Floats, tests: int, run: float) -> LastShare:
    """Return the share of a candidate among `tests`, by steps in blocks.

    `run`: so many steps count as one independent step.
    """
    times, steps = float(hits.sum()), float(taken.sum())
    if not steps:
        return LastShare(0, 0, math.nan, math.nan, math.nan, math.nan, False)
    share, fair = times / steps, float(expected.sum()) / steps
    own = taken > 0
    errors = hits[own] / taken[own] - share
    weight = taken[own] / steps
    blocks = int(own.sum())
    # Of a weighted mean of blocks.
    error = math.sqrt(float((weight**2 * errors**2).sum()) * blocks / (blocks - 1)) if (
        blocks > 1
    ) else math.inf  # fmt: skip

    def interval(level: float) -> tuple[float, float]:
        low, high = wilson(share, steps / run, level)
        reach = t_quantile(blocks - 1, level) * error if blocks > 1 else 1.0
        return max(0.0, min(low, share - reach)), min(1.0, max(high, share + reach))

    low, high = interval(LEVEL)
    strict = interval(LEVEL / max(tests, 1))[0] if tests > 1 else low
    sure = (
        steps >= LEAST_STEPS
        and steps / run >= _LEAST_INDEPENDENT
        and strict > fair
        and share >= min(LEAST_TIMES * fair, 1.0)
    )
    return LastShare(round(times), round(steps), share, low, high, fair, bool(sure))


def _mean_step(steps: RankSteps) -> float:
    """Return the time from one synchronisation to the next, ns: own time and sync, on average."""
    if not steps.synced:
        return math.nan
    whole = np.nan_to_num(steps.wait) + steps.step + np.nan_to_num(steps.sync)
    return _mean(whole[:, steps.warm])


def named(steps: RankSteps) -> list[tuple[Ints, LastShare, str | None]]:
    """Return stragglers: (rows of ranks, how often one of them is last, the host if all its ranks).

    The most often last first; empty where nobody is one.
    """
    counted = _counted(steps)
    if not steps.synced or not counted.any():
        return []
    least = LEAST_BEHIND * _mean_step(steps)
    behind = _row_means(steps.late[:, counted])
    shares = last_shares(steps, counted)
    rows = [row for row, share in enumerate(shares) if share.sure and behind[row] >= least]
    hosts, groups = np.unique(np.array(steps.hosts), return_inverse=True)
    groups = groups.reshape(-1)
    latest: list[tuple[Ints, LastShare, str | None]] = []
    if 1 < len(hosts) < len(steps.ranks):
        for host, share in enumerate(last_shares(steps, counted, groups)):
            members = groups == host
            if not share.sure or members.sum() < 2 or not np.nanmean(behind[members]) >= least:
                continue
            theirs = counted & members[np.maximum(steps.last, 0)]
            if any(entry.sure for entry in last_shares(steps, theirs, rows=members)):
                continue  # it is this one, not its host
            rows = [row for row in rows if not members[row]]
            latest.append((np.flatnonzero(members), share, str(hosts[host])))
    latest += [(np.array([row]), shares[row], None) for row in rows]
    return sorted(latest, key=lambda entry: -entry[1].share)


def _counted(steps: RankSteps) -> Bools:
    return np.asarray(steps.warm & (steps.last >= 0))


def _nearest(steps: RankSteps, shares: Sequence[LastShare]) -> Straggler | None:
    """Return the rank that was last most often; None if nothing is known of arrivals."""
    took = [row for row, share in enumerate(shares) if share.steps]
    if not took or not steps.synced:
        return None
    row = max(took, key=lambda rank_row: shares[rank_row].share)
    return _straggler(steps, np.array([row]), shares[row], None, None)


def _straggler(
    steps: RankSteps, rows: Ints, share: LastShare, host: str | None, why: Why | None
) -> Straggler:
    counted = _counted(steps)
    mine = counted & np.isin(steps.last, rows)
    return Straggler(
        ranks=[int(steps.ranks[row]) for row in rows],
        host=host,
        last=share,
        behind_ns=float(np.nanmean(_row_means(steps.late[np.ix_(rows, np.flatnonzero(counted))]))),
        cost_ns=float(steps.lead_second[mine].sum()) / max(int(counted.sum()), 1),
        why=why,
    )


def _worst(steps: RankSteps, rows: Ints) -> int:
    """Return the one of these ranks that is latest on average."""
    behind = _row_means(steps.late[np.ix_(rows, np.flatnonzero(_counted(steps)))])
    return int(rows[np.argmax(np.where(np.isnan(behind), -np.inf, behind))])


# -- tables ----------------------------------------------------------------------------------------


def _table(steps: RankSteps, shares: Sequence[LastShare], facts: RankFacts) -> pd.DataFrame:
    present = steps.present
    warm = steps.warm
    some = warm.any()  # of a run of one step, that one
    counted = warm if some else np.ones_like(warm)
    leads = np.full(len(steps.ranks), np.nan)
    mine = counted & (steps.last >= 0)
    sums = np.bincount(steps.last[mine], steps.lead_second[mine], len(leads))
    times = np.bincount(steps.last[mine], minlength=len(leads))
    np.divide(sums, times, out=leads, where=times > 0)
    return pd.DataFrame(
        {
            "rank": steps.ranks,
            "host": steps.hosts,
            "cores": facts.cores,
            "model": facts.models,
            "steps": present.sum(axis=1),
            "first_step": present.argmax(axis=1) * steps.thinned,
            "last_step": (present.shape[1] - 1 - present[:, ::-1].argmax(axis=1)) * steps.thinned,
            "wait_ns": _row_means(steps.wait[:, counted]),
            "step_ns": _row_means(steps.step[:, counted]),
            "sync_ns": _row_means(steps.sync[:, counted]),
            "late_ns": _row_means(steps.late[:, counted]),
            "last_steps": [share.times if steps.synced else -1 for share in shares],
            "last_share": [share.share for share in shares],
            "last_low": [share.low for share in shares],
            "last_high": [share.high for share in shares],
            "lead_ns": leads,
            "size": steps.size,
            "sample_ns": facts.sample_ns,
            "workers": facts.workers,
        }
    )


def _over(steps: RankSteps) -> pd.DataFrame:
    named = steps.last >= 0
    return pd.DataFrame(
        {
            "step": np.arange(len(steps.last)) * steps.thinned,
            "ranks": steps.present.sum(axis=0),
            "last": np.where(named, steps.ranks[np.maximum(steps.last, 0)], -1),
            "lead_second_ns": steps.lead_second,
            "lead_median_ns": steps.lead_median,
        }
    )


def _row_means(values: Any) -> Floats:
    known = ~np.isnan(values)
    sums = np.where(known, values, 0).sum(axis=1, dtype=np.float64)
    counts = known.sum(axis=1)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def _mean(values: Any) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean(dtype=np.float64)) if known.size else math.nan
