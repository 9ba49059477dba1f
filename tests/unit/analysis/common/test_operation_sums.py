import itertools

import numpy as np
import pandas as pd

from lotus.analysis.common.operation_sums import MEASURED, added, sums_of

NAMES = ["Load", "Crop", "Flip"]


def _random(rows: int, seed: int = 0) -> pd.DataFrame:
    """Operations of two loaders, some nested, outside samples or without CPU time."""
    draw = np.random.default_rng(seed)
    cpu = draw.integers(0, 1000, rows).astype(np.float64)
    return pd.DataFrame(
        {
            "rank": draw.integers(0, 2, rows),
            "loader": draw.integers(0, 2, rows),
            "epoch": draw.integers(0, 2, rows),
            "batch": draw.integers(-1, 20, rows),
            "position": draw.integers(-1, 4, rows),
            "operation": pd.Categorical.from_codes(draw.integers(0, 3, rows), NAMES),
            "parent": pd.Categorical.from_codes(draw.integers(0, 2, rows), ["", "Compose"]),
            "nested": draw.random(rows) < 0.2,
            "duration_ns": draw.integers(1, 1 << 30, rows),
            "cpu_ns": np.where(draw.random(rows) < 0.1, np.nan, cpu),
            "minor_faults": cpu,
            "major_faults": np.floor(cpu / 500),
            "read_bytes": cpu * 4096,
            "run_delay_ns": np.where(draw.random(rows) < 0.1, np.nan, cpu // 3),
            "process_cpu_ns": 2 * cpu,
        }
    )


def _by_batch(sums, name: str) -> pd.Series:
    tables = [
        pd.DataFrame(getattr(part, name), columns=part.names)
        .assign(key=list(map(tuple, part.keys.tolist())))
        .melt("key")
        for part in sums.batches
    ]
    whole = pd.concat(tables).groupby(["key", "variable"])["value"].sum()
    return whole[whole > 0].sort_index()


def test_added_in_any_order_they_are_those_of_all_rows() -> None:
    # GIVEN operations cut into pieces at random, in other orders
    ops = _random(3000)
    draw = np.random.default_rng(5)
    cuts = [0, *np.sort(draw.integers(0, len(ops), 12)).tolist(), len(ops)]
    parts = [sums_of(ops.iloc[a:b], a) for a, b in itertools.pairwise(cuts)]
    draw.shuffle(parts)
    # WHEN they are added, THEN all sums are those of all rows at once
    for merged in (added(parts), added([added(parts[:5]), added(parts[5:])])):
        keys = ["loader", "parent", "operation", "in_batch", "in_sample", "nested"]
        cells = merged.cells.set_index(keys).sort_index()
        assert int(cells["count"].sum()) == len(ops)
        in_batch, in_sample = ops["batch"] >= 0, ops["position"] >= 0
        rows = ops.assign(in_batch=in_batch, in_sample=in_sample).astype(
            {"operation": str, "parent": str}
        )
        grouped = rows.groupby(keys)[list(MEASURED)]
        pd.testing.assert_frame_equal(
            cells[list(MEASURED)], grouped.sum().sort_index(), check_dtype=False
        )
        known = cells[[f"known_{name}" for name in MEASURED]].set_axis(list(MEASURED), axis=1)
        pd.testing.assert_frame_equal(known, grouped.count().sort_index(), check_dtype=False)
        top = rows[in_sample & ~ops["nested"]]
        off = (top["duration_ns"] - top["cpu_ns"]).clip(lower=0)
        read = np.maximum(top["read_bytes"] * 2000, top["major_faults"] * 20e6)
        values = {
            "took": top["duration_ns"],
            "cpu": top["cpu_ns"],
            "unmeasured": top["cpu_ns"].isna(),
            "stalled": np.minimum(off, read),
        }
        places = [*zip(top["rank"], top["loader"], top["epoch"], top["batch"], strict=True)]
        for name, of_row in values.items():
            frame = pd.DataFrame({"key": places, "variable": top["operation"], "value": of_row})
            sums = frame.groupby(["key", "variable"])["value"].sum()
            assert _by_batch(merged, name).to_dict() == sums[sums > 0].to_dict(), name
        for (loader, name), took in merged.durations.items():
            mine = rows[(rows["loader"] == loader) & (rows["operation"] == name)]["duration_ns"]
            assert took.quantiles([0.5, 0.9]) == np.quantile(mine, [0.5, 0.9]).tolist()
