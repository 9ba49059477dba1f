"""Measures the training speed with each strategy's shares of `lotus balance` on mixed clusters.

    PYTHONPATH=. python tools/bench/ranks/balance_measured.py [OPTION]

    (none)    the full run: about 45 minutes on two free cores; started again, it continues
    --quick   one small cell, in less than two minutes
    --report  tables and picture of the results so far

A cell is a cluster made on this machine (balance_clusters.py: quotas of CPU time, limited storage,
slow links) and a model (balance_models.py). In each cell the script balance_train.py, which knows
nothing of lotus, is traced with equal batches and with half of them; from these two runs each
strategy makes its plan (`random` makes another one in each round). The oracle is the best split
found by a search over real updates in one process (balance_search.py), which starts from equal
shares, those of lotus and those of bno.
Each round takes the cells in random order. In a cell each strategy trains once, in random order,
under `lotus run --settings PLAN`, and each rank prints the batches that it had. If --minutes are
over, the last rounds contain only the first cells. Needs root. Printed are samples per second and
milliseconds per update: medians and ranges over the rounds.
"""

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from lotus.balance.rank_measurements import measure
from lotus.balance.split import SplitOptions, balance
from lotus.balance.step_prediction import predict
from lotus.common.errors import LotusError
from lotus.common.storage import files
from lotus.reading.run import load
from lotus.settings import share_plan as plans
from tools.bench import provenance
from tools.bench.measurements import RESULTS, Measurements, stoppable
from tools.bench.ranks import balance_clusters, balance_plot, balance_table
from tools.bench.ranks.balance_clusters import CLUSTERS
from tools.bench.ranks.balance_table import ORACLE, STRATEGIES, Row, scaled

HERE = Path(__file__).parent
SCRIPT = HERE / "balance_train.py"


@dataclass(frozen=True)
class Cell:
    """A model on a cluster. `batch`: per rank, as in the script."""

    cluster: str
    model: str
    batch: int
    updates: int = 100
    warm: int = 10
    workers: int = 0
    traced: int = 70  # updates in each of the two traces
    block: int = 15  # updates of each split that the search tries
    splits: int = 16  # that it tries at most

    @property
    def name(self) -> str:
        return f"{self.cluster} {self.model}"

    @property
    def ranks(self) -> int:
        return len(CLUSTERS[self.cluster])


FULL = (
    Cell("quota2", "cnn", 64),
    Cell("quota2", "alexnet", 32),
    Cell("quota2", "resnet", 24),
    Cell("quota2", "vgg", 32),
    Cell("quota3", "resnet", 24, splits=24),
    Cell("storage2", "cnn", 64, workers=2, block=30),
    Cell("links3", "cnn", 64, splits=24),
)
QUICK = (Cell("quota2", "cnn", 64, updates=40, traced=30, block=8, splits=6),)


