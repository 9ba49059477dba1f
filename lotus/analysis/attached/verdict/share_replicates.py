"""Draws replicates of the shares of a sampled loop, which show how certain these are."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.evidence.evidence import AttachEvidence
from lotus.analysis.attached.shares.loop_shares import Component
from lotus.analysis.attached.verdict.sampled_verdict import LoopSummary
from lotus.analysis.common.columns import ratios
from lotus.common.numbers import bootstrap
from lotus.common.numbers.array_types import Floats
from lotus.common.numbers.statistics import z_quantile

_BIN_NS = 100_000_000


@dataclass(frozen=True)
class ShareReplicates:
    """Each share as in the report, followed by its replicates.

    wait, step   of the loop's time
    made         of the making of batches, by what makes them
    blocks       how many pieces of the time the replicates were drawn from
    """

    wait: tuple[float, Floats]
    step: tuple[float, Floats]
    made: dict[Component, tuple[float, Floats]]
    blocks: float


def share_replicates(
    evidence: AttachEvidence, loop: LoopSummary, seed: tuple[int, ...]
) -> ShareReplicates:
    """Draw blocks of the time, the same ones for all shares.

    The shares of waits and steps also vary with the error of the stacks' times.
    """
    shown = loop.operations
    components = list(zip(shown["phase"].astype(str), shown["name"].astype(str), strict=True))
    parts, wholes = _binned(evidence, loop.loop, components)
    shares = ratios(parts.sum(axis=0), wholes.sum(axis=0))
    length = bootstrap.block_length(parts - np.nan_to_num(shares) * wholes)
    drawn = bootstrap.draw(len(parts), length, np.random.default_rng(seed))
    sums = bootstrap.replicated(np.concatenate([parts, wholes], axis=1), length, drawn)
    relative = ratios(ratios(sums[:, : parts.shape[1]], sums[:, parts.shape[1] :]), shares)
    values = [loop.verdict.input_share, loop.verdict.step_share, *shown["share"].astype(float)]
    scaled = [
        (float(value), np.asarray(value * relative[:, column]))
        for column, value in enumerate(values)
    ]
    made = dict(zip(components, scaled[2:], strict=True))
    unsure = _unsure(loop, scaled[0][1], np.random.default_rng((*seed, 1)))
    wait, step = (
        (value, drawn + part)
        for (value, drawn), part in zip(scaled[:2], (unsure, -unsure), strict=True)
    )  # what is no wait is a step
    return ShareReplicates(wait, step, made, bootstrap.blocks(len(parts), length))


def _unsure(loop: LoopSummary, waits: Floats, generator: np.random.Generator) -> Floats:
    """Return what to add to replicates of the waits' share so that their interval is the verdict's.

    The interval of the verdict includes the error of the stacks' times (wait_interval), which
    does not show in the variation over time.
    """
    half = (loop.verdict.input_high - loop.verdict.input_low) / 2
    more = (half / z_quantile()) ** 2 - float(np.var(waits))
    spread = float(np.sqrt(more)) if more > 0 else 0.0  # NaN: no interval is known
    return generator.normal(0.0, spread, len(waits))


def _binned(
    evidence: AttachEvidence, loop: int, components: list[Component]
) -> tuple[Floats, Floats]:
    """Return the time of waits, steps and components, and the whole, of pieces of the loop.

    Each is (pieces, 2 + components); the whole is what a column is a share of.
    """
    samples = evidence.samples.join(evidence.labels, on="label")
    main = samples["pid"].isin(evidence.mains)
    of_loop, phase = samples["loop"] == loop, samples["phase"]
    own = ~main & (samples["pid"] == samples["tid"]) & samples["loop"].isin((loop, -1))
    looped, making = main & of_loop, phase.isin(phases.MAKING) & ((main & of_loop) | own)
    first, last = int(samples["time_ns"].min()), int(samples["time_ns"].max())
    width = max(_BIN_NS, (last - first) // bootstrap.MOST_BINS + 1)
    piece = ((samples["time_ns"] - first) // width).to_numpy(np.int64)
    weight, count = samples["weight_ns"].to_numpy(np.float64), (last - first) // width + 1

    def sums(which: pd.Series) -> Floats:
        rows = which.to_numpy()
        return np.bincount(piece[rows], weight[rows], count).astype(np.float64)

    parts = [sums(looped & phase.isin(phases.IN_NEXT)), sums(looped & (phase == phases.STEP))]
    for kind, name in components:
        parts.append(sums(making & (phase == kind) & (samples["name"] == name)))
    wholes = [sums(looped)] * 2 + [sums(making)] * len(components)
    met = wholes[0] > 0
    return np.stack(parts, axis=1)[met], np.stack(wholes, axis=1)[met]
