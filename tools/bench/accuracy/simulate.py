"""Measures the error of the simulator under settings that it was not fitted to.

    PYTHONPATH=. python tools/bench/accuracy/simulate.py [--full] [--python PYTHON] [--repeat 3]
        [--write] [--rows FILE]

For each kind of loop (simulate_program.py) two runs are recorded, with one worker and with two at
prefetch 2: these are all that is fitted to. Then the loop runs untraced under other settings, in
random order, and each run is compared with the simulation. All repeats of a kind are measured
together, because a shared machine drifts. Printed is the error of the samples per second over the
whole loop, start-up included: the median over the repeats. --write stores the figures in
tools/bench/results/simulate.txt. --rows keeps each repeat of a kind in a file, with which a run
that was ended continues.
"""

import argparse
import dataclasses
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
from datetime import date
from pathlib import Path

import lotus
from lotus.common.errors import LotusError
from lotus.settings.space import Setting
from lotus.tune.simulation.loader_simulation import simulate
from lotus.tune.simulation.run_profile import contention, profile
from lotus.tune.simulation.what_if import setting_words
from tools.bench import measurements, provenance
from tools.bench.row_file import RowFile

PROGRAM = Path(__file__).with_name("simulate_program.py")
RESULTS = measurements.RESULTS / "simulate.txt"
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
MORE = (Setting(1, 8), Setting(2, 4), Setting(6, 2), Setting(4, 2, in_order=False))
BATCHES = {"remote": 100, "remote_decode": 100, "tiny": 60}
SAMPLED_EVERY_S = 0.025


class Queueing:
    """CPU time of a process and its children while they run, and how long they queued for it."""

    def __init__(self, pid):
        self.pid, self.seen = pid, {}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def watch(self):
        while not self.ended.wait(SAMPLED_EVERY_S):
            self.visit(self.pid)

    def visit(self, pid):
        try:
            for task in os.scandir(f"/proc/{pid}/task"):
                cpu_ns, queued_ns, _ = Path(task.path, "schedstat").read_text().split()
                self.seen[task.name] = int(cpu_ns), int(queued_ns)
                for child in Path(task.path, "children").read_text().split():
                    self.visit(child)
        except OSError:
            pass  # it has ended

    def crowding(self):
        """Times as long as its CPU time that all computing took."""
        cpu_ns, queued_ns = (sum(part) for part in zip(*self.seen.values(), strict=True))
        return 1.0 + queued_ns / max(cpu_ns, 1)


def others_for(crowding, simulated):
    """The load by others under which the simulation is so crowded."""
    low, high = 0.0, 8.0
    for _ in range(10):
        middle = (low + high) / 2
        if crowded(simulated(middle)) < crowding:
            low = middle
        else:
            high = middle
    return low


def crowded(outcome):
    return outcome.cores_wanted / outcome.cores


def record(kind, setting, folder, options):
    """The profile of a traced run."""
    run = folder / f"{kind}-{setting.num_workers}-{len(os.listdir(folder))}"
    words = setting.kwargs()
    words.pop("multiprocessing_context", None)
    command = [
        sys.executable, "-m", "lotus", "trace", "-q", "--level", "op+cpu", "-o", str(run), "--",
        options.python, str(PROGRAM), kind, json.dumps(words),
        "--batches", str(BATCHES.get(kind, 80)),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(provenance.ROOT)}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return profile(lotus.load(run), step_cores=STEP_CORES.get(kind, 0.0))


def server(options):
    """The program that makes the untraced runs; torch warns of more workers than cores."""
    command = [options.python, "-W", "ignore", str(PROGRAM), "--serve"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)


def real(serving, kind, setting):
    words = setting.kwargs()
    words.pop("multiprocessing_context", None)
    serving.stdin.write(json.dumps([kind, words, BATCHES.get(kind, 80)]) + "\n")
    pid = serving.stdout.readline()
    with Queueing(int(pid)) as queueing:
        answer = serving.stdout.readline()
    return {**json.loads(answer), "crowding": queueing.crowding()}


class Fit:
    """Two traced runs, and an untraced one of the second's setting, which tells the load then."""

    def __init__(self, kind, folder, serving, options):
        self.batches = BATCHES.get(kind, 80)
        self.first, self.second = (record(kind, setting, folder, options) for setting in FIT)
        self.again = real(serving, kind, FIT[1])
        try:
            self.contention = contention(self.first, self.second)
        except LotusError:
            self.contention = 0.0
        self.work = self.second.work(contention=self.contention)

    def words(self):
        own = [
            run.replay(self.contention).samples_per_s / run.measured.samples_per_s - 1
            for run in (self.first, self.second)
        ]
        untraced = self.errors(self.again, self.simulated(FIT[1], self.second.others))["error"]
        return (
            f"contention {self.contention:.2f}, load by others {self.first.others:.1f} and "
            f"{self.second.others:.1f}, own replays {own[0]:+.1%} and {own[1]:+.1%}, the second "
            f"untraced {untraced:+.1%}"
        )

    def simulated(self, setting, others):
        machine = dataclasses.replace(self.second.machine(self.contention), others=others)
        return simulate(self.work, setting, machine, batches=self.batches)

    def compared(self, run, setting):
        """(as the machine was when recorded, as much more or less crowded as it was now)."""
        recorded = self.second.others
        more = run["crowding"] / self.again["crowding"]
        target = crowded(self.simulated(FIT[1], recorded)) * more
        # What this setting crowds by itself is in both.
        seen = others_for(target, lambda others: self.simulated(setting, others))
        made = [
            {"others": others, **self.errors(run, self.simulated(setting, others))}
            for others in (recorded, seen)
        ]
        return dict(zip(("recorded", "seen"), made, strict=True))

    def errors(self, run, simulated):
        return {
            "rate": simulated.samples_per_s,
            "error": simulated.samples_per_s / run["samples_per_s"] - 1,
            "first": simulated.first_batch_s / run["first_batch_s"] - 1,
            "wait": simulated.wait_share - run["wait_share"],
            "cpu": simulated.cores * simulated.seconds / run["cpu_s"] - 1,
        }


