"""The real measurements of comparison.py: the grid of settings, and searches on the programs.

Each workload is measured in a process of its own (measure.py). The settings of all workloads
alternate in random order; each is measured once before any is repeated.
"""

import json
import os
import random
import selectors
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import pandas as pd

from lotus.settings.space import Setting

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
WORKLOADS = (
    "pictures", "tiny", "remote", "arrays", "heavy_tail",
    "consumer", "busy_step", "iterable", "in_memory", "short_epoch",
)  # fmt: skip
COUNTS = (0, 1, 2, 3, 4, 6)
WAITING = ("remote",)  # where workers do not need cores of their own
PREFETCHES = (1, 2, 4)
LIMIT_S = 90.0  # of one measurement
FIELDS = ("num_workers", "prefetch_factor", "persistent_workers")


class Server:
    """measure.py on one workload; started again where it ends or hangs."""

    def __init__(self, python, name, data):
        self.command = [
            python, "-W", "ignore", str(HERE / "measure.py"), name, "--data", str(data),
        ]  # fmt: skip
        self.process = None

    def ask(self, **message):
        if self.process is None:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                start_new_session=True,
            )  # fmt: skip
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
            with selectors.DefaultSelector() as ready:
                ready.register(self.process.stdout, selectors.EVENT_READ)
                line = self.process.stdout.readline() if ready.select(LIMIT_S) else ""
        except BrokenPipeError:
            line = ""
        if line:
            return json.loads(line)
        self.end()
        return [{"failed": f"it ended, or took over {LIMIT_S:.0f} s"}]

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


class Servers:
    """Those of all workloads, each started when it is first asked."""

    def __init__(self, options):
        self.options, self.known = options, {}

    def __getitem__(self, name):
        if name not in self.known:
            self.known[name] = Server(self.options.python, name, self.options.data)
        return self.known[name]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.known.values():
            server.end()