class RunFailedError(Exception):
    """A run of the script left no result."""


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.commit = provenance.commit()
        self.disk = balance_clusters.disk_of(args.work)

    def start(self, cell: Cell, before: Sequence[str], *more: str) -> dict[str, Any]:
        """Run the script on its cluster, under `before`; return rank 0's result.

        Raises RunFailedError.
        """
        options = ["--model", cell.model, "--batch", str(cell.batch)]
        options += ["--workers", str(cell.workers), "--warm", str(cell.warm)]
        members = CLUSTERS[cell.cluster]
        if any(member.reads_per_s for member in members):
            options += ["--file", str(self.args.work / "pictures")]
        with balance_clusters.made(members, self.args.work, self.disk) as places:
            train = balance_clusters.command(places, len(members), SCRIPT, [*options, *more])
            text, status = run([*before, *train], self.args.limit)
        for line in text.splitlines():
            if line.startswith("RESULT "):
                results: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
                results["said"] = [line for line in text.splitlines() if line.startswith("lotus: ")]
                return results
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        raise RunFailedError(
            f"exit code {status}; last line: {lines[-1][:200] if lines else 'none'}"
        )

    def prepare(self, cell: Cell) -> dict[str, Any]:
        """Trace, plan and search: the data of a cell besides its rows."""
        members = CLUSTERS[cell.cluster]
        prepared: dict[str, Any] = {**asdict(cell), "words": balance_clusters.words(members)}
        prepared["short"] = prepared["words"].replace(" cores", "").replace(" | ", "\n")
        prepared["skipped"] = balance_clusters.missing(members)
        if prepared["skipped"]:
            return prepared
        runs = [self.args.work / f"{cell.cluster}-{cell.model}-{n}" for n in ("whole", "half")]
        prepared["traced_ms"] = []
        for path, batch in zip(runs, (cell.batch, cell.batch // 2), strict=True):
            trace = [*lotus("trace"), "-q", "-o", str(path), "--force", "--"]
            results = self.start(cell, trace, "--batch", str(batch), "--updates", str(cell.traced))
            prepared["traced_ms"].append(results["mean_s"] * 1e3)
        run, also = load(runs[0]), [load(runs[1])]
        prepared["plans"] = {}
        for strategy in STRATEGIES[:-1]:
            for seed in range(self.args.rounds) if strategy == "random" else (0,):
                plan = balance(run, SplitOptions(strategy=strategy, seed=seed), also).plan()
                prepared["plans"][f"{strategy} {seed}"] = plans.document(plan)
        best = self.search(cell, prepared)
        step = asdict(predict(measure(run, None, also), best))
        step = {key: None if math.isnan(value) else value for key, value in step.items()}
        prepared["plans"][f"{ORACLE} 0"] = plans.document(
            replace(
                plans.parse(prepared["plans"]["lotus 0"]),
                batch_sizes=best,
                strategy="random",
                predicted={"step_after_s": step},
                notes=("found by a search over real updates",),
            )
        )
        return prepared

    def search(self, cell: Cell, prepared: dict[str, Any]) -> tuple[int, ...]:
        total = cell.batch * cell.ranks
        bno = scaled(prepared["plans"]["bno 0"]["batch_sizes"], total)
        prepared["bno_scaled"] = words(bno)
        starts = [
            prepared["plans"][f"{strategy} 0"]["batch_sizes"] for strategy in ("equal", "lotus")
        ]
        splits = [words(sizes) for sizes in (*starts, bno)]
        options = ["--block", str(cell.block), "--most", str(cell.splits)]
        prepared["scan"] = self.start(cell, [], "--scan", *splits, *options)
        return tuple(prepared["scan"]["best"])

    def measured(self, cell: Cell, prepared: dict[str, Any], number: int, strategy: str) -> Row:
        """Measure one strategy in one cell, once."""
        seed = number if strategy == "random" else 0
        plan = prepared["plans"][f"{strategy} {seed}"]
        row = Row(number, cell.name, strategy, words(plan["batch_sizes"]), commit=self.commit)
        row.at = time.strftime("%F %T")
        path = self.args.work / "plan.json"
        files.replace(path, json.dumps(plan))
        step = plan["predicted"].get("step_after_s") or {}
        row.predicted_ms, row.low_ms, row.high_ms = (
            None if step.get(key) is None else step[key] * 1e3 for key in ("seconds", "low", "high")
        )
        before = [*lotus("run"), "-q", "--settings", str(path), "--"]
        try:
            results = self.start(cell, before, "--updates", str(cell.updates))
        except RunFailedError as error:
            row.failed = str(error)
            return row
        if results["batches"] != plan["batch_sizes"]:
            row.failed = f"the ranks had batches of {words(results['batches'])}"
        row.updates = results["updates"]
        row.update_ms, row.median_ms, row.deviation_ms = (
            results[key] * 1e3 for key in ("mean_s", "median_s", "deviation_s")
        )
        row.per_100_ms = " ".join(f"{seconds * 1e3:.2f}" for seconds in results["per_100_s"])
        row.samples_per_s = results["samples_per_s"]
        return row


def lotus(verb: str) -> list[str]:
    return [sys.executable, "-m", "lotus", verb]


def words(sizes: Sequence[int]) -> str:
    return "/".join(map(str, sizes))


def environ() -> dict[str, str]:
    leave = ("LOTUS_", "OMP_NUM_THREADS", "PYTHONDONTWRITEBYTECODE")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(leave)}
    return {**variables, "PYTHONPATH": str(provenance.ROOT), "OMP_NUM_THREADS": "1"}


def run(command: Sequence[str], limit: float) -> tuple[str, int]:
    """Return (all output of a command, its exit code); kill it with its session at the limit."""
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ(),
            start_new_session=True,
        )  # fmt: skip
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            status = -1
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        out.seek(0)
        text = out.read()
    return text + (f"\nnot done after {limit:.0f} s" if status == -1 else ""), status


