"""The methods with which comparison.py compares `lotus tune`, besides lotus's own strategies.

They are rules that try nothing, and Optuna's TPE in an interpreter of its own (optuna_server.py).
"""

import json
import subprocess
from pathlib import Path

from lotus.settings.space import Setting

HERE = Path(__file__).parent
RULES = {
    "torch default": lambda cores: Setting(0),
    "all cores": lambda cores: Setting(cores),
    "Lightning's rule": lambda cores: Setting(max(1, cores - 1)),
    "half the cores": lambda cores: Setting(max(1, cores // 2), 2),  # what the paper recommends
}


class UnavailableError(Exception):
    """A rival cannot be run here, and why."""


class Interpreter:
    """Optuna in its own interpreter: one process for all searches."""

    def __init__(self, python):
        if not python:
            raise UnavailableError("no --rivals PYTHON that has it")
        self.process = subprocess.Popen(
            [python, str(HERE / "optuna_server.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.version = self.process.stdout.readline().strip()
        if not self.version:
            lines = self.process.stderr.read().strip().splitlines()
            raise UnavailableError(lines[-1] if lines else f"{python} has no Optuna")

    def ask(self, **message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Optuna:
    """Optuna's TPE sampler as a strategy of `lotus.tune`; it ends only when its time is spent."""

    name = "Optuna's TPE"

    def __init__(self, interpreter, space, seed):
        self.interpreter, self.setting, self.fastest = interpreter, None, None
        values = {name: list(space.values(name)) for name in space.varied()}
        self.fixed = {"num_workers": space.num_workers[0]}
        interpreter.ask(new=values, seed=seed)

    def ask(self):
        if self.setting is None:
            self.setting = Setting(**{**self.fixed, **self.interpreter.ask(ask=1)}).normal()
        return self.setting

    def tell(self, measurement):
        failed = bool(measurement.failed)
        self.interpreter.ask(tell=None if failed else measurement.samples_per_s)
        self.setting = None
        best = self.fastest
        if not failed and (best is None or measurement.samples_per_s > best.samples_per_s):
            self.fastest = measurement

    def best(self):
        return self.fastest

    def reason(self):
        return "what TPE samples"