def repeat_of(kind, settings, folder, serving, options, random_order):
    """One repeat of a kind: fit, real runs, errors by setting; a row of --rows."""
    load = os.getloadavg()[0]
    fit = Fit(kind, folder, serving, options)
    runs = []
    for setting in random_order.sample(settings, len(settings)):
        run = real(serving, kind, setting)
        runs.append([settings.index(setting), {**run, **fit.compared(run, setting)}])
    return {"kind": kind, "load": load, "fit": fit.words(), "runs": runs}


def table(results, say):
    say(f"\n{'':14} {'':32} {'real/s':>7} {'spread':>6} {'load':>5} {'simulated':>9} "
        f"{'error':>7} {'as seen':>8} {'first':>6} {'wait':>6} {'CPU':>6}")  # fmt: skip
    errors = {"recorded": {}, "seen": {}}
    for (kind, setting), runs in results.items():
        rates = [run["samples_per_s"] for run in runs]

        def middle(which, name, runs=runs):
            return statistics.median(run[which][name] for run in runs)

        for which, kinds in errors.items():
            kinds.setdefault(kind, []).append(middle(which, "error"))
        rate = statistics.median(rates)
        say(
            f"{kind:14} {setting_words(setting.normal()):32} {rate:7.0f} "
            f"{(max(rates) - min(rates)) / rate:6.0%} {middle('seen', 'others'):5.1f} "
            f"{middle('recorded', 'rate'):9.0f} "
            f"{middle('recorded', 'error'):+7.1%} {middle('seen', 'error'):+8.1%} "
            f"{middle('recorded', 'first'):+6.0%} {middle('recorded', 'wait'):+6.2f} "
            f"{middle('recorded', 'cpu'):+6.0%}"
        )
    say("\nerror: on the machine as it was when recorded; as seen: under a load by others (load)")
    say("with which cores are queued for as much more or less, against the run fitted on, as they")
    say("were. first: error of the time to the first batch; wait: difference of the wait shares;")
    say("CPU: error of the CPU time of all processes; these three on the machine as recorded\n")
    for which, title in (("recorded", "as recorded"), ("seen", "as seen")):
        kinds = errors[which]
        everything = [value for part in kinds.values() for value in part]
        for kind, values in [*kinds.items(), ("all", everything)]:
            absolute = sorted(map(abs, values))
            say(f"{title:12} {kind:14} {len(values):3} settings, median error "
                f"{statistics.median(absolute):.1%}, worst {absolute[-1]:.1%}")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="more settings")
    parser.add_argument("--python", default=sys.executable, help="one with torch and torchvision")
    parser.add_argument("--repeat", type=int, default=3, help="of each run")
    parser.add_argument("--kinds", nargs="*", default=list(QUICK), choices=list(QUICK))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=Path, metavar="FILE", help="continue after what is in it")
    parser.add_argument(
        "--write", action="store_true", help=f"to {RESULTS.relative_to(provenance.ROOT)} too"
    )
    options = parser.parse_args()
    lines = []

    def say(line):
        lines.append(line)
        print(line, flush=True)

    say(f"{provenance.cpus()}, commit {provenance.commit()}, {date.today()}")
    say(f"{options.repeat} runs each, medians; spread:")
    say("(largest - smallest) / median of the real runs; fitted on 1 and 2 workers only\n")
    settings = {
        kind: list(dict.fromkeys(QUICK[kind] + (MORE if options.full else ())))
        for kind in options.kinds
    }
    results = {(kind, setting): [] for kind in settings for setting in settings[kind]}
    rows = RowFile(options.rows)
    before = rows.by("kind", "repeat")
    loads = []
    order = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name, server(options) as serving:
        for repeat in range(options.repeat):
            for kind in order.sample(list(settings), len(settings)):
                row = before.get((kind, repeat))
                if row is None:
                    row = repeat_of(kind, settings[kind], Path(name), serving, options, order)
                    rows.add({**row, "repeat": repeat})
                say(f"{kind:14} {row['fit']}")
                loads.append(row["load"])
                for place, result in row["runs"]:
                    results[kind, settings[kind][place]].append(result)
        serving.stdin.close()
    table(results, say)
    say(f"\nload before each kind: {min(loads):.1f} to {max(loads):.1f}")
    if options.write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