def facts(args: argparse.Namespace, cells: Sequence[Cell]) -> dict[str, Any]:
    """Return the conditions of the measurements, which must be the same to continue them."""
    import torch

    return {
        **provenance.machine(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "quick": args.quick,
        "seed": args.seed,
        "cells": [asdict(cell) for cell in cells],
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [cell.name for cell in FULL]
    add = parser.add_argument
    add("--quick", action="store_true", help="one small cell, a round, two strategies")
    add("--report", action="store_true", help="measure nothing, write the tables")
    add("--fresh", action="store_true", help="throw away what was measured")
    add("--cell", nargs="+", choices=names, help=f"now only these of: {', '.join(names)}")
    add("--rounds", type=int, default=3, help="(3)")
    add("--minutes", type=float, default=1e9, help="leave out rounds that would end after so many")
    add("--limit", type=float, default=240.0, help="seconds for one run (240)")
    add("--seed", type=int, default=0, help="of the order (0)")
    add("--work", type=Path, help="folder for traces, on a disk", default=None)
    add("-o", "--output", type=Path, help="folder of the results")
    args = parser.parse_args()
    if args.quick:
        args.rounds = 1
    scratch = Path(tempfile.gettempdir())
    args.work = args.work or scratch / "lotus-balance"
    args.output = args.output or (scratch / "lotus-balance-quick" if args.quick else RESULTS)
    return args


def show(results: Measurements[Any], table: ModuleType, plot: ModuleType) -> None:
    """Write and print the tables and the picture of the results so far."""
    conditions, rows = results.known(), results.read()
    drawn = plot.draw(conditions, rows, results.folder)
    results.show(table.text(conditions, rows), table.markdown(conditions, rows), drawn)


def main() -> None:
    args = arguments()
    for folder in (args.output, args.work):
        folder.mkdir(parents=True, exist_ok=True)
    results = Measurements(args.output, "balance_measured", Row)
    if not args.report:
        with balance_clusters.alone(), stoppable():
            measure_cells(args, results)
    show(results, balance_table, balance_plot)


def measure_cells(args: argparse.Namespace, results: Measurements[Row]) -> None:
    """Prepare the remaining cells, and make their rounds."""
    began = time.monotonic()
    every = QUICK if args.quick else FULL
    cells = [cell for cell in every if args.quick or not args.cell or cell.name in args.cell]
    conditions_now = facts(args, every)
    if args.fresh or args.quick:
        results.throw_away()
    conditions = (
        results.known() if results.json.exists() else {"facts": conditions_now, "cells": {}}
    )
    results.must_be_of(conditions["facts"], conditions_now)
    bench = Bench(args)
    for cell in cells:
        if cell.name not in conditions["cells"]:
            since = time.monotonic()
            try:
                conditions["cells"][cell.name] = bench.prepare(cell)
            except (RunFailedError, LotusError) as error:
                conditions["cells"][cell.name] = {
                    **asdict(cell),
                    "words": balance_clusters.words(CLUSTERS[cell.cluster]),
                    "skipped": f"could not be prepared: {error}",
                }
            results.know(conditions)
            print(f"{cell.name}: prepared in {time.monotonic() - since:.0f} s", end="; ")
            print(
                conditions["cells"][cell.name]["skipped"] or planned(conditions["cells"][cell.name])
            )
    rounds(args, bench, cells, conditions, results, began)


def planned(conditions: dict[str, Any]) -> str:
    plan = {
        name.split()[0]: words(plan["batch_sizes"]) for name, plan in conditions["plans"].items()
    }
    return ", ".join(f"{name} {sizes}" for name, sizes in plan.items())


def rounds(
    args: argparse.Namespace, bench: Bench, cells: Sequence[Cell], conditions: dict[str, Any],
    results: Measurements[Row], began: float,
) -> None:  # fmt: skip
    """Make the missing runs, and append each of them at once."""
    shuffle = random.Random(args.seed)
    rows = results.read()
    existing = {(row.round, row.cell, row.strategy) for row in rows}
    results.write(rows)
    strategies = ("equal", "lotus") if args.quick else STRATEGIES
    sound = [cell for cell in cells if not conditions["cells"][cell.name]["skipped"]]
    durations: dict[str, float] = {}  # seconds, of a cell in a round
    for number in range(args.rounds):
        spent = time.monotonic() - began
        fitting_cells = fitting(sound, durations, args.minutes * 60 - spent)
        for cell in sound:
            if cell not in fitting_cells:
                print(f"no time for round {number + 1} of {cell.name}", flush=True)
        for cell in shuffle.sample(fitting_cells, len(fitting_cells)):
            since = time.monotonic()
            order = shuffle.sample(strategies, len(strategies))
            for strategy in (name for name in order if (number, cell.name, name) not in existing):
                row = bench.measured(cell, conditions["cells"][cell.name], number, strategy)
                results.append(row)
                outcome = f"failed: {row.failed[:90]}" if row.failed else f"{row.update_ms:.1f} ms"
                print(
                    f"round {number + 1}: {cell.name} {strategy} {row.sizes}: {outcome}", flush=True
                )
            if any((number, cell.name, strategy) not in existing for strategy in order):
                durations[cell.name] = max(time.monotonic() - since, durations.get(cell.name, 0.0))


def fitting(
    cells: Sequence[Cell], durations: Mapping[str, float], seconds_left: float
) -> list[Cell]:
    """Return the first cells that have time for another round."""
    fits = []
    for cell in cells:
        seconds_left -= durations.get(cell.name, 0.0)
        if seconds_left > 0:
            fits.append(cell)
    return fits


if __name__ == "__main__":
    main()
