"""Detects a loop in which nothing moved any more when its program was ended, and what stood."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column, median
from lotus.analysis.common.scope import RunLike, Scope, table
from lotus.analysis.observations.own_code import HotFunction, hot_lines
from lotus.format.hang_threshold import hang_threshold_ns

_ALIKE = 0.9  # of the looks at a process that stands: in the same state
# From the last look at it to the end of the program, which waits for its workers to end.
_LATE_NS = 30e9
_NEXT, _STEP = "(next)", "(step)"


@dataclass(frozen=True)
class LoopStandstill:
    """`still_ns`: from the last thing that moved until the program was ended.

    `workers`: those that stood, or [] where it was the main process. `operation`: in hand, as in
    `Run.standing`. `at`: the program's line at which one of them stood; None: not known.
    """

    still_ns: float
    workers: list[int]
    operation: str
    reason: str
    place: str
    at: HotFunction | None
    of_forked_threads: bool = False  # workers were forked, and torch computes in several threads

    @property
    def in_step(self) -> bool:
        """True if it was the training step that stood."""
        return self.operation == _STEP


def standstill(run: RunLike, scope: Scope) -> LoopStandstill | None:
    """Return what is known of a standstill at the end of a loader's loop; None if it moved.

    Only of a program that did not end by itself and well: else it was a pause.
    """
    stood = _stood(run, scope)
    if not len(stood):
        return None
    of_workers = stood[int_column(stood, "worker") >= 0]
    mine = of_workers if len(of_workers) else stood
    longest = mine.sort_values("since_ns", kind="stable").iloc[0]
    still = float(mine["seen_ns"].max()) - max(_moved_ns(scope), float(longest["since_ns"]))
    usual = np.nan_to_num(
        [
            median(float_column(scope.batches, "fetch_ns")),
            median(float_column(scope.waits, "step_ns")),
        ]
    )
    if still < hang_threshold_ns(max(usual)):
        return None
    lines = hot_lines(scope.own_code, "standing")
    workers = sorted(int(worker) for worker in of_workers["worker"].unique())
    return LoopStandstill(
        still_ns=still,
        workers=workers,
        operation=str(longest["operation"]),
        reason=str(longest["reason"]),
        place=str(longest["place"]),
        at=lines[0] if lines else None,
        of_forked_threads=bool(workers)
        and scope.settings.get("start_method") == "fork"
        and max(int_column(scope.workers, "torch_threads"), default=-1) > 1,
    )


def _stood(run: RunLike, scope: Scope) -> pd.DataFrame:
    """Return the rows of `Run.standing` of a loader's processes that were blocked to the end."""
    rows, manifest = table(run, "standing"), run.manifest
    end = manifest.get("end_ns")
    if not len(rows) or not (manifest.get("signal") or manifest.get("exit_code")):
        return rows.iloc[:0]
    pids = np.concatenate(
        [int_column(each, "pid") for each in (scope.epochs, scope.workers, scope.batches)]
    )
    keep = np.isin(int_column(rows, "pid"), pids) & (rows["reason"] != "computing").to_numpy()
    keep &= (rows["operation"] != _NEXT).to_numpy()  # it waits for others
    keep &= float_column(rows, "alike") >= _ALIKE * float_column(rows, "looks")
    if isinstance(end, int):
        keep &= float_column(rows, "seen_ns") >= end - _LATE_NS
    return rows[keep].reset_index(drop=True)


def _moved_ns(scope: Scope) -> float:
    """Return when the loop last got on: a batch was made, or taken."""
    made = float_column(scope.batches, "fetch_start_ns") + float_column(scope.batches, "fetch_ns")
    begun = float_column(scope.waits, "start_ns")
    times = np.concatenate([made, begun])
    return float(np.nanmax(times)) if np.isfinite(times).any() else 0.0
