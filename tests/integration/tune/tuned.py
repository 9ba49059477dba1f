"""`lotus.tune.session.subprocess_tuning` on tune_train.py, with a search that does what a test
says.
"""

import json
import os
import re
import sys
from contextlib import suppress

from tests.integration.conftest import PROGRAMS, ROOT, WARM, Start, command_of

SCRIPT = "tune/tune_train.py"
SOURCE = (PROGRAMS / SCRIPT).read_text().splitlines()
LINE = next(number for number, text in enumerate(SOURCE, 1) if "train = DataLoader" in text)
TRAIN = f"tune_train.py:{LINE}"
# What it learns goes to TRUTH.
DRIVER = f"""
import json, os, signal, sys, time
from dataclasses import replace
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from lotus.tune.session import subprocess_tuning as tuning
from lotus.common.errors import LotusError
from lotus.inside.tune.candidates.trial_requests import Close, Measure, Open, Train
from lotus.settings.space import Setting
from lotus.settings.tuned_file import Entry, Tuned
from lotus.tune.program.program import TrialError

asked = json.loads(sys.argv[1])
truth = {{}}

class Found:
    speedup, iterable_safe, failure = 1.0, False, ""
    interrupted = False

    def __init__(self, program):
        self.best = Setting.from_json(asked["best"])
        self.target = program.watched.loader

    def tuned(self, command):
        return Tuned((Entry(self.target, self.best),), tuple(command))

def train(program, setting, batches, discard=0, seconds=600):
    seen = program.perform(setting, Train(batches, discard, seconds=seconds))
    counts = [len(one) for one in (seen.waits_s, seen.steps_s, seen.sizes)]
    truth.setdefault("counts", []).append([*counts, sum(seen.sizes), seen.passed, seen.over])
    truth.setdefault("startups", []).append(seen.startup_s)

def search(program):
    watched, found = program.watched, Found(program)
    truth["watched"] = {{name: len(getattr(watched, name)) for name in
                        ("waits_s", "steps_s", "step_cpu_s", "sizes")}}
    truth["alone"] = [len(watched.alone_s), len(watched.alone_cpu_s)]
    truth["samples"], truth["batches"] = sum(watched.sizes), watched.batches
    truth["target"] = [watched.loader.dataset, watched.loader.call_site, watched.loader.number]
    truth["own"], truth["startup_s"] = watched.setting.as_json(), watched.startup_s
    truth["cores"] = len(os.sched_getaffinity(watched.pid))
    try:
        exec(asked["do"])
    except KeyboardInterrupt:
        found.interrupted = True
    except TrialError as error:
        truth["refused"] = str(error)
    return found

done = None
try:
    done = tuning.tune(sys.argv[2:], search, output=Path("tuned.json"), **asked["options"])
    truth["problem"], truth["ended_by_us"] = done.problem, done.ended_by_us
    truth["found"] = done.result is not None
    if done.result is not None:
        truth["interrupted"] = done.result.interrupted
except LotusError as error:
    truth["error"] = str(error)
finally:
    Path(os.environ["TRUTH"]).write_text(json.dumps(truth))
if done is not None:
    sys.exit(done.outcome.exit_code if done.outcome.signal is None else -done.outcome.signal)
"""
TRY = """
opened = program.perform(found.best, Open(3600))
truth["workers"] = len(opened.workers)
block = program.perform(found.best, Measure(0.1, 8, step=True, limit_s=3600))
truth["block"] = [len(block.waits_s), sum(block.sizes)]
truth["closed"] = program.perform(found.best, Close()) >= 0
"""


def tuned(
    folder, name, script_args, do=TRY, best=None, env=None, words=None, python=WARM, **options
):
    """Start the driver on the program; `.end()` gives how it ended."""
    request = {"do": do, "best": best or {"num_workers": 1}, "options": options}
    command = words or command_of(SCRIPT, script_args, python)
    home = folder / name
    home.mkdir()
    return Start(
        [sys.executable, "-c", DRIVER, json.dumps(request), *command], home, "driver", env or {}
    )


def truth_of(ended):
    return json.loads(ended.truth.read_text())


def trained(out):
    """{rank: what it trained on} and {rank: "with ..."}."""
    on = dict(re.findall(r"^rank (\d) trained on (.*)$", out.decode(), flags=re.MULTILINE))
    shown = dict(re.findall(r"^rank (\d) with (.*)$", out.decode(), flags=re.MULTILINE))
    return on, shown


RANKS = """
import os, subprocess, sys
ranks = []
for rank in "01":
    env = {**os.environ, "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2",
           "LOCAL_WORLD_SIZE": "2"}
    ranks.append(subprocess.Popen(sys.argv[1:], env=env))
sys.exit(max(rank.wait() for rank in ranks))
"""


def ranks(*args):
    return [sys.executable, "-c", RANKS, *command_of(SCRIPT, args)]


def same_as(out, plain, batches=34):
    """Whether a program trained on the same as this one, and drew the same random numbers."""
    done, whole = (json.loads(trained(output)[0]["0"]) for output in (out, plain.out))
    assert len(done) == batches  # and a random number of each epoch
    return done == whole


def processes_of(ended):
    """The processes of a driver and its program that are there: all are in a folder of its own."""
    home = str(ended.truth.parent.resolve())
    names = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdecimal() and os.readlink(f"/proc/{name}/cwd") == home:
                names.append(name)
    return names
