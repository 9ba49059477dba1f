"""How far the simulator is from real runs under settings that it was not fitted on.

    PYTHONPATH=. python tools/bench/simulate.py [--full] [--python PYTHON] [--repeat 3] [--write]

For each kind of loop (tools/bench/simulate_program.py) two runs are recorded, with one worker and
with two at prefetch 2: together they are the whole fit. Then the loop runs untraced under other
settings, in random order, and each run is set beside the simulation. All of a kind is done in one
go and repeatedly, as a machine that others use as well drifts: an error is that of one repeat, the
median over the repeats is shown. Errors are of samples per second over the whole loop, start-up
included. It judges nothing: it prints, and with --write writes tools/bench/results/simulate.txt.
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
RESULTS = Path(__file__).with_name("results") / "simulate.txt"
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


class Load:
    """How many processes of other programs want each core while a process and its children run."""

    def __init__(self, pid):
        self.pid, self.seen = pid, []
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
            own = runnable(self.pid)
            with open("/proc/stat") as file:
                running = next(line for line in file if line.startswith("procs_running"))
            self.seen.append(int(running.split()[1]) - own - 1)  # 1: this thread

    def others(self):
        if not self.seen:
            return 0.0
        return max(statistics.mean(self.seen), 0.0) / len(os.sched_getaffinity(0))


def runnable(pid):
    """Threads of a process and its descendants that have or want a core."""
    count = 0
    try:
        for task in os.scandir(f"/proc/{pid}/task"):
            stat = Path(task.path, "stat").read_text()
            count += stat.rpartition(")")[2].split()[0] == "R"
            children = Path(task.path, "children").read_text().split()
            count += sum(map(runnable, children))
    except OSError:
        pass  # it has ended
    return count


def batches_of(kind, options):
    return BATCHES.get(kind, 80) * (2 if options.full else 1)


def record(kind, setting, folder, options):
    """(the profile of a traced run, the load by others meanwhile)."""
    run = folder / f"{kind}-{setting.num_workers}-{len(os.listdir(folder))}"
    words = setting.kwargs()
    words.pop("multiprocessing_context", None)
    command = [
        sys.executable, "-m", "lotus", "trace", "-q", "--level", "op+cpu", "-o", str(run), "--",
        options.python, str(PROGRAM), kind, json.dumps(words),
        "--batches", str(batches_of(kind, options)),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        with Load(process.pid) as load:
            process.wait()
    if process.returncode:
        sys.exit(f"a traced run of {kind} failed")
    return profile(lotus.load(run), step_cores=STEP_CORES.get(kind, 0.0)), load.others()


def server(options):
    """The program that makes the untraced runs; torch warns of more workers than cores."""
    command = [options.python, "-W", "ignore", str(PROGRAM), "--serve"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)


def real(serving, kind, setting, options):
    words = setting.kwargs()
    words.pop("multiprocessing_context", None)
    serving.stdin.write(json.dumps([kind, words, batches_of(kind, options)]) + "\n")
    pid = serving.stdout.readline()
    with Load(int(pid)) as load:
        answer = serving.stdout.readline()
    return {**json.loads(answer), "others": load.others()}


def compared(base, slower, run, setting, batches):
    """Errors of one real run: (as the machine was when recorded, under the load of this run)."""
    machine = base.machine(slower)
    made = []
    for others in (machine.others, run["others"]):
        one = simulate(
            base.work(contention=slower),
            setting,
            dataclasses.replace(machine, others=others),
            batches=batches,
        )
        made.append(
            {
                "rate": one.samples_per_s,
                "error": one.samples_per_s / run["samples_per_s"] - 1,
                "first": one.first_batch_s / run["first_batch_s"] - 1,
                "wait": one.wait_share - run["wait_share"],
                "cpu": one.cores * one.seconds / run["cpu_s"] - 1,
            }
        )
    return made


def repeat_of(kind, asked, folder, serving, options, random_order, say):
    """One repeat of a kind: fit, real runs, errors by setting."""
    fits = [record(kind, one, folder, options) for one in FIT]
    (first, _), (second, _) = fits
    try:
        slower = contention(first, second)
    except LotusError:
        slower = 0.0
    own = [
        one.replay(slower).samples_per_s / one.measured.samples_per_s - 1 for one in (first, second)
    ]
    say(
        f"{kind:14} contention {slower:.2f}; others as recorded {first.others:.1f} and "
        f"{second.others:.1f}, seen {fits[0][1]:.1f} and {fits[1][1]:.1f}; "
        f"own replays {own[0]:+.1%} and {own[1]:+.1%}"
    )
    result = {}
    for setting in random_order.sample(asked, len(asked)):
        run = real(serving, kind, setting, options)
        recorded, seen = compared(second, slower, run, setting, batches_of(kind, options))
        result[setting] = {**run, "recorded": recorded, "seen": seen}
    return result


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
        load = statistics.median(run["others"] for run in runs)
        say(
            f"{kind:14} {setting_words(setting.normal()):32} {rate:7.0f} "
            f"{(max(rates) - min(rates)) / rate:6.0%} {load:5.1f} {middle('recorded', 'rate'):9.0f} "
            f"{middle('recorded', 'error'):+7.1%} {middle('seen', 'error'):+8.1%} "
            f"{middle('seen', 'first'):+6.0%} {middle('seen', 'wait'):+6.2f} "
            f"{middle('seen', 'cpu'):+6.0%}"
        )
    say("\nload: processes of other programs that wanted each core during the real runs")
    say("error: with the machine as when recorded; as seen: with that load in the simulation")
    say("first: error of the time to the first batch; wait: difference of the wait shares; CPU:")
    say("error of the CPU time of all processes; these three as seen\n")
    for which, title in (("recorded", "as recorded"), ("seen", "as seen")):
        kinds = errors[which]
        everything = [value for part in kinds.values() for value in part]
        for kind, values in [*kinds.items(), ("all", everything)]:
            absolute = sorted(map(abs, values))
            say(f"{title:12} {kind:14} {len(values):3} settings, median error "
                f"{statistics.median(absolute):.1%}, worst {absolute[-1]:.1%}")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="more settings, longer runs")
    parser.add_argument("--python", default=sys.executable, help="one with torch and torchvision")
    parser.add_argument("--repeat", type=int, default=3, help="of each run")
    parser.add_argument("--kinds", nargs="*", default=list(QUICK), choices=list(QUICK))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help=f"to {RESULTS.relative_to(ROOT)} too")
    options = parser.parse_args()
    lines = []

    def say(line):
        lines.append(line)
        print(line, flush=True)

    facts = host.facts()["cpu"]
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    say(f"{facts['model']}, {facts['affinity']} CPUs, commit {commit}, {date.today()}")
    say(f"load before: {os.getloadavg()[0]:.1f}; {options.repeat} runs each, medians; spread:")
    say("(largest - smallest) / median of the real runs; fitted on 1 and 2 workers only\n")
    asked = {
        kind: list(dict.fromkeys(QUICK[kind] + (MORE if options.full else ())))
        for kind in options.kinds
    }
    results = {(kind, setting): [] for kind in asked for setting in asked[kind]}
    begin = time.monotonic()
    order = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name, server(options) as serving:
        for _ in range(options.repeat):
            for kind in order.sample(list(asked), len(asked)):
                made = repeat_of(kind, asked[kind], Path(name), serving, options, order, say)
                for setting, one in made.items():
                    results[kind, setting].append(one)
        serving.stdin.close()
    table(results, say)
    say(f"\nIn {time.monotonic() - begin:.0f} s; load now {os.getloadavg()[0]:.1f}.")
    if options.write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
