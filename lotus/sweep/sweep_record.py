"""Sweep: a directory of runs of one program under different loader settings, and its sweep.json.

sweep.json is written before the first run and after each, by lotus/sweep/sweep_runner.py; `write`
and `load` define its layout.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from msgspec.structs import asdict

from lotus.common.errors import LotusError
from lotus.common.storage import declared, files
from lotus.format.run_directory import SWEEP
from lotus.reading.run import Run
from lotus.reading.run import load as load_run
from lotus.settings.space import PARAMETERS, Setting
from lotus.sweep.sweep_document import LARGE, SweepDocument, SweptRun

NAME = SWEEP
SCHEMA = 1
# Fields of a run that the table has, and types of its columns.
_RUN = ("setting", "repeat", "directory", "state", "exit_code", "signal", "elapsed_ns", "cpu_s")
_TYPES = {
    **dict.fromkeys(("num_workers", "setting", "repeat"), "int64"),
    **dict.fromkeys(("exit_code", "signal", "elapsed_ns"), "Int64"),
    "cpu_s": "float64",
}


class Sweep:
    """A sweep's directory, and the runs in it.

    path      the directory
    manifest  sweep.json: command (secrets hidden), cwd, seed, plan, the facts of the host, ...
    runs      a row per planned run, in the order in which they are made: the fields of `Setting`
              (num_workers, prefetch_factor, ...; only those of `varied` were set), setting (its
              index in `settings()`), repeat (from 0), directory (relative to `path`), state
              ("done", "failed", "pending"), exit_code and signal (Int64, <NA>: not ended that
              way), elapsed_ns (Int64), cpu_s (both of the whole command with all processes)
    """

    def __init__(self, path: str | os.PathLike[str], trust: bool = False) -> None:
        self.path = Path(path)
        self._trust = trust
        self.manifest = _manifest(self.path)
        self._settings, self.runs = _checked(self.path, self.manifest)

    def __repr__(self) -> str:
        completed = int((self.runs["state"] == "done").sum())
        return f"Sweep({str(self.path)!r}, {completed} of {len(self.runs)} runs done)"

    @cached_property
    def varied(self) -> tuple[str, ...]:
        """The parameters that the sweep sets; all others are the program's own."""
        names = self.manifest["varied"]
        return tuple(name for name in PARAMETERS if name in names or name == "num_workers")

    def settings(self) -> list[Setting]:
        """Return the distinct settings in the order of the plan."""
        return list(self._settings)

    def directories(self, setting: Setting, state: str = "done") -> list[Path]:
        """Return the directories of a setting's runs with this state, by repeat."""
        selected = self.runs["setting"] == self._settings.index(setting)
        rows = self.runs[selected & (self.runs["state"] == state)].sort_values("repeat")
        return [self.path / str(directory) for directory in rows["directory"]]

    def loaded(self, setting: Setting) -> list[Run]:
        """Load the completed runs of a setting, by repeat. Raises LotusError."""
        return [load_run(path, self._trust) for path in self.directories(setting)]


def is_sweep(path: str | os.PathLike[str]) -> bool:
    """Return True if a directory has a sweep.json."""
    return os.path.isfile(Path(path) / NAME)


def load(path: str | os.PathLike[str], trust: bool = False) -> Sweep:
    """Read the directory of a sweep; `trust`: as for its runs. Raises LotusError."""
    return Sweep(path, trust)


def write(path: Path, manifest: Mapping[str, Any]) -> None:
    """Write sweep.json atomically. Raises LotusError."""
    files.write_json(path / NAME, {"schema": SCHEMA, **manifest}, mode=0o600)


def name_of(setting: Setting, varied: Sequence[str]) -> str:
    """Return a file name for a setting, such as "workers4-prefetch2-pin"."""
    words = [f"workers{setting.num_workers}"]
    if "prefetch_factor" in varied and setting.prefetch_factor is not None:
        words.append(f"prefetch{setting.prefetch_factor}")
    for name, word in (("pin_memory", "pin"), ("persistent_workers", "persistent")):
        if name in varied and setting.num_workers + (name == "pin_memory"):
            words.append(word if getattr(setting, name) else f"no{word}")
    if "start_method" in varied and setting.start_method is not None:
        words.append(setting.start_method)
    return "-".join(words)


def _manifest(path: Path) -> dict[str, Any]:
    make = "make a sweep with: lotus sweep --workers 1,2,4 -o DIRECTORY -- python train.py"
    try:
        content = files.read_json(path / NAME)
    except FileNotFoundError:
        problem = "there is no sweep at" if not path.exists() else "there is no sweep.json in"
        raise LotusError(f"{problem} {path}; {make}") from None
    except OSError as error:
        raise LotusError(
            f"cannot read {path / NAME}: {error.strerror}; see: ls -ld {path} {path / NAME}"
        ) from None
    except ValueError:
        content = None
    if not isinstance(content, dict) or type(content.get("schema")) is not int:
        raise LotusError(f"{path / NAME} is damaged, or lotus did not write it; {make}")
    if content["schema"] > SCHEMA:
        raise LotusError(f"{path} was written by a newer lotus; update lotus to read this sweep")
    return content


def _checked(path: Path, manifest: Mapping[str, Any]) -> tuple[list[Setting], pd.DataFrame]:
    """Return the settings and runs of a manifest. Raises LotusError if they are not valid."""
    try:
        document = declared.read_as(SweepDocument, manifest, NAME)
        settings, runs = list(document.settings), document.runs
        _consistent(settings, runs)
    except ValueError as error:
        why = "".join(char if char.isprintable() else "?" for char in str(error))[:300]
        raise LotusError(
            f"{path / NAME} is damaged: {why}; what it holds: lotus schema sweep; "
            f"its runs can be read: lotus report {path}/runs/NAME"
        ) from None
    _not_elsewhere(path, {run.directory for run in runs})
    rows = [{**dataclasses.asdict(settings[run.setting]), **asdict(run)} for run in runs]
    return settings, pd.DataFrame(rows, columns=[*PARAMETERS, *_RUN]).astype(_TYPES)


def _consistent(settings: Sequence[Setting], runs: Sequence[SweptRun]) -> None:
    """Raise ValueError for settings and runs that do not fit each other, or lie elsewhere."""
    for number, setting in enumerate(settings):
        for name, value in setting.as_json().items():
            if isinstance(value, int) and value >= LARGE:
                raise ValueError(f"settings[{number}].{name} is {value!r:.50}")
    if len(set(settings)) < len(settings):
        raise ValueError("a setting stands there twice")
    for number, run in enumerate(runs):
        if run.setting >= len(settings):
            raise ValueError(f"runs[{number}] is of setting {run.setting}, which is not there")
        directory = run.directory  # never read anything outside the sweep
        if not directory.isprintable() or os.path.isabs(directory) or ".." in Path(directory).parts:
            raise ValueError(f"runs[{number}] lies in {directory!r:.100}")
    if len({os.path.normpath(run.directory) for run in runs}) < len(runs):
        raise ValueError("two runs lie in one directory")


def _not_elsewhere(path: Path, directories: Iterable[str]) -> None:
    """Raise LotusError if a run, or a parent directory within the sweep, is a link."""
    for place in {folder for name in directories for folder in (Path(name), *Path(name).parents)}:
        if place.parts and os.path.islink(path / place):
            what = "".join(char if char.isprintable() else "?" for char in str(place))[:300]
            raise LotusError(
                f"{path / NAME} names {what}, which is a link, and nothing outside of a sweep is "
                "read; move the run itself there"
            )
