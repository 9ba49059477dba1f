"""Measures speed and loss of training in each mode of `lotus run --mode` on a mixed cluster.

    PYTHONPATH=. python tools/bench/ranks/modes_measured.py [OPTION]

    (none)    the full run: about 12 minutes on two free cores; started again, it continues
    --quick   one round, few pictures
    --report  tables and picture of the results so far

Three ranks, two with 0.6 cores and one with 0.3 (balance_clusters.py), train the small CNN of
balance_models.py with the same unchanged script: as it is; with the shares of `lotus balance`; with
parameters averaged every 8 batches (`local`); the same between the group of the two equal ranks and
the slow one (`hybrid`); and asynchronously (`async`). Each round has another seed: other pictures,
parameters and order. After each epoch, outside of the measured time, each rank computes the
validation loss of its own model on its part. Printed are each mode's speed and loss, beside what
`lotus balance` predicts from two traces. Needs root.
"""

import argparse
import json
import math
import random
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lotus.balance.split import SplitOptions, balance
from lotus.common.storage import files
from lotus.reading.run import load
from lotus.settings import share_plan as plans
from tools.bench.measurements import RESULTS, Measurements, stoppable
from tools.bench.ranks import balance_clusters, balance_measured, modes_plot, modes_table
from tools.bench.ranks.balance_clusters import CLUSTERS
from tools.bench.ranks.balance_measured import Bench, Cell, RunFailedError
from tools.bench.ranks.modes_table import AS_WRITTEN, Row

CELL = Cell("modes3", "cnn", 64)
SPLIT = "sync, shares"
MODES = {
    AS_WRITTEN: "torchrun ... script",
    SPLIT: "lotus run --mode sync --settings balance.json -- torchrun ... script",
    "local": "lotus run --mode local --every 8 -- torchrun ... script",
    "hybrid": "lotus run --mode hybrid --groups 0,1/2 --every 8 -- torchrun ... script",
    "async": "lotus run --mode async --staleness 4 -- torchrun ... script",
}


def before(mode: str, plan: Path) -> list[str]:
    """Return the words before torchrun."""
    if mode == AS_WRITTEN:
        return []
    options = MODES[mode].removeprefix("lotus run ").partition(" -- ")[0]
    words = options.replace("balance.json", str(plan)).split()
    return [*balance_measured.lotus("run"), "-q", *words, "--"]


