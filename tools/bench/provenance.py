"""The conditions of a measurement: the machine, the commit and the day."""

import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from lotus.common.machine import host

ROOT = Path(__file__).resolve().parents[2]


def commit() -> str:
    """Return the commit, with -dirty if lotus or these scripts have uncommitted changes."""

    def git(*words: str) -> str:
        completed = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return completed.stdout.strip()

    # Not the results: those change while they are measured.
    changed = git("status", "--porcelain", "-uno", "lotus", "native_map", "tools/*.py")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + "-dirty" * bool(changed)


def machine() -> dict[str, Any]:
    """Return the processor, the number of CPUs that this process may use, and the kernel."""
    facts = host.facts()
    cpu = facts["cpu"]
    return {"cpu": cpu["model"], "cpus": cpu["affinity"], "kernel": facts["kernel"]}


def cpus() -> str:
    here = machine()
    return f"{here['cpu']}, {here['cpus']} CPUs"


def header(library: ModuleType | None = None, more: str = "") -> str:
    """Return the lines above a table: machine, `library`, and subject of the measurement."""
    text = f"machine  {cpus()}, kernel {machine()['kernel']}; Python {sys.version.split()[0]}"
    if library is not None:
        text += f", {library.__name__} {library.__version__}"
    return f"{text}\ncommit   {commit()}, {time.strftime('%Y-%m-%d')}{more}"
