"""Tests the advice of `lotus advise` on the demos: how fast epochs are with it.

    PYTHONPATH=. python tools/bench/gains/advise_demos.py [OPTION]

    (none)    about 30 minutes on two free cores; started again, it continues
    --report  the table of the results so far

The cases are the six scripts of `lotus demo`, run as by `lotus demo`, and image classification with
a step so light that the loop waits for its input (cached_samples_train.py: the same pictures and
operations, one linear layer), with two workers and without. `lotus advise` runs once in each case.
If it writes settings, the script trains with them: those that change no value (`exact`), and with
all names allowed (`allowed`). If ideal data loading would make it faster, `lotus plan` and
`lotus tune` run too. If the plan is to cache samples, they are cached on disk, from an empty cache
(`kept`), also what allowed alternatives make (`both`). If a better setting of the loader was found,
the script trains with it (`tuned`). In each round each variant trains once, in random order.
Printed are the seconds of an epoch after the first, medians and ranges over the rounds, and the
speed-up over the unchanged script of the same round. What was asked and trained before it was
stopped counts.
"""

import argparse
import json
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lotus.common.storage import files
from lotus.settings import tuned_file
from lotus.workloads.catalogue import WORKLOADS
from tools.bench import provenance
from tools.bench.measurements import RESULTS, Measurements, stoppable
from tools.bench.overhead import comparison

HERE = Path(__file__).parent
NAME = "advise_demos"
LIGHT = "light step"
LIGHTS = {f"{LIGHT}, 2 workers": 2, f"{LIGHT}, no workers": 0}
CASES = [*WORKLOADS, *LIGHTS]
OWN, EXACT, ALLOWED, KEPT, BOTH, TUNED = "own", "exact", "allowed", "kept", "both", "tuned"
EPOCH = re.compile(r"^epoch \d+ ([\d.]+) s, loss (\S+)", re.M)  # of cached_samples_train.py
_GAINS = 1.05  # the least ceiling with which `lotus plan` is asked, as `lotus advise` has it


@dataclass
class Row:
    """A training: a line of the file."""

    round: int
    case: str
    way: str
    first_s: float
    later_s: float  # the median of its epochs after the first
    losses: str
    load: float  # of the machine when it began
    commit: str
    at: str


