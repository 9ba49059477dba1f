"""How far the simulator is from real runs under settings that it was not fitted on.

    PYTHONPATH=. python tools/bench/simulate.py [--full] [--python PYTHON] [--repeat 3]

For each kind of loop (tools/bench/simulate_program.py) two runs are recorded, with one worker and
with two at prefetch 2: together they are the whole fit. Then the loop runs untraced under other
settings, in random order and repeatedly, and each median is set beside the simulation. Errors are
of samples per second over the whole loop, start-up included. It judges nothing: it prints.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import lotus
from lotus import host
from lotus.errors import LotusError
from lotus.tune.profile import contention, profile
from lotus.tune.simulate import simulate
from lotus.tune.space import Setting
from lotus.tune.whatif import setting_words

PROGRAM = Path(__file__).with_name("simulate_program.py")
ROOT = Path(__file__).resolve().parents[2]
FIT = (Setting(1), Setting(2))
STEP_CORES = {"busy_step": 1.0}  # the steps of the others sleep
QUICK = {
    "pictures": (Setting(0), Setting(2, 1), Setting(3), Setting(4, 4)),
    "heavy_tail": (Setting(0), Setting(2, 8), Setting(3), Setting(4, 1)),
    "remote": (Setting(0), Setting(4), Setting(8, 1), Setting(16, 2)),
    "remote_decode": (Setting(2, 1), Setting(4), Setting(6, 4), Setting(8)),
    "tiny": (Setting(0), Setting(2, 8), Setting(4)),
    "busy_step": (Setting(0), Setting(2, 8), Setting(4)),
    "arrays": (Setting(0), Setting(3), Setting(4, 1)),
}
MORE = (
    Setting(1, 1), Setting(1, 8), Setting(2, 4), Setting(3, 1), Setting(3, 8), Setting(6, 2),
    Setting(8, 4), Setting(2, in_order=False), Setting(4, 2, in_order=False),
)  # fmt: skip
BATCHES = {"remote": 100, "remote_decode": 100, "tiny": 60}


def arguments(kind, setting, options):
    words = setting.kwargs()
    words.pop("multiprocessing_context", None)
    return [
        options.python, str(PROGRAM), kind, json.dumps(words),
        "--batches", str(BATCHES.get(kind, 80) * (2 if options.full else 1)),
    ]  # fmt: skip


def record(kind, setting, folder, options):
    """The profile of a traced run."""
    run = folder / f"{kind}-{setting.num_workers}-{len(os.listdir(folder))}"
    command = [
        sys.executable, "-m", "lotus", "trace", "-q", "--level", "op+cpu", "-o", str(run), "--",
    ]  # fmt: skip
    command += arguments(kind, setting, options)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return profile(lotus.load(run), step_cores=STEP_CORES.get(kind, 0.0))


def real(kind, setting, options):
    words = arguments(kind, setting, options)
    words[1:1] = ["-W", "ignore"]  # torch warns of more workers than cores
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def fit(profiles):
    """(the middle profile by its own cost of a sample, contention) of repeated pairs of runs."""
    cost = {id(one): one.cpu.sum() / one.size.sum() for pair in profiles for one in pair}
    first, second = (
        sorted((pair[place] for pair in profiles), key=lambda one: cost[id(one)])[
            (len(profiles) - 1) // 2
        ]
        for place in (0, 1)
    )
    try:
        return first, second, contention(first, second)
    except LotusError:
        return first, second, 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="more settings, longer runs")
    parser.add_argument("--python", default=sys.executable, help="one with torch and torchvision")
    parser.add_argument("--repeat", type=int, default=3, help="of each run")
    parser.add_argument("--kinds", nargs="*", default=list(QUICK), choices=list(QUICK))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    facts = host.facts()["cpu"]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    print(f"{facts['model']}, {facts['affinity']} CPUs, commit {commit}, {date.today()}")
    print(f"load before: {os.getloadavg()[0]:.1f}; {options.repeat} runs each, medians; the spread")
    print("is (largest - smallest) / median of the real runs; fitted on 1 and 2 workers only\n")
    asked = {
        kind: list(dict.fromkeys(QUICK[kind] + (MORE if options.full else ())))
        for kind in options.kinds
    }
    profiles = {kind: [] for kind in options.kinds}
    results = {(kind, setting): [] for kind in asked for setting in asked[kind]}
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        for repeat in range(options.repeat):
            jobs = [(kind, None) for kind in asked] + list(results)
            random.Random(options.seed + repeat).shuffle(jobs)
            for kind, setting in jobs:
                if setting is None:
                    profiles[kind].append([record(kind, one, Path(name), options) for one in FIT])
                else:
                    results[kind, setting].append(real(kind, setting, options))
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    table(profiles, results, options)
    print(f"\nIn {time.monotonic() - begin:.0f} s; load now {os.getloadavg()[0]:.1f}.")


def table(profiles, results, options):
    print(f"{'':15} {'':34} {'real/s':>8} {'spread':>6} {'simulated':>9} {'error':>7} "
          f"{'first':>7} {'wait':>6}")  # fmt: skip
    errors = {}
    fits = {kind: fit(made) for kind, made in profiles.items()}
    for kind, (first, second, slower) in fits.items():
        own = [
            one.replay(slower).samples_per_s / one.measured.samples_per_s - 1
            for one in (first, second)
        ]
        print(f"{kind:15} fitted: contention {slower:.2f}, others {first.others:.1f} and "
              f"{second.others:.1f}; own replays {own[0]:+.1%} and {own[1]:+.1%}")  # fmt: skip
    for (kind, setting), runs in results.items():
        _, base, slower = fits[kind]
        batches = BATCHES.get(kind, 80) * (2 if options.full else 1)
        one = simulate(base.work(contention=slower), setting, base.machine(slower), batches=batches)
        rates = [run["samples_per_s"] for run in runs]
        rate = statistics.median(rates)
        error = one.samples_per_s / rate - 1
        errors.setdefault(kind, []).append(error)
        start = statistics.median(run["first_batch_s"] for run in runs)
        wait = statistics.median(run["wait_share"] for run in runs)
        print(
            f"{kind:15} {setting_words(setting.normal()):34} {rate:8.0f} "
            f"{(max(rates) - min(rates)) / rate:6.0%} {one.samples_per_s:9.0f} {error:+7.1%} "
            f"{one.first_batch_s / start - 1:+7.0%} {one.wait_share - wait:+6.2f}"
        )
    print("\nfirst: error of the time to the first batch; wait: difference of the wait shares\n")
    for kind, values in [*errors.items(), ("all", [v for part in errors.values() for v in part])]:
        absolute = sorted(map(abs, values))
        print(f"{kind:15} {len(values):3} settings, median error {statistics.median(absolute):.1%},"
              f" worst {absolute[-1]:.1%}")  # fmt: skip


if __name__ == "__main__":
    main()
