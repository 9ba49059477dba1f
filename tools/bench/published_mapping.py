"""Applies a mapping of the Lotus authors' isolated runs to their whole runs.

    PYTHONPATH=. python tools/bench/published_mapping.py DATA [--minimum-runs 2] [--json FILE]

DATA is the folder with `vtune/isolated/OPERATION/N.csv`, `vtune/uarch/b1024_gpu4_workersN.csv` and
the two `lotus_fig1_*` tables. Printed for each number of workers and each operation are the time
that the Lotus authors traced (Figure 1 b), the time that the mapping attributes, the four top-down
shares, and how well they are supported; then where the mapping is weak.
"""

import argparse
import sys
from pathlib import Path

import pandas as pd

from native_map.errors import Unusable
from native_map.paper import paper_mapping as maps
from native_map.paper.attribution import apply
from native_map.paper.importers import Profile, load

WORKERS = (8, 16, 28)
TOPDOWN = ("retiring", "frontend_bound", "bad_speculation", "backend_bound")
LINE = "{:20} {:>8} {:>8} {:>6} {:>8} | {:>6} {:>6} {:>6} {:>6} {:>5} | {:>7} {:>6} {:>6}"


def isolated_runs(data: Path) -> tuple[pd.DataFrame, dict[str, int]]:
    """All isolated runs as rows for `build`, and how many each operation has."""
    files = sorted((data / "vtune" / "isolated").glob("*/*.csv"))
    if not files:
        raise Unusable(f"{data} has no vtune/isolated/OPERATION/N.csv; give the published data")
    parts = [maps.rows_of(load(file), file.parent.name, file.stem) for file in files]
    counts = pd.Series([file.parent.name for file in files]).value_counts()
    return pd.concat(parts, ignore_index=True), {str(k): int(v) for k, v in counts.items()}


def figure_1(data: Path) -> tuple[pd.Series, pd.DataFrame]:
    """Elapsed seconds by workers; CPU seconds by workers and operation."""
    elapsed = pd.read_csv(data / "lotus_fig1_elapsed_seconds.csv", sep="\t", index_col=0)
    traced = pd.read_csv(data / "lotus_fig1_cpu_seconds.csv", index_col=0)
    return elapsed.iloc[:, 0], traced


def whole_run(data: Path, workers: int) -> Profile:
    return load(data / "vtune" / "uarch" / f"b1024_gpu4_workers{workers}.csv")


def show(mapping: maps.Mapping, profile: Profile, traced: pd.Series, elapsed: float) -> None:
    summed, pairs, left = apply(mapping, profile, traced.to_dict())
    whole = profile.totals["cpu_ns"]
    for name in profile.additive:
        total = pairs[name].sum() + left[name].sum()
        assert abs(total - profile.totals[name]) <= 1e-9 * profile.totals[name], name
    print(f"   elapsed {elapsed:,.0f} s; CPU time of the whole profile {whole / 1e9:,.0f} s")
    titles = ["operation", "traced s", "mapped s", "m/t", "at equal", "retire", "front", "badspc"]
    print(LINE.format(*titles, "back", "IPC", "covered", "shared", "few"))
    equal = apply(mapping, profile)[0].set_index("operation")["cpu_ns"]
    for row in summed.to_dict("records"):
        name = row["operation"]
        mapped, measured = row["cpu_ns"] / 1e9, traced[name]
        shares = [f"{row[share] * 100:.1f}" for share in TOPDOWN]
        rests = [f"{row[what] * 100:.0f}%" for what in ("covered", "shared", "few_runs")]
        front = [name, f"{measured:.0f}", f"{mapped:.0f}", f"{mapped / measured:.2f}"]
        front.append(f"{equal[name] / 1e9:.0f}")
        print(LINE.format(*front, *shares, f"{row['ipc']:.2f}", *rests))
    ratios = summed["retiring"] / summed["frontend_bound"]
    measured = ", ".join(f"{n} {r:.1f}" for n, r in zip(summed["operation"], ratios, strict=True))
    print(f"   retiring / front-end: {measured}")
    rest = left.groupby("reason")["cpu_ns"].sum().sort_values(ascending=False) / whole
    attributed = pairs["cpu_ns"].sum() / whole
    print(f"   of the profile's CPU time: {attributed:.1%} attributed; left over:", end=" ")
    print(", ".join(f"{share:.1%} {reason}" for reason, share in rest.items()))
    largest = left.nlargest(6, "cpu_ns")
    print("   largest left over:", end=" ")
    print(", ".join(f"{r.function[:45]} {r.cpu_ns / whole:.1%}" for r in largest.itertuples()))
    for note in profile.notes:
        print(f"   note: {note}")


def weakness(runs: pd.DataFrame, counts: dict[str, int], mapping: maps.Mapping) -> None:
    frame = mapping.functions
    once = frame[frame["runs"] == 1]
    print(f"\nWhere it is weak: {len(frame)} pairs, {len(once)} of them seen in one run only:")
    for name, group in once.groupby("operation"):
        listed = ", ".join(f"{f[:60]}" for f in group["function"])
        print(f"   {name} ({counts[str(name)]} runs): {listed}")
    loop = frame[frame["function"] == "_PyEval_EvalFrameDefault"]
    for row in loop.itertuples():
        print(f"   the interpreter's loop: {row.operation}, {row.runs} run of {row.of}")
    unknown = frame[frame["module"] == ""]
    print(f"   pairs of unknown module in the isolated runs: {len(unknown)}")
    print("   every match over the whole runs is by function name alone: they know no module")
    for minimum in (1, 2, 5, 10):
        kept = maps.build(runs, minimum, counts).kept
        shared = kept.groupby(["module", "function"])["operation"].nunique().gt(1).sum()
        print(f"   seen in at least {minimum:2} runs: {len(kept)} pairs, {shared} functions shared")


def single(runs: pd.DataFrame, counts: dict[str, int], profile: Profile, traced: pd.Series) -> None:
    """What pairs that were seen only once would do to the operations."""
    print(f"   {WORKERS[0]} workers, mapped seconds (front-end %) by the fewest runs asked for:")
    for minimum in (1, 2, 5):
        summed = apply(maps.build(runs, minimum, counts), profile, traced.to_dict())[0]
        parts = ", ".join(
            f"{r.operation} {r.cpu_ns / 1e9:.0f} ({r.frontend_bound * 100:.1f})"
            for r in summed.itertuples()
        )
        print(f"      {minimum}: {parts}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--minimum-runs", type=int, default=maps.MINIMUM_RUNS)
    parser.add_argument("--json", type=Path, help="write the mapping there")
    args = parser.parse_args()
    try:
        runs, counts = isolated_runs(args.data)
        facts = {"source": "VTune isolated runs of github.com/rajveerb/lotus"}
        mapping = maps.build(runs, args.minimum_runs, counts, facts)
        if args.json:
            maps.write(mapping, args.json)
        elapsed, traced = figure_1(args.data)
        print("traced s: Figure 1 b. mapped s: CPU time attributed, shared functions split by each")
        print(
            "operation's isolated time scaled to the traced seconds; at equal: unscaled. covered:"
        )
        print("share of the isolated time whose functions the whole run has; shared, few: share of")
        print("the cycles from functions of several operations, and from pairs of few runs.")
        for workers in WORKERS:
            print(f"\n{workers} workers")
            show(mapping, whole_run(args.data, workers), traced.loc[workers], elapsed[workers])
        weakness(runs, counts, mapping)
        single(runs, counts, whole_run(args.data, WORKERS[0]), traced.loc[WORKERS[0]])
    except Unusable as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