class Bench:
    """Advises the cases and trains them; `args` are those of the command line."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.commit = provenance.commit()
        self.folder = args.output / NAME  # a folder of each case: what was said, and settings
        self.kept = args.data / f"{NAME}-kept"
        self.until = time.monotonic() + args.stop_after

    def command(self, case: str, epochs: int) -> list[str]:
        """Return the unchanged training script."""
        cores = len(os.sched_getaffinity(0))
        workload = WORKLOADS["image_classification" if case in LIGHTS else case]
        data = comparison.data_of(workload.name, workload.count, self.args.data)
        if case in LIGHTS:
            words = [str(HERE / "cached_samples_train.py"), str(data)]
            words += ["--workers", str(LIGHTS[case])]
        else:
            words = [str(workload.script), "--data", str(data), "--workers", "2"]
            words += ["--batch-size", str(workload.batch_size), "--threads", str(max(1, cores - 2))]
        return [sys.executable, *words, "--epochs", str(epochs)]

    def ask(self, case: str) -> None:
        """Store what `lotus advise`, `plan` and `tune` say about a case, unless it is stored."""
        folder = self.folder_of(case)
        folder.mkdir(parents=True, exist_ok=True)
        command = ["--", *self.command(case, epochs=1000)]
        found = self.said(case) or {}
        asked = {
            "advise": ["--budget", f"{self.args.budget:g}s", "-o", str(folder / "advice.json")],
            "plan": ["--ram", "0", "--folder", str(self.kept), "-o", str(folder / "plan.json")],
            "tune": ["-o", str(folder / "tuned.json")],
        }
        for verb, words in asked.items():
            if verb in found or (verb != "advise" and not gains(found["advise"])):
                continue
            self.go_on()
            load, began = os.getloadavg()[0], time.perf_counter()
            answer = document(lotus(verb, "--json", "-f", *words, *command))
            found[verb] = {
                **answer,
                "commit": self.commit,
                "at": time.strftime("%F %T"),
                "load": load,
                "seconds": time.perf_counter() - began,
            }
            files.replace(folder / "said.json", json.dumps(found, indent=1) + "\n")

    def go_on(self) -> None:
        """Stop if nothing more is to be begun."""
        if time.monotonic() >= self.until:
            raise KeyboardInterrupt

    def folder_of(self, case: str) -> Path:
        return self.folder / case.replace(", ", "-").replace(" ", "_")

    def said(self, case: str) -> Any:
        """Return what is stored of a case, by verb; None if there is nothing."""
        path = self.folder_of(case) / "said.json"
        return json.loads(path.read_text()) if path.exists() else None

    def ways(self, case: str) -> dict[str, list[str]]:
        """Return the words before the script's command for each way to train it."""
        said = self.said(case)
        folder = self.folder_of(case)
        ways: dict[str, list[str]] = {OWN: []}
        advice, plan, tuned = (folder / f"{name}.json" for name in ("advice", "plan", "tuned"))

        def run(*paths: Path, allowed: Sequence[str] = ()) -> list[str]:
            words = [word for path in paths for word in ("--settings", str(path))]
            return lotus("run", "-q", *words, *(f"--allow={name}" for name in allowed), "--")

        allowed: list[str] = []
        if advice.exists():
            uses = [use for entry in tuned_file.read(advice).loaders for use in entry.alternatives]
            allowed = [use.name for use in uses if not use.exact]
            if len(allowed) < len(uses):
                ways[EXACT] = run(advice)
            if allowed:
                ways[ALLOWED] = run(advice, allowed=allowed)
        if plan.exists():
            ways[KEPT] = run(plan)
            if advice.exists():
                ways[BOTH] = run(advice, plan, allowed=allowed)
        if tuned.exists() and said["tune"]["benefit"]:
            ways[TUNED] = run(tuned)
        return ways

    def train(self, number: int, case: str, way: str, before: Sequence[str]) -> Row:
        shutil.rmtree(self.kept, ignore_errors=True)
        load = os.getloadavg()[0]
        seconds, losses = epochs_of(output([*before, *self.command(case, self.args.epochs)]))
        later_s = statistics.median(seconds[1:])
        at = time.strftime("%F %T")
        losses_text = " ".join(losses)
        return Row(number, case, way, seconds[0], later_s, losses_text, load, self.commit, at)

    def run(self, results: Measurements[Row]) -> None:
        """Make the missing measurements, and append each of them at once."""
        rows = results.read()
        results.write(rows)
        existing = {(row.round, row.case, row.way) for row in rows}
        for case in self.args.case:
            print(f"{case}: asked", flush=True)
            self.ask(case)
        for number in range(self.args.rounds):
            chance = random.Random(number)
            for case in chance.sample(self.args.case, len(self.args.case)):
                ways = self.ways(case)
                for way in chance.sample(list(ways), len(ways)):
                    if (number, case, way) not in existing:
                        self.go_on()
                        row = self.train(number, case, way, ways[way])
                        results.append(row)
                        print(f"round {number} {case} {way}: {row.later_s:.3f} s", flush=True)
        shutil.rmtree(self.kept, ignore_errors=True)


def lotus(*words: str) -> list[str]:
    return [sys.executable, "-m", "lotus", *words]


def output(words: list[str]) -> str:
    """Return what a command printed; a failure ends the measurement."""
    completed = subprocess.run(words, capture_output=True, text=True, env=comparison.environ())
    if completed.returncode:
        raise SystemExit(
            f"{' '.join(words)}: exit code {completed.returncode}\n{completed.stderr[-2000:]}"
        )
    return completed.stdout


def document(words: list[str]) -> dict[str, Any]:
    """Return the JSON document that a command printed, or the reason why there is none."""
    with tempfile.TemporaryDirectory(prefix="lotus-bench-") as folder:
        run = {"capture_output": True, "text": True, "cwd": folder, "env": comparison.environ()}
        ended = subprocess.run(words, check=False, **run)
    place = ended.stdout.find("\n{\n") + 1 if not ended.stdout.startswith("{") else 0
    try:
        parsed: dict[str, Any] = json.loads(ended.stdout[place:])
    except ValueError:
        lines = [line for line in ended.stderr.splitlines() if line.startswith("lotus: ")]
        return {"failed": f"exit code {ended.returncode}; {lines[-1] if lines else ended.stderr}"}
    return parsed


def epochs_of(text: str) -> tuple[list[float], list[str]]:
    """Return the seconds and losses of the epochs that a script printed."""
    rows = EPOCH.findall(text)
    if rows:
        return [float(seconds) for seconds, _ in rows], [loss for _, loss in rows]
    each = [comparison.loop_of(match[0]) for match in comparison.EPOCH.finditer(text)]
    return [seconds for seconds, _, _ in each], [loss for _, _, loss in each]