def settings(workload, cores):
    """The settings of a grid; `persistent_workers` comes of itself (measure.py)."""
    counts = {*COUNTS, cores, max(1, cores - 1), max(1, cores // 2)}
    counts |= {8, 12, 16, 24} if workload in WAITING else set()
    return [{"num_workers": 0, "prefetch_factor": None}] + [
        {"num_workers": count, "prefetch_factor": prefetch}
        for count in sorted(counts - {0})
        for prefetch in PREFETCHES
    ]


def grid(options, cores, say):
    """(the grid's rows, facts of each workload): what --record writes."""
    rows, facts = [], {}
    with Servers(options) as servers:
        for name in options.workloads:
            facts[name] = servers[name].ask(costs=options.seconds)
            if isinstance(facts[name], list):
                raise SystemExit(f"{name}: {facts[name][0]['failed']}")
        for repeat in range(options.repeat):
            jobs = [
                (name, setting) for name in options.workloads for setting in settings(name, cores)
            ]
            random.Random(repeat).shuffle(jobs)
            for number, (name, setting) in enumerate(jobs, 1):
                for row in servers[name].ask(setting=setting, seconds=options.seconds, seed=repeat):
                    rows.append({"workload": name, **setting, **row, "repeat": repeat})
                say(f"repetition {repeat + 1} of {options.repeat}: {number} of {len(jobs)}")
    table = pd.DataFrame(rows)
    if "failed" not in table:
        table["failed"] = ""
    if "persistent_workers" not in table:
        table["persistent_workers"] = False
    table["persistent_workers"] = table.persistent_workers.fillna(False).astype(bool)
    order = table.workload.map({name: place for place, name in enumerate(options.workloads)})
    table = table.assign(order=order).sort_values(["order", *FIELDS[:2], "repeat"])
    return table.drop(columns="order"), facts


def lotus_tune(name, options):
    """Return the result of the trials of `lotus tune`: best, settings_tried, seconds."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            options.python, "-m", "lotus", "tune", "--json", "-o", f"{folder}/tuned.json",
            "--budget", options.budget, "--check", "0s", "--",
            options.python, str(HERE / "workloads.py"), name,
            "--data", str(options.data), "--seconds", "600",
        ]  # fmt: skip
        return answer(command, {**os.environ, "PYTHONPATH": str(ROOT)})


def loadtune(name, options):
    """The same of loadtune."""
    script = str(HERE / "loadtune_run.py")
    command = [options.rivals, "-W", "ignore", script, name, "--data", str(options.data)]
    return answer(command, dict(os.environ))


def answer(command, environment):
    """The JSON object that a command prints, and the seconds it took; or why there is none."""
    begin = time.monotonic()
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=600, cwd=HERE
        )
    except subprocess.TimeoutExpired:
        return {"failed": "no end after 600 s", "wall_s": time.monotonic() - begin}
    wall = time.monotonic() - begin
    result = last_object(done.stdout)
    if done.returncode or result is None or not result.get("best") or not result["settings_tried"]:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        why = lines[-1] if lines else f"exit code {done.returncode}"
        return {"failed": why[:200], "wall_s": wall}
    return {**result, "wall_s": wall}


def last_object(text):
    """The last JSON object in a text that begins on a line of its own."""
    decoder, last = json.JSONDecoder(), None
    at = 0 if text.startswith("{") else text.find("\n{") + 1
    while text[at : at + 1] == "{":
        try:
            last, end = decoder.raw_decode(text, at)
        except ValueError:
            end = at + 1
        at = text.find("\n{", end) + 1 or len(text)
    return last


def regrets(server, best, choices, options):
    """Return each setting's loss against the grid's best, all measured again, in turn.

    So the luck that made a setting the grid's best counts for nobody. It is below 0 where a choice
    was better; a setting that fails is not in the result.
    """
    wanted = sorted({best.normal(), *(choice.normal() for choice in choices)})
    lost = {}
    for repeat in range(options.repeat):
        rates = {}
        for setting in random.Random(repeat).sample(wanted, len(wanted)):
            question = {name: getattr(setting, name) for name in FIELDS[:2]}
            for row in server.ask(setting=question, seconds=options.seconds, seed=100 + repeat):
                if row.get("persistent_workers") == setting.persistent_workers:
                    rates[setting] = row["samples_per_s"]
        for setting, rate in rates.items():
            if best.normal() in rates:
                lost.setdefault(setting, []).append(1.0 - rate / rates[best.normal()])
    return {setting: statistics.median(values) for setting, values in lost.items()}


def searches(case, tools, rules, options, say):
    """Run tools for real on a workload: a row each, and a row for each rule, which runs nothing.

    `tools`: method: what answers for it (a workload's name and options go in); `rules`: method:
    setting.
    """
    name, own = case.workload, case.problem.own
    results = {}
    for method, run in tools.items():
        say(f"{name}: {method}")
        results[method] = run(name, options)
    for method, setting in rules.items():
        results[method] = {"best": setting.as_json(), "seconds": 0.0, "wall_s": 0.0}
    chosen = {
        method: own if "failed" in answered else setting_of(answered["best"])
        for method, answered in results.items()
    }
    say(f"{name}: measuring what they chose")
    with Servers(options) as servers:
        lost = regrets(servers[name], case.table.optimum(), chosen.values(), options)
    rows = []
    for method, answered in results.items():
        setting = chosen[method].normal()
        failed = answered.get("failed", "")
        if setting not in lost:
            failed = failed or "what it chose does not work"
        rows.append(
            {
                "method": method,
                "workload": name,
                "setting": json.dumps(setting.as_json()),
                "regret": lost.get(setting, 1.0),
                "settings": answered.get("settings_tried", 0),
                "seconds": answered.get("seconds", answered["wall_s"]),
                "wall_s": answered["wall_s"],
                "failed": failed,
            }
        )
    return rows


def setting_of(fields):
    """The setting in an answer, which may name more than a setting's fields."""
    names = (*FIELDS, "pin_memory")
    return Setting(**{name: fields[name] for name in names if fields.get(name) is not None})
