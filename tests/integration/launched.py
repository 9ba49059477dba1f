"""What tests of `lotus trace` start, and what they read of it afterwards."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOTUS = [sys.executable, "-m", "lotus"]


def trace(
    *command: str | Path, options: tuple[str, ...] = (), **kwargs: Any
) -> subprocess.CompletedProcess[bytes]:
    kwargs = {"capture_output": True, **kwargs}
    return subprocess.run([*LOTUS, "trace", "-o", "run", *options, "--", *command], **kwargs)


def manifest(path: Path = Path("run")) -> dict[str, Any]:
    return json.loads((path / "run.json").read_text())  # type: ignore[no-any-return]


def messages_of(run: subprocess.CompletedProcess[bytes]) -> list[str]:
    """Return the lines that lotus itself printed."""
    return [line for line in run.stderr.decode().splitlines() if line.startswith("lotus: ")]


def python(tmp_path: Path, code: str) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(code)
    return [sys.executable, str(path)]
