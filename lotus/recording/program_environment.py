"""The environment of a program that is traced, tuned, or has settings applied to its loaders."""

import os
from collections.abc import Mapping
from pathlib import Path

from lotus.format.manifest import TraceSettings

# Those that describe a recording.
VARIABLES = frozenset(
    "LOTUS_RUN LOTUS_LEVEL LOTUS_BATCHES LOTUS_EVERY LOTUS_MAX_LOG LOTUS_OPS LOTUS_COUNTERS "
    "LOTUS_RANGES LOTUS_QUIET".split()
)
_PATH_ENTRY = Path(__file__).resolve().parents[1] / "inside" / "sitecustomize"


def with_tracing(
    environ: Mapping[str, str], directory: Path, settings: TraceSettings, quiet: bool = False
) -> dict[str, str]:
    """Return the environment of the traced program: `environ`, PYTHONPATH and LOTUS_*."""
    # A run inside a traced run records to its own directory only, with its own settings.
    added = {name: content for name, content in environ.items() if name not in VARIABLES}
    added["PYTHONPATH"] = _python_path(environ)
    added["LOTUS_RUN"] = str(directory)
    added["LOTUS_LEVEL"] = settings.level
    if settings.batches is not None:
        added["LOTUS_BATCHES"] = settings.batches
    if settings.every != 1:
        added["LOTUS_EVERY"] = str(settings.every)
    if settings.max_log is not None:
        added["LOTUS_MAX_LOG"] = str(settings.max_log)
    if settings.ops:
        added["LOTUS_OPS"] = "\n".join(settings.ops)
    if settings.counters:
        added["LOTUS_COUNTERS"] = settings.counters
    if settings.ranges:
        added["LOTUS_RANGES"] = ",".join(settings.ranges)
    if quiet:
        added["LOTUS_QUIET"] = "1"
    return added


def with_settings(environ: Mapping[str, str], text: str) -> dict[str, str]:
    """Return the environment of a program to whose loaders settings are applied
    (lotus/settings/tuned_file.py).

    A recording around it is not affected.
    """
    return {**environ, "PYTHONPATH": _python_path(environ), "LOTUS_SETTINGS": text}


def with_tuning(environ: Mapping[str, str], text: str) -> dict[str, str]:
    """Return the environment of a program that is tuned (lotus/tune/session/subprocess_tuning.py).

    The code that applies settings is active too, with no settings if there were none.
    """
    settings = environ.get("LOTUS_SETTINGS") or '{"loaders": []}'
    return {**with_settings(environ, settings), "LOTUS_TUNE": text}


def _python_path(environ: Mapping[str, str]) -> str:
    """Return PYTHONPATH with lotus's directory first."""
    ours = str(_PATH_ENTRY)
    # An empty PYTHONPATH is none, but an empty entry in it is the working directory.
    paths = (environ.get("PYTHONPATH") or ours).split(os.pathsep)
    return os.pathsep.join([ours, *(path for path in paths if path != ours)])
