"""Compares `lotus tune` with other ways to find a loader's setting: its quality and its cost.

    PYTHONPATH=. python tools/bench/tune/comparison.py [OPTION]

    --record                                 measure the grid of settings (15 minutes)
    --tune [--rivals PYTHON]                 run `lotus tune` on each workload, and loadtune
                                             if PYTHON has it (20 minutes)
    [--rivals PYTHON] [--details] [--write]  replay and summarise (--rivals: with Optuna; 5 minutes)

The workloads are the ten loops of workloads.py. Regret is 1 - the rate of the setting found /
the highest rate of the repeated grid; rates are samples per second over an epoch, including the
start of the workers if each epoch starts them (see measure.py). Printed are the goals, and
three tables:

- real: `lotus tune` and loadtune ran on the programs; the settings found by them and by the rules
  were then measured again, in turn with the grid's best, which they may exceed. Seconds are the
  tool's own.
- recorded: searches were replayed on the grid; a trial takes one of its repetitions and that one's
  seconds. `lotus` sees only rates there, not what else a trial shows.
- simulated: the same workloads on 64 cores, by the measured costs of their batches
  (replay_tables.py).

The program's own setting counts as tried if a method tries it. `random` and Optuna get the seconds
that `lotus` took. If a method fails, the program keeps its own setting: that is scored, and the
failure is counted.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from lotus.settings.space import Setting
from lotus.tune import strategies
from lotus.tune.simulation.what_if import setting_words
from lotus.workloads import jpegs
from tools.bench import provenance
from tools.bench.measurements import RESULTS
from tools.bench.tune import measured_grid, other_methods, replay_tables, score
from tools.bench.tune.strategy_replay import replay

OWN = ("lotus", "adapt", "grid", "random")
EQUAL = ("random", other_methods.Optuna.name)  # given the seconds of lotus
WITHOUT_LOTUS = 60.0  # seconds for those where lotus found nothing


def about():
    """Return the conditions of results: machine, commit, day."""
    return {
        "machine": f"{provenance.cpus()}, kernel {provenance.machine()['kernel']}",
        "commit": provenance.commit(),
        "date": time.strftime("%Y-%m-%d"),
        "load": round(os.getloadavg()[0], 1),
        "python": sys.version.split()[0],
    }


def say(text):
    """Show a line of progress; on a terminal it overwrites the last one."""
    if sys.stderr.isatty():
        print(f"\r{text:78.78}", end="", file=sys.stderr, flush=True)


def record(options):
    """Measure the grid and write it."""
    header = about()
    begin = time.monotonic()
    table, facts = measured_grid.grid(options, cores(), say)
    header["seconds"] = round(time.monotonic() - begin)
    header["load_after"] = round(os.getloadavg()[0], 1)
    header |= {"block_s": options.seconds, "repeat": options.repeat, "cores": cores()}
    options.results.mkdir(parents=True, exist_ok=True)
    table.to_csv(options.results / "tune_grid.csv", index=False, float_format="%.5g")
    write_header(options.results / "tune_grid.json", header, facts)
    print(f"{len(table)} rows in {header['seconds']} s: {options.results / 'tune_grid.csv'}")


def write_header(path, header, facts):
    """Write JSON with a line for each fact of the header and for each workload."""
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in header.items()]
    each = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in facts.items())
    path.write_text("{\n" + ",\n".join([*lines, f'"workloads": {{\n{each}\n}}']) + "\n}\n")


def cores():
    return len(os.sched_getaffinity(0))


def recorded(options):
    """Return (the conditions of the grid, its cases)."""
    path = options.results / "tune_grid.csv"
    if not path.exists():
        raise SystemExit(f"there is no {path}: record it with --record")
    header = json.loads(path.with_suffix(".json").read_text())
    facts = header.pop("workloads")
    return header, replay_tables.recorded(pd.read_csv(path), facts, header["cores"]), facts


def tune(options):
    """Run the tools on the programs and keep their choices."""
    header, cases, _ = recorded(options)
    here = about()
    if here["machine"] != header["machine"]:
        raise SystemExit(f"the grid is of another machine, {header['machine']}: --record first")
    path = options.results / "tune_real.csv"
    tools = {"lotus": measured_grid.lotus_tune}
    if options.rivals:
        tools["loadtune"] = measured_grid.loadtune
    rules = {name: rule(cores()) for name, rule in other_methods.RULES.items()}
    rows = []
    for case in cases:
        if case.workload in options.workloads:
            rows += measured_grid.searches(case, tools, rules, options, say)
    table = pd.DataFrame(rows).assign(commit=here["commit"], date=here["date"])
    if path.exists():  # keep what was not run now
        before = pd.read_csv(path, keep_default_na=False)
        ran = set(zip(table.method, table.workload, strict=True))
        kept = [pair not in ran for pair in zip(before.method, before.workload, strict=True)]
        table = pd.concat([before[kept], table])
    table.to_csv(path, index=False, float_format="%.5g")


def real(options):
    """Return the results of --tune."""
    path = options.results / "tune_real.csv"
    if not path.exists():
        return []
    return [
        score.Search(
            row.method,
            row.workload,
            Setting.from_json(json.loads(row.setting)),
            float(row.regret),
            int(row.settings),
            float(row.seconds),
            row.failed,
        )
        for row in pd.read_csv(path, keep_default_na=False).itertuples()
    ]


def rules(case):
    """Return the choices of the rules."""
    count = int(case.problem.cores)
    return [
        score.of_rule(name, case.workload, rule(count), case.problem.own, case.table)
        for name, rule in other_methods.RULES.items()
    ]


def replayed(cases, seeds, optuna):
    """Run all rules and searches on all cases."""
    searches = []
    for case in cases:
        searches += rules(case)
        for seed in range(seeds):
            seconds = WITHOUT_LOTUS
            for name in (*OWN, *([other_methods.Optuna.name] if optuna else [])):
                search = searched(name, case, seed, seconds, optuna)
                if name == "lotus":
                    seconds = search.seconds
                searches.append(search)
            say(f"{case.workload}: search {seed + 1} of {seeds}")
    return searches


def searched(name, case, seed, seconds, optuna):
    """Run one search on one case."""
    space = case.problem.space
    if name == other_methods.Optuna.name:
        strategy = other_methods.Optuna(optuna, space, seed)
    else:
        strategy = strategies.make(name, space, seed=seed, problem=case.problem)
    case.table.opened.clear()
    trials = replay(
        strategy,
        case.table,
        noise=case.noise,
        seed=seed,
        seconds=seconds if name in EQUAL else None,
    )
    best = strategy.best()
    chosen = None if best is None else best.setting
    return score.of_trials(name, case.workload, trials, chosen, case.problem.own, case.table)


def show(title, searches, out):
    """Print one table of methods, and how lotus compares with the aims and the others."""
    print(f"\n{title}\n", file=out)
    print(
        f"{'method':18} {'searches':>8} {'regret: median':>15} {'95 %':>7} {'worst':>7}"
        f" {'settings tried':>15} {'most':>5} {'seconds':>8} {'most':>6} {'failures':>8}",
        file=out,
    )
    rows = {row.method: row for row in score.summed_up(searches)}
    for row in rows.values():
        print(
            f"{row.method:18} {row.searches:8} {row.median:15.1%} {row.p95:7.1%} {row.worst:7.1%}"
            f" {row.settings:15.0f} {row.most_settings:5} {row.seconds:8.1f}"
            f" {row.most_seconds:6.1f} {row.failures:8}",
            file=out,
        )
    if "lotus" not in rows:
        return
    lotus = rows["lotus"]
    met = score.aims(lotus)
    print("\naims for lotus, and what is so:", file=out)
    for name, words in (
        ("median", f"median regret at most 2 %: {lotus.median:.1%}"),
        ("p95", f"95th percentile at most 5 %: {lotus.p95:.1%}"),
        ("most_settings", f"at most 5 settings tried: {lotus.most_settings}"),
        ("most_seconds", f"at most 60 s: {lotus.most_seconds:.1f}"),
        ("failures", f"no failure: {lotus.failures}"),
    ):
        print(f"  {'met   ' if met[name] else 'missed'}  {words}", file=out)
    for row in rows.values():
        if row is not lotus:
            less, quicker = score.ahead(lotus, row)
            both = "met   " if less and quicker else "missed"
            print(
                f"  {both}  ahead of {row.method} on both axes: regret {'yes' if less else 'no'},"
                f" seconds {'yes' if quicker else 'no'}",
                file=out,
            )


def details(cases, searches, out):
    """Print for each workload its best setting, and what each method chose most often."""
    for case in cases:
        best = case.table.optimum()
        print(
            f"\n{case.workload}: best {setting_words(best)}, {case.table.rate(best):.4g} samples/s",
            file=out,
        )
        mine = [search for search in searches if search.workload == case.workload]
        for method in dict.fromkeys(search.method for search in mine):
            some = [search for search in mine if search.method == method]
            settings = [search.setting for search in some]
            common = statistics.mode(settings)
            lost = statistics.median(search.regret for search in some)
            print(
                f"  {method:18} {lost:7.1%}  {setting_words(common)}"
                f" ({settings.count(common)} of {len(some)}),"
                f" {statistics.median(s.settings for s in some):.0f} tried,"
                f" {statistics.median(s.seconds for s in some):.1f} s"
                + "".join(f"; failed: {s.failed}" for s in some[:1] if s.failed),
                file=out,
            )


def report(options, out):
    """Replay, and print everything."""
    header, cases, facts = recorded(options)
    here = about()
    print(
        f"summed up at commit {here['commit']}, {here['date']}, Python {here['python']}", file=out
    )
    print(f"grid: {header['machine']}; commit {header['commit']}, {header['date']};", file=out)
    print(
        f"  {header['repeat']} repetitions of {header['block_s']:g} s for each setting, in"
        f" {header['seconds']} s; load {header['load']} before, {header['load_after']} after",
        file=out,
    )
    print(
        "  the spread of repetitions of a setting, (most - least) / median, is"
        f" {spread(options):.1%} in the middle; `grid` below is whoever measures each setting once",
        file=out,
    )
    optuna = None
    try:
        optuna = other_methods.Interpreter(options.rivals)
        print(f"Optuna {optuna.version}", file=out)
    except (other_methods.UnavailableError, OSError) as error:
        print(f"Optuna's TPE was not run: {error}", file=out)
    before = real(options)
    if before:
        if not any(search.method == "loadtune" for search in before):
            print("loadtune was not run: --tune --rivals PYTHON that has it", file=out)
        show("Real, on this machine", before, out)
    else:
        print("nothing was run for real yet: --tune", file=out)
    tables = replayed(cases, options.seeds, optuna)
    show(f"Replayed on the recorded grid, {options.seeds} searches each", tables, out)
    virtual = replay_tables.simulated(facts, options.draws)
    simulated = replayed(virtual, max(options.seeds // 5, 1), optuna)
    show(f"Simulated, {replay_tables.CORES} cores, {options.draws} machines each", simulated, out)
    if optuna is not None:
        optuna.end()
    if options.details:
        print("\nReal", file=out)
        details(cases, before, out)
        print("\nReplayed on the recorded grid", file=out)
        details(cases, tables, out)
        print(f"\nSimulated, {replay_tables.CORES} cores", file=out)
        details(virtual, simulated, out)


def spread(options):
    table = pd.read_csv(options.results / "tune_grid.csv")
    rates = table.groupby(["workload", *measured_grid.FIELDS], dropna=False).samples_per_s
    return float(((rates.max() - rates.min()) / rates.median()).median())


class Both:
    """Prints to the terminal, and keeps the text."""

    def __init__(self):
        self.kept = []

    def write(self, text):
        self.kept.append(text)
        sys.stdout.write(text)

    def flush(self):
        sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="measure the grid")
    parser.add_argument("--tune", action="store_true", help="run the tools for real")
    parser.add_argument("--rivals", metavar="PYTHON", help="an interpreter with loadtune, optuna")
    parser.add_argument("--python", default=sys.executable, help="the one the workloads run in")
    parser.add_argument("--workloads", nargs="+", default=list(measured_grid.WORKLOADS))
    parser.add_argument("--repeat", type=int, default=3, help="of each setting of the grid")
    parser.add_argument("--seconds", type=float, default=1.0, help="that one is measured for")
    parser.add_argument("--budget", default="60s", help="of `lotus tune`")
    parser.add_argument("--seeds", type=int, default=20, help="searches of each replay")
    parser.add_argument("--draws", type=int, default=3, help="simulated machines a workload")
    parser.add_argument("--data", type=Path, default=None, help="where the pictures are")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--details", action="store_true", help="each workload")
    parser.add_argument("--write", action="store_true", help="also to RESULTS/tune.txt")
    options = parser.parse_args()
    unknown = set(options.workloads) - set(measured_grid.WORKLOADS)
    if unknown:
        parser.error(f"there are no workloads {', '.join(sorted(unknown))}")
    if options.record or options.tune:
        options.data = options.data or Path(tempfile.gettempdir()) / "lotus-tune-pictures"
        list(jpegs.make(options.data, 64))
    if options.record:
        record(options)
    if options.tune:
        tune(options)
    if options.record and not options.tune:
        return
    out = Both()
    report(options, out)
    if options.write:
        (options.results / "tune.txt").write_text("".join(out.kept))


if __name__ == "__main__":
    main()
