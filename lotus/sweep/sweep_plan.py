"""The plan of a sweep: settings, rounds, the directory, and the command to resume."""

import itertools
import json
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotus.common.errors import LotusError
from lotus.common.machine import host
from lotus.common.text import redaction
from lotus.common.version import __version__
from lotus.format import run_directory
from lotus.recording import launcher
from lotus.settings.space import Setting, Value

if TYPE_CHECKING:  # pandas; the process of a run needs none
    from lotus.sweep.sweep_record import Sweep

LEVEL = "op+cpu"
RUNS = "runs"
WITHOUT_WORKERS = ("num_workers", "pin_memory")  # parameters that apply without workers


@dataclass(frozen=True)
class SweepPlan:
    """The runs to make. `varied` names the parameters that the sweep sets; others are unchanged.

    `loader` identifies the loader as an entry of `LOTUS_SETTINGS` does; None: every loader.
    `counters` are sets or events as for `lotus trace --counters`; None: no counters.
    """

    settings: tuple[Setting, ...]
    varied: tuple[str, ...]
    repeat: int = 3
    loader: Mapping[str, Any] | None = None
    batches: str | None = None
    counters: str | None = "auto"
    perf: bool = False
    iterable_safe: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the plan in the format of sweep.json, which is equal for equal plans."""
        content = {**asdict(self), "varied": list(self.varied)}
        content["settings"] = [setting.as_json() for setting in self.settings]
        return content


def combined(values: Mapping[str, Sequence[Value]]) -> tuple[Setting, ...]:
    """Return all combinations of the parameters' values, each valid setting once.

    Without workers only pinning can be set. Raises ValueError.
    """
    settings: dict[Setting, None] = {}
    for chosen in itertools.product(*values.values()):
        fields: dict[str, Any] = dict(zip(values, chosen, strict=True))
        if not fields["num_workers"]:
            fields = {name: fields[name] for name in WITHOUT_WORKERS if name in fields}
        settings[Setting(**fields)] = None
    return tuple(settings)


def begin(path: Path | None, command: Sequence[str], plan: SweepPlan, seed: int | None) -> Path:
    """Make the directory of a sweep, or check that an existing one has the same plan; returns it.

    Raises LotusError if the directory holds something else, CommandStartError for an unknown
    command.
    """
    from lotus.sweep import sweep_record

    launcher.resolve(command)  # a mistyped command leaves no directory behind
    if path is not None and sweep_record.is_sweep(path):
        _same(sweep_record.load(path), command, plan, seed)
        return path
    if path is None:
        path = run_directory.make_default(command)
    else:
        if path.is_dir() and any(path.iterdir()):
            raise LotusError(
                f"{path} is not empty and holds no sweep; choose another directory with -o"
            )
        run_directory.make(path)
    counters, cpu, notes = _counters(plan.counters)
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    redacted = redaction.command(list(command))
    manifest = {
        "lotus": __version__,
        "torch": None,  # known after the first run
        "state": "running",
        "command": redacted,
        "hidden": redacted != list(command),  # secrets were redacted
        "cwd": os.getcwd(),
        "start_wall_ns": time.time_ns(),
        "seed": seed,
        "plan": plan.as_json(),
        "level": LEVEL,
        "counters": counters,
        "cpu_events": cpu,
        "notes": notes,
        **host.facts(),
        "settings": [setting.as_json() for setting in plan.settings],
        "varied": list(plan.varied),
        "runs": _runs(plan, seed),
    }
    sweep_record.write(path, manifest)
    return path


def _runs(plan: SweepPlan, seed: int) -> list[dict[str, Any]]:
    """Return the runs in the order in which they are made."""
    from lotus.sweep import sweep_record

    dice, runs = random.Random(seed), []
    for repeat in range(plan.repeat):
        order = list(range(len(plan.settings)))
        dice.shuffle(order)
        for place in order:
            name = f"{sweep_record.name_of(plan.settings[place], plan.varied)}-{repeat}"
            record = {"setting": place, "repeat": repeat, "directory": f"{RUNS}/{name}"}
            runs.append({**record, "state": "pending", "exit_code": None, "signal": None})
    return runs


def _counters(counters: str | None) -> tuple[str | None, dict[str, Any], list[str]]:
    """Choose the counters of all runs once: (value of LOTUS_COUNTERS, CPU, notes)."""
    if counters is None:
        return None, {}, []
    from lotus.recording import measurement_plan  # probes this machine

    measured = measurement_plan.plan(counters)
    return measured.counters, dict(measured.cpu), list(measured.notes)


def _same(sweep: "Sweep", command: Sequence[str], plan: SweepPlan, seed: int | None) -> None:
    """Raise LotusError if a directory holds a different sweep."""
    message = f"{sweep.path} holds another sweep"
    manifest = sweep.manifest
    recorded_plan, expected = manifest["plan"], json.loads(json.dumps(plan.as_json()))
    if redaction.command(list(command)) != redaction.command(manifest["command"]):
        raise LotusError(f"{message}, of another command; choose another directory with -o")
    if recorded_plan != expected:
        names = ", ".join(name for name in expected if recorded_plan.get(name) != expected[name])
        raise LotusError(
            f"{message}: {names} are not the same; choose another directory with -o, or resume it "
            f"with: lotus sweep --resume {sweep.path}"
        )
    if seed is not None and seed != manifest.get("seed"):
        raise LotusError(f"{message}: its seed is {manifest.get('seed')}; resume it without --seed")


def command_of(sweep: "Sweep", command: Sequence[str]) -> list[str]:
    """Return `command` if it is not empty, else the recorded one. Raises LotusError."""
    from lotus.sweep import sweep_record

    status = (sweep.path / sweep_record.NAME).lstat()
    shared = status.st_mode & 0o022
    words: list[str] = sweep.manifest["command"]
    if command:
        if redaction.command(list(command)) != redaction.command(words):
            raise LotusError(
                f"{sweep.path} is a sweep of another command; resume it with its own: "
                f"lotus sweep --resume {sweep.path}"
            )
        return list(command)
    # Do not run a command that somebody else may have written.
    doubt = "belongs to another user" if status.st_uid != os.geteuid() else ""
    doubt = doubt or ("may be written by other users" if shared else "")
    if not doubt and sweep.manifest.get("host") != host.facts()["host"]:
        doubt = "was made on another machine"
    if doubt:
        raise LotusError(
            f"{sweep.path} {doubt}; give the command to run: "
            f"lotus sweep --resume {sweep.path} -- COMMAND"
        )
    if not words or sweep.manifest.get("hidden"):
        raise LotusError(
            f"{sweep.path} does not keep the whole command, as it holds a secret; give it again: "
            f"lotus sweep --resume {sweep.path} -- COMMAND"
        )
    return words
