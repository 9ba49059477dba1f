"""A verdict without stacks, from what every user can read of threads."""

import math

import numpy as np
import pandas as pd

from lotus.analysis.attached.evidence.evidence import AttachEvidence
from lotus.analysis.common.columns import ratio
from lotus.analysis.verdict.verdict import Verdict
from lotus.common.text.formatting import share

_BUSY, _IDLE, _STILL = 0.8, 0.5, 0.002
_LEAST_LOOKS = 50
_DOUBT = (
    "No Python stack could be read, so this is a conclusion from the use of cores alone; what the "
    "time goes to is not known."
)


def limited_verdict(evidence: AttachEvidence) -> Verdict | None:
    """Return a verdict that concludes from the use of cores who waits for whom.

    If workers never rest, the loop waits for them. None if too little could be read.
    """
    mains = evidence.looks[evidence.looks["pid"].isin(evidence.mains)]
    workers = evidence.looks[~evidence.looks["pid"].isin(evidence.mains)]
    if len(mains) < _LEAST_LOOKS or not len(workers):
        return None
    busy, idle = (_wanting(looks) for looks in (workers, mains))
    cores = _cores_of(evidence)
    figures = (
        f"The workers compute, or are ready to, {share(busy)} of their time; the main process uses "
        f"{cores:.2g} cores, its main thread {share(idle)} of one"
    )
    if busy >= _BUSY and idle <= _IDLE:
        text = f"{figures}: most likely the loop waits for the workers."
        return _verdict("input-bound", "highly", text)
    if busy <= _IDLE and max(idle, cores) >= _BUSY:
        text = f"{figures}: most likely the training step binds, and the workers wait for it."
        return _verdict("consumer-bound", "not", text)
    if busy + idle + cores <= _STILL:
        text = f"{figures}: it hangs, or all of it waits for something that is not on a core."
        return _verdict("unknown", "", text)
    return _verdict("unknown", "", f"{figures}: which of them waits for the other is not known.")


def _wanting(looks: pd.DataFrame) -> float:
    """Return the share of the time that a thread was on a core or ready for one."""
    wall = float(looks["wall_ns"].sum())
    return ratio(float(looks["cpu_ns"].sum() + looks["delay_ns"].sum()), wall)


def _cores_of(evidence: AttachEvidence) -> float:
    processes = evidence.processes
    mine = processes[processes["worker"] < 0]
    used = mine["cpu_ns"].to_numpy(np.float64)
    return float(used[used >= 0].sum()) / evidence.elapsed_ns


def _verdict(kind: str, degree: str, summary: str) -> Verdict:
    nan = math.nan
    return Verdict(kind, degree, summary, nan, nan, nan, nan, [], doubt=_DOUBT)
