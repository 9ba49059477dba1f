"""What a measurement was made on and of: the machine, the commit, the day."""

import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from lotus.common import host

ROOT = Path(__file__).resolve().parents[2]


def commit() -> str:
    """Return the commit, with -dirty where lotus or these scripts are not as it has them."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip()

    # Not the results: those change while they are measured.
    changed = git("status", "--porcelain", "-uno", "lotus", "native_map", "tools/bench/*.py")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + "-dirty" * bool(changed)


def machine() -> dict[str, Any]:
    """Its processor, how many CPUs this process may use, its kernel."""
    facts = host.facts()
    cpu = facts["cpu"]
    return {"cpu": cpu["model"], "cpus": cpu["affinity"], "kernel": facts["kernel"]}


def cpus() -> str:
    here = machine()
    return f"{here['cpu']}, {here['cpus']} CPUs"


def header(library: ModuleType | None = None, more: str = "") -> str:
    """The lines above a table: what it was measured on, with which `library`, and of what."""
    text = f"machine  {cpus()}, kernel {machine()['kernel']}; Python {sys.version.split()[0]}"
    if library is not None:
        text += f", {library.__name__} {library.__version__}"
    return f"{text}\ncommit   {commit()}, {time.strftime('%Y-%m-%d')}{more}"