def table(rows: Sequence[Row], advice: Mapping[str, Any]) -> str:
    """Return a line for each case, and one for each way to train it."""
    lines = [f"{'case':22} {'an epoch, s':24} {'times as fast':22} losses"]
    for case, case_advice in advice.items():
        lines += ["", case, *(f"    {line}" for line in answer(case_advice))]
        of_case = [row for row in rows if row.case == case]
        own = {row.round: row for row in of_case if row.way == OWN}
        for way in dict.fromkeys((OWN, *sorted(row.way for row in of_case))):
            pairs = [(own[row.round], row) for row in of_case if row.way == way if row.round in own]
            if pairs:
                lines.append(line_of(way, pairs))
    return "\n".join(lines) + "\n"


def line_of(way: str, pairs: Sequence[tuple[Row, Row]]) -> str:
    """Return a line of the table; `pairs` have the unchanged training of a round and this one."""
    line = f"    {way:18} {words_of([row.later_s for _, row in pairs]):24}"
    if way == OWN:
        return line.rstrip()
    gains = [own.later_s / row.later_s for own, row in pairs]
    equal = all(own.losses == row.losses for own, row in pairs)
    return f"{line} {words_of(gains):22} {'equal' if equal else 'others'}"


def answer(case_advice: Mapping[str, Any]) -> list[str]:
    """Return the advice for a case as lines."""
    advice = case_advice["advise"]
    when = f"({advice['seconds']:.0f} s, load {advice['load']:.1f})"
    if "failed" in advice:
        return [f"{advice['failed']} {when}"]
    shares = (f"{each['stall']} {each['mean']:.0%}" for each in advice["shares"])
    lines = [f"{advice['sentence']} {when}", ", ".join(shares)]
    for kind, speedup in advice["alternative_speedups"].items():
        if speedup is not None:
            interval = f"{speedup['low']:.2f} to {speedup['high']:.2f}"
            lines.append(f"{kind} alternatives in training {speedup['mean']:.2f} ({interval})")
    faster = [each for each in advice.get("alternatives", {}).get("tried", ()) if each["faster"]]
    lines += [f"alone: {each['name']} {each['speedup']['mean']:.2f}" for each in faster]
    for verb in ("plan", "tune"):
        if verb in case_advice:
            said = case_advice[verb]
            lines.append(f"{verb}: {said.get('sentence') or said.get('failed') or tuned(said)}")
    return [line for line in lines if line]


def gains(advice: Mapping[str, Any]) -> bool:
    """Return whether ideal data loading was shown to make a case faster."""
    ceiling = advice.get("ceiling")
    return ceiling is not None and ceiling["low"] > _GAINS


def tuned(said: Mapping[str, Any]) -> str:
    """Return the answer of `lotus tune` in words."""
    if not said["benefit"]:
        return "no other setting was shown to be faster"
    changes = [f"{name} {value}" for name, value in said["best"].items() if value is not None]
    speedup = (said["checked"] or said)["speedup"]
    return f"{speedup['mean']:.2f} times as fast with {', '.join(changes)}"


def words_of(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--report", action="store_true", help="measure nothing, print the table")
    parser.add_argument("--fresh", action="store_true", help="throw away what was measured")
    parser.add_argument("--case", nargs="+", choices=CASES, default=CASES, metavar="CASE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4, help="of each training")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of lotus advise (60)")
    parser.add_argument(
        "--stop-after", type=float, default=math.inf, metavar="SECONDS", help="begin no more then"
    )
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    parser.add_argument("--data", type=Path, default=Path.home() / ".cache" / "lotus")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    results = Measurements(args.output, NAME, Row)
    bench = Bench(args)
    if args.fresh:
        results.throw_away()
        shutil.rmtree(bench.folder, ignore_errors=True)
    if not args.report:
        with stoppable():
            bench.run(results)
    advice = {case: case_advice for case in CASES if (case_advice := bench.said(case)) is not None}
    rows = results.read()
    commits = ", ".join(dict.fromkeys(row.commit for row in rows))
    loads = [row.load for row in rows]
    between = f", load {min(loads):.1f} to {max(loads):.1f}" if loads else ""
    header = provenance.header(torch, f"; trained at {commits or 'no commit'}{between}")
    text = f"{header}\n\n{table(rows, advice)}"
    files.replace(args.output / f"{NAME}.txt", text)
    print(text)


if __name__ == "__main__":
    main()
