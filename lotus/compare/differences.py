"""Finds differences of two sides besides speed: machine, versions, command, settings, data."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lotus.analysis.common.columns import float_column, int_column, total
from lotus.analysis.common.scope import RunLike, Scope, table
from lotus.format.run_directory import script_name

MACHINE, VERSIONS, COMMAND, RECORDING = "machine", "versions", "command", "recording"
SETTINGS, DATA, CIRCUMSTANCES = "loader settings", "data", "circumstances"
KINDS = (MACHINE, VERSIONS, COMMAND, RECORDING, SETTINGS, DATA, CIRCUMSTANCES)
_DATA = ("class", "dataset", "dataset_kind", "dataset_length", "length", "batch_size")
_SETTINGS = (
    "num_workers prefetch_factor pin_memory persistent_workers start_method drop_last in_order "
    "sampler batch_sampler collate_fn timeout call_site"
).split()
_LEAST_READ = 16 << 20  # bytes; reading less does not matter


@dataclass(frozen=True)
class Fact:
    """A fact that differs between two sides, with each side's distinct values in order."""

    kind: str
    what: str
    a: list[Any]
    b: list[Any]


def run_facts(a: Sequence[RunLike], b: Sequence[RunLike]) -> list[Fact]:
    """Return what differs between the runs of two sides."""
    return _differing([_of_run(run) for run in a], [_of_run(run) for run in b])


def loader_facts(a: Sequence[Scope], b: Sequence[Scope]) -> list[Fact]:
    """Return what differs in a loader's settings, data and conditions between two sides."""
    return _differing([_of_loader(scope) for scope in a], [_of_loader(scope) for scope in b])


def other_machine(facts: Sequence[Fact]) -> bool:
    """Return True if the two sides ran on different machines, or on different parts of one."""
    return any(fact.kind == MACHINE and fact.what != "kernel" for fact in facts)


def of_other_programs(
    a: Sequence[RunLike], b: Sequence[RunLike], of_loader: Sequence[Fact]
) -> bool:
    """Return True if the sides ran different programs on different data sets.

    Two versions of a program, in files of different names, have the same data.
    """
    data = {fact.what for fact in of_loader if fact.kind == DATA}
    mine, theirs = ({_program(run) for run in side} for side in (a, b))
    return not mine & theirs and bool(data & {"dataset", "dataset length"})


def _program(run: RunLike) -> str:
    words = run.manifest.get("command")
    return script_name([str(word) for word in words]) if isinstance(words, list) and words else ""


_Facts = Mapping[tuple[str, str], Any]


def _differing(a: Sequence[_Facts], b: Sequence[_Facts]) -> list[Fact]:
    keys = list(dict.fromkeys(key for mapping in (*a, *b) for key in mapping))
    facts = []
    for key in keys:
        first, second = (_distinct(side, key) for side in (a, b))
        if sorted(map(repr, first)) != sorted(map(repr, second)):
            facts.append(Fact(*key, first, second))
    return sorted(facts, key=lambda fact: KINDS.index(fact.kind))


def _distinct(side: Sequence[_Facts], key: tuple[str, str]) -> list[Any]:
    values: list[Any] = []
    for facts in side:
        value = facts.get(key)
        if value not in values:
            values.append(value)
    return values


def _of_run(run: RunLike) -> _Facts:
    manifest = run.manifest
    cpu = _mapping(manifest.get("cpu"))
    facts: dict[tuple[str, str], Any] = {
        (MACHINE, "host"): manifest.get("host"),
        (MACHINE, "CPU"): cpu.get("model"),
        (MACHINE, "cores"): cpu.get("logical"),
        (MACHINE, "cores allowed"): cpu.get("affinity"),
        (MACHINE, "CPU quota"): cpu.get("quota"),
        (MACHINE, "memory"): manifest.get("memory_bytes"),
        (MACHINE, "kernel"): manifest.get("kernel"),
        (VERSIONS, "lotus"): manifest.get("lotus"),
    }
    processes = table(run, "processes")
    for name in ("python", "torch"):
        versions = processes[name].dropna().astype(str).tolist() if name in processes else []
        facts[VERSIONS, name] = ", ".join(dict.fromkeys(versions)) or None
    words = manifest.get("command")
    if isinstance(words, list):
        facts[COMMAND, "words"] = shlex.join(str(word) for word in words)
    facts[COMMAND, "directory"] = manifest.get("cwd")
    for name, value in _mapping(manifest.get("environment")).items():
        if not str(name).startswith(("RANK", "LOCAL_RANK", "GROUP_RANK", "SLURM_JOB", "LOTUS_")):
            facts[COMMAND, str(name)] = value
    facts[COMMAND, "ranks"] = max(len(manifest.get("ranks") or []), 1)
    for name in ("level", "batches", "every", "max_log"):
        facts[RECORDING, name] = manifest.get(name)
    facts[RECORDING, "counters"] = _events(manifest.get("counters"))
    for name in _mapping(manifest.get("recorders")):
        facts[RECORDING, str(name)] = "beside it"
    return {key: value for key, value in facts.items() if value is not None}


def _events(counters: Any) -> str | None:
    """Return the counted events in perf's spelling, name:modes, without kernel numbers."""
    if not isinstance(counters, str) or not counters:
        return None
    parts = [event.split("|") for event in counters.replace(";", ",").split(",")]
    return ", ".join(part[0] if len(part) == 1 else f"{part[0]}:{part[-1]}" for part in parts)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _of_loader(scope: Scope) -> _Facts:
    facts: dict[tuple[str, str], Any] = {}
    for kind, names in ((DATA, _DATA), (SETTINGS, _SETTINGS)):
        for name in names:
            if scope.settings.get(name) is not None:
                facts[kind, name.replace("_", " ")] = scope.settings[name]
    epochs = np.unique(int_column(scope.waits, "epoch"))
    if len(epochs) > 1:  # else it is not known
        facts[SETTINGS, "created anew"] = scope.times_created > 1
    facts[COMMAND, "ranks of this loader"] = max(len(scope.ranks), 1)
    bytes_read = total(float_column(scope.batches, "read_bytes"))
    facts[CIRCUMSTANCES, "read from storage"] = (
        _rounded(bytes_read) if bytes_read >= _LEAST_READ else 0
    )
    facts[CIRCUMSTANCES, "epochs"] = len(epochs)
    return facts


def _rounded(value: float) -> int:
    """Round to one digit, because reading varies slightly from run to run."""
    return int(float(f"{value:.0e}"))
