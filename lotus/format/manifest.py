"""run.json: what was run, where, and how it ended."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lotus.common.machine import host
from lotus.common.storage import files
from lotus.common.text import redaction
from lotus.common.version import __version__
from lotus.format import run_claim
from lotus.inside.trace.log.log_format import SCHEMA

NAME = "run.json"
LEVELS = ("batch", "sample", "op", "op+cpu")

# Other environment variables are private to the user and are not kept.
_KEPT = frozenset(
    "OMP_NUM_THREADS OMP_PROC_BIND OMP_PLACES GOMP_CPU_AFFINITY KMP_AFFINITY KMP_BLOCKTIME "
    "MKL_NUM_THREADS OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS RANK LOCAL_RANK WORLD_SIZE "
    "LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES "
    "ROCR_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES PYTHONHASHSEED PYTHONOPTIMIZE LD_PRELOAD "
    "MALLOC_ARENA_MAX PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF SLURM_JOB_ID SLURM_PROCID "
    "SLURM_LOCALID SLURM_NTASKS SLURM_NNODES SLURM_CPUS_PER_TASK".split()
)


@dataclass(frozen=True)
class TraceSettings:
    """Settings of a recording.

    `batches` is "FIRST:LAST" (half open), `max_log` bytes per process.
    """

    level: str = "op"
    batches: str | None = None
    every: int = 1
    max_log: int | None = None
    ops: tuple[str, ...] = ()
    counters: str | None = None  # as lotus.inside.common.perf_event.parse_groups parses them
    cpu: Mapping[str, Any] | None = (
        None  # their definitions: uarch, and metrics of native_map.events.perf_list
    )
    ranges: tuple[str, ...] = ()  # for other profilers: names of lotus.inside.trace.config.RANGES


def begin(
    command: Sequence[str], settings: TraceSettings, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return the manifest of a run that starts now; secrets are redacted."""
    try:
        cwd = os.getcwd()
    except OSError:  # the directory was removed meanwhile
        cwd = None
    return {
        "schema": SCHEMA,
        "lotus": __version__,
        "state": "running",
        "command": redaction.command(command),
        "cwd": cwd,
        "start_ns": time.monotonic_ns(),
        "start_wall_ns": time.time_ns(),
        "end_ns": None,
        "exit_code": None,
        "signal": None,
        "memory_kills": None,
        "level": settings.level,
        "batches": settings.batches,
        "every": settings.every,
        "max_log": settings.max_log,
        "ops": list(settings.ops),
        "counters": settings.counters,
        "uarch": (settings.cpu or {}).get("uarch"),
        "metrics": (settings.cpu or {}).get("metrics"),
        "clock": "CLOCK_MONOTONIC",
        **host.facts(),
        "shm_bytes": host.shared_memory(),
        "environment": redaction.environment(
            {
                name: content
                for name, content in sorted(environ.items())
                if name in _KEPT or name.startswith("LOTUS_")
            }
        ),
        "rank": _number(environ, "RANK"),
        "local_rank": _number(environ, "LOCAL_RANK"),
        "world_size": _number(environ, "WORLD_SIZE"),
        "ranks": [],
    }


def end(
    manifest: Mapping[str, Any],
    exit_code: int | None,
    signal: int | None,
    end_ns: int,
    ranks: Sequence[Mapping[str, Any]] = (),
    memory_kills: int | None = None,
) -> dict[str, Any]:
    """Return the manifest of the same run after its end; `ranks` are those that recorded.

    `memory_kills`: how many processes of its cgroup the kernel killed meanwhile, as memory was full
    there; None: not known.
    """
    return {
        **manifest,
        "state": "ended",
        "end_ns": end_ns,
        "exit_code": exit_code,
        "signal": signal,
        "memory_kills": memory_kills,
        "ranks": list(ranks),
    }


_TIME = range(1 << 62)
_TEXT, _TEXTS = (str,), (list, str)
# The valid values of each field of a run.json besides None: a range of integers, types, or a
# container and the types of its elements.
_FIELDS: dict[str, Any] = {
    **dict.fromkeys("start_ns start_wall_ns end_ns max_log memory_bytes shm_bytes".split(), _TIME),
    **dict.fromkeys("lotus state cwd level batches counters uarch clock".split(), _TEXT),
    **dict.fromkeys("boot_id host kernel".split(), _TEXT),
    **dict.fromkeys(("command", "ops"), _TEXTS),
    **dict.fromkeys(("rank", "local_rank", "world_size"), range(-1, 1 << 31)),
    "exit_code": range(-(1 << 31), 1 << 32),
    "signal": range(1 << 16),
    "memory_kills": range(1 << 31),
    "every": range(1, 1 << 31),
    "cpu": (dict, str, int, float),
    "metrics": (dict, str),
    "environment": (dict, str),
    "recorders": (dict, dict),
    "ranks": (list, dict),
    "hosts": (list, dict),
    "merged": (list, dict),
    "made": (dict, int),
}
_CPU = {"model": _TEXT} | dict.fromkeys(("logical", "affinity"), range(1, 1 << 20))


def sound(manifest: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the valid fields of a run.json that was read, and the names of the invalid ones.

    So a field is None or what `begin` and `end` write. Secrets, which an earlier version of lotus
    may have written, are redacted.
    """
    wrong = [name for name in _FIELDS if not _is(manifest.get(name), _FIELDS[name])]
    kept_fields = {name: value for name, value in manifest.items() if name not in wrong}
    cpu = kept_fields.get("cpu") or {}
    quota = cpu.get("quota")
    bad = [name for name in _CPU if not _is(cpu.get(name), _CPU[name])]
    if quota is not None and (type(quota) not in (int, float) or not 0 < quota < 1 << 20):
        bad.append("quota")
    if bad:
        kept_fields["cpu"] = {name: value for name, value in cpu.items() if name not in bad}
    if kept_fields.get("command"):
        kept_fields["command"] = redaction.command([word or "" for word in kept_fields["command"]])
    if kept_fields.get("environment"):
        known = kept_fields["environment"].items()
        kept = {name: redaction.value(name, text) if text else text for name, text in known}
        kept_fields["environment"] = kept
    return kept_fields, wrong + [f"cpu.{name}" for name in bad]


def _is(value: Any, what: Any) -> bool:
    if value is None:
        return True
    if isinstance(what, range):
        return type(value) is int and value in what
    container, *kinds = what
    if not kinds:
        return type(value) is container
    if type(value) is not container:
        return False
    inner = value.values() if container is dict else value
    return all(item is None or type(item) in kinds for item in inner)


def write(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Write run.json atomically. Raises OSError.

    Its field "made" distinguishes the directory from a copy of it.
    """
    if made := run_claim.identity(directory):
        manifest = {**manifest, "made": made}
    with files.atomic(directory / NAME, 0o600, sync=True) as file:
        file.write(files.json_text(manifest).encode() + b"\n")


def _number(environ: Mapping[str, str], name: str) -> int | None:
    try:
        return int(environ[name])
    except (KeyError, ValueError):
        return None
