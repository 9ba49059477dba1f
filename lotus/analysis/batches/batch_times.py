"""Times per batch, their order of arrival, and for how many batches they were recorded."""

import numpy as np
import pandas as pd

from lotus.analysis.batches.usual_durations import usual_durations
from lotus.analysis.common.columns import distribution, flag, float_column, int_column, ratio
from lotus.analysis.common.scope import Scope
from lotus.inside.trace.log.log_format import STOPPED

MEASURES = (
    # name, column: the stages of a batch, in that order
    ("fetch", "fetch_ns"),
    ("collate", "collate_ns"),
    ("send", "send_ns"),
    ("pin", "pin_ns"),
    ("wait", "wait_ns"),
    ("delay", "delay_ns"),
    ("step", "step_ns"),
    ("device idle", "device_idle_ns"),
    ("device busy", "device_busy_ns"),
)
_OF_LOOP = ("wait", "step", "device idle", "device busy")


def batch_table(scope: Scope, threshold_ns: float) -> pd.DataFrame:
    """Return one row per measure: its distribution over the batches.

    Columns: measure count total_ns mean_ns p50_ns p95_ns p99_ns std_ns max_ns over_share.

    over_share: the share of batches above `threshold_ns`. Measures that were not recorded are left
    out. Steps and waits, and what a device did in them, are those of the loop; the others are of
    the batch. That a device was busy is at most.
    """
    rows = []
    for name, column in MEASURES:
        source = scope.waits if name in _OF_LOOP else scope.batches
        values = float_column(source, column)
        measured = values[~np.isnan(values)]
        if not measured.size:
            continue
        spread = distribution(measured)
        rows.append(
            {
                "measure": name,
                "count": spread.pop("count"),
                **{f"{key}_ns": value for key, value in spread.items()},
                "over_share": float((measured > threshold_ns).mean()),
            }
        )
    return pd.DataFrame(rows)


def order(scope: Scope) -> dict[str, float]:
    """Return the shares of batches that came early, late, in turn, and out of order in all."""
    batches = scope.batches
    arrived = float_column(batches, "arrival_ns")
    # 0: there is no queue between the main process and itself.
    counted = ~np.isnan(arrived) & (arrived > 0)
    count = int(counted.sum())
    came = batches["order"] if "order" in batches else pd.Series(np.full(len(batches), ""))
    shares = {
        # Categories are compared as they are: as text it would take a hundred times as long.
        f"{name.replace(' ', '_')}_share": ratio(float((came == name)[counted].sum()), count)
        for name in ("early", "late", "in turn")
    }
    out = float(flag(batches, "out_of_order")[counted].sum())
    return {"batches": count, "out_of_order_share": ratio(out, count), **shares}


def coverage(scope: Scope) -> dict[str, float]:
    """Return how many batches were taken, and how many of them have which records.

    usual_sample_error: how far the median time of a sample, against which slow ones are judged, may
    lie from the exact one, as a share of it.
    """
    batches = scope.batches
    taken = ~np.isnan(float_column(batches, "wait_ns"))
    # The fetch by which a worker learns that its iterable data set has ended makes no batch.
    ended = (int_column(batches, "flags", 0) & STOPPED != 0) & ~taken
    made = ~np.isnan(float_column(batches, "fetch_ns")) & ~ended
    return {
        "batches_taken": len(scope.waits),
        "batches_made": int(made.sum()),
        "batches_recorded_whole": int((taken & made).sum()),
        "made_never_taken": int((made & ~taken).sum()),
        "samples_recorded": scope.fetched.count,
        "operations_recorded": scope.calls.count,
        "usual_sample_error": usual_durations(scope).error,
    }
