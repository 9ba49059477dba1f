"""Advice that changes no code, described so that it can be predicted and tried."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lotus.analysis.replay.gain_prediction import UNKNOWN, Prediction
from lotus.analysis.verdict.causes.circumstances import Circumstances
from lotus.analysis.verdict.causes.worker_advice import worker_advice

WORKERS, PREFETCH = "num_workers", "prefetch_factor"
PERSISTENT, PINNED = "persistent_workers", "pin_memory"


@dataclass(frozen=True)
class Remedy:
    """`setting`: parameters of the DataLoader; `environment`: variables of the program's.

    Both are empty where the advice is a change of code.
    """

    setting: Mapping[str, int | bool] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    expected: Prediction = UNKNOWN


CODE = Remedy()


def set_workers(around: Circumstances, waits: bool = False, steady: bool = True) -> Remedy:
    """The number of workers that is advised; CODE where none is.

    `waits`: the cause needs no core; `steady`: a batch takes as long whatever their number.
    """
    advised = worker_advice(around, waits)
    count, kept = advised.workers, advised.kept
    if count is None:
        return CODE
    expected = around.predict.with_workers(count, kept) if steady and around.predict else UNKNOWN
    if waits:  # whoever is waited for may answer only so many at once
        expected = replace(expected, at_best=True)
    setting: dict[str, int | bool] = {WORKERS: count}
    return Remedy(setting | ({PERSISTENT: True} if kept else {}), expected=expected)


def set_prefetch(around: Circumstances, prefetch: int) -> Remedy:
    """Another prefetch factor."""
    expected = around.predict.with_prefetch(prefetch) if around.predict else UNKNOWN
    return Remedy({PREFETCH: prefetch}, expected=expected)


def keep_workers(around: Circumstances) -> Remedy:
    """Workers that are kept from one epoch to the next."""
    expected = around.predict.with_kept_workers() if around.predict else UNKNOWN
    return Remedy({PERSISTENT: True}, expected=expected)


def set_threads(count: int) -> Remedy:
    """Fewer threads of OpenMP, and so of torch."""
    return Remedy(environment={"OMP_NUM_THREADS": str(count)})