class Modes:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.bench = Bench(args)
        self.plan = args.work / "balance.json"

    def prepare(self) -> dict[str, Any]:
        """Trace, and keep the plan and what lotus says of the modes."""
        paths = [self.args.work / f"modes-{name}" for name in ("whole", "half")]
        for path, batch in zip(paths, (CELL.batch, CELL.batch // 2), strict=True):
            trace = [*balance_measured.lotus("trace"), "-q", "-o", str(path), "--force", "--"]
            epoch = self.args.pictures // CELL.batch // CELL.ranks
            options = ["--batch", str(batch), "--updates", str(epoch - 1), "--warm", "1"]
            self.bench.start(CELL, trace, *options, "--length", str(self.args.pictures))
        advice = balance(load(paths[0]), SplitOptions(), [load(paths[1])])
        foretold: dict[str, Any] = {}
        if advice.modes is not None:
            names = {"sync": AS_WRITTEN, "split": SPLIT}
            foretold["epoch_s"] = {
                names.get(row.name, row.name): [
                    None if math.isnan(part) else part
                    for part in (row.epoch.seconds, row.epoch.low, row.epoch.high)
                ]
                for row in advice.modes.rows
            }
            for key in ("recommended", "option"):
                name = getattr(advice.modes, key)
                foretold[key] = names.get(name, name)
        return {"plan": plans.document(advice.plan()), "told": foretold}

    def measured(self, conditions: dict[str, Any], number: int, mode: str) -> list[Row]:
        """Return all epochs of one run."""
        common: dict[str, Any] = {"commit": self.bench.commit, "at": time.strftime("%F %T")}
        files.replace(self.plan, json.dumps(conditions["plan"]))
        options = ["--epochs", str(self.args.epochs), "--pictures", str(self.args.pictures)]
        options += ["--seed", str(number), "--rate", str(self.args.rate)]
        options += ["--strength", str(self.args.strength)]
        try:
            results = self.bench.start(CELL, before(mode, self.plan), *options)
        except RunFailedError as error:
            return [Row(number, mode, 0, str(error), **common)]
        sizes = conditions["plan"]["batch_sizes"]
        shares = results["epochs"][0]["batches"]
        if shares != (sizes if mode == SPLIT else [CELL.batch] * CELL.ranks):
            return [Row(number, mode, 0, f"the ranks had batches of {shares}", **common)]
        if mode not in (AS_WRITTEN, SPLIT) and "learns otherwise" not in " ".join(results["said"]):
            return [Row(number, mode, 0, "lotus did not put the mode on", **common)]
        return [
            Row(
                number, mode, epoch, "", result["seconds"], result["loss"], result["right"],
                balance_measured.words(result["samples"]), **common,
            )
            for epoch, result in enumerate(results["epochs"], 1)
        ]  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="one round, few pictures")
    add("--report", action="store_true", help="measure nothing, write the tables")
    add("--fresh", action="store_true", help="throw away what was measured")
    add("--rounds", type=int, default=3, help="(3)")
    add("--epochs", type=int, default=4, help="(4)")
    add("--pictures", type=int, default=9600, help="(9600)")
    add("--rate", type=float, default=0.02, help="of learning (0.02)")
    add("--strength", type=float, default=10.0, help="of what tells classes apart (10)")
    add("--minutes", type=float, default=1e9, help="begin no round that would end after so many")
    add("--limit", type=float, default=240.0, help="seconds for one run (240)")
    add("--work", type=Path, help="folder for traces")
    add("-o", "--output", type=Path, help="folder of the results")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.epochs, args.pictures = 1, 2, 1920
    scratch = Path(tempfile.gettempdir())
    args.work = args.work or scratch / "lotus-modes"
    quick = scratch / "lotus-modes-quick"
    args.output = args.output or (quick if args.quick else RESULTS)
    return args


def main() -> None:
    args = arguments()
    for folder in (args.output, args.work):
        folder.mkdir(parents=True, exist_ok=True)
    results = Measurements(args.output, "modes_measured", Row)
    if not args.report:
        if why := balance_clusters.missing(CLUSTERS[CELL.cluster]):
            raise SystemExit(f"not run: {why}")
        with balance_clusters.alone(), stoppable():
            measure_modes(args, results)
    balance_measured.show(results, modes_table, modes_plot)


def measure_modes(args: argparse.Namespace, results: Measurements[Row]) -> None:
    """Trace and plan where that was not done yet, and make the rounds."""
    began = time.monotonic()
    args.seed = 0
    conditions_now = balance_measured.facts(args, [CELL])
    conditions_now |= {
        name: getattr(args, name) for name in ("epochs", "pictures", "rate", "strength")
    }
    if args.fresh or args.quick:
        results.throw_away()
    modes = Modes(args)
    if results.json.exists():
        conditions = results.known()
        results.must_be_of(conditions["facts"], conditions_now)
    else:
        cell = {**asdict(CELL), "words": balance_clusters.words(CLUSTERS[CELL.cluster])}
        conditions = {"facts": conditions_now, "cell": cell, "modes": MODES, **modes.prepare()}
        results.know(conditions)
    rounds(args, modes, conditions, results, began)


def rounds(
    args: argparse.Namespace, modes: Modes, conditions: dict[str, Any], results: Measurements[Row],
    began: float,
) -> None:  # fmt: skip
    """Make the missing runs, and append each of them at once."""
    rows = results.read()
    existing = {(row.round, row.mode) for row in rows}
    results.write(rows)
    shuffle, usual = random.Random(0), 0.0
    for number in range(args.rounds):
        order = shuffle.sample(list(MODES), len(MODES))
        remaining = [mode for mode in order if (number, mode) not in existing]
        since = time.monotonic()
        if (since - began + usual * len(remaining)) / 60 > args.minutes:
            print(f"no time for round {number + 1}", flush=True)
            return
        for place, mode in enumerate(remaining, 1):
            measured = modes.measured(conditions, number, mode)
            results.append(*measured)
            usual = (time.monotonic() - since) / place
            outcome = measured[0].failed or ", ".join(
                f"{row.seconds:.2f} s {row.loss:.3f}" for row in measured
            )
            print(f"[round {number + 1}, {usual:.0f} s each] {mode}: {outcome}", flush=True)


if __name__ == "__main__":
    main()
