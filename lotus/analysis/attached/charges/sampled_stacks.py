"""Stacks that were seen in a part of a sampled program, as a table like that of `Run.own_code`."""

import numpy as np
import pandas as pd

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.shares.loop_shares import Sampled
from lotus.analysis.observations.own_code import HotFunction, hot_lines


def stacks_of(seen: Sampled, loop: int, phase: str, part: str) -> pd.DataFrame:
    """Return the stacks in a phase of one loop."""
    samples = seen.samples
    mine = samples[(samples["phase"] == phase) & (samples["loop"].isin((loop, -1)))]
    return _table(seen, mine, part)


def lines_between_loops(seen: Sampled, main: int) -> list[HotFunction]:
    """Return the program's lines at which the thread with the loops was between two loops."""
    mine = seen.samples[seen.samples["pid"] == main]
    threads = mine.loc[mine["loop"] >= 0, "tid"]
    if not len(threads):
        return []
    mine = mine[mine["tid"] == threads.mode().iloc[0]].sort_values("time_ns")
    in_loop = np.flatnonzero((mine["loop"] >= 0).to_numpy())
    between = mine.iloc[int(in_loop[0]) : int(in_loop[-1])]
    outside = between[between["phase"] == phases.OUTSIDE]
    return hot_lines(_table(seen, outside, phases.OUTSIDE), phases.OUTSIDE)


def _table(seen: Sampled, samples: pd.DataFrame, part: str) -> pd.DataFrame:
    counts = samples.groupby("label").size()
    chains = seen.evidence.chains
    chains = chains[chains["label"].isin(counts.index)]
    frame = chains.rename(columns={"label": "stack"})
    return frame.assign(part=part, samples=frame["stack"].map(counts).fillna(0).astype("int64"))
