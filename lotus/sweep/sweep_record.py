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

from lotus.common import files
from lotus.common.errors import LotusError
from lotus.format.run_directory import SWEEP
from lotus.reading.run import Run
from lotus.reading.run import load as load_run
from lotus.settings.space import PARAMETERS, Setting

NAME = SWEEP
SCHEMA = 1
STATES = ("done", "failed", "pending")
_MOST = 100_000  # settings, runs
# Fields of a run besides its setting: name -> allowed types.
_RUN = {"exit_code": int, "signal": int, "elapsed_ns": int, "cpu_s": float}
_LARGE = 1 << 31  # above all numbers of settings and repeats


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

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.manifest = _manifest(self.path)
        self._settings, self.runs = _checked(self.path, self.manifest)

    def __repr__(self) -> str:
        completed = int((self.runs["state"] == "done").sum())
        return f"Sweep({str(self.path)!r}, {completed} of {len(self.runs)} runs done)"

    @cached_property
    def varied(self) -> tuple[str, ...]:
        """The parameters that the sweep sets; all others are the program's own."""
        named = self.manifest.get("varied")
        names = named if isinstance(named, list) else []
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
        return [load_run(path) for path in self.directories(setting)]


def is_sweep(path: str | os.PathLike[str]) -> bool:
    """Whether a directory holds a sweep.json."""
    return os.path.isfile(Path(path) / NAME)


def load(path: str | os.PathLike[str]) -> Sweep:
    """Read the directory of a sweep. Raises LotusError."""
    return Sweep(path)


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
        _known_words(manifest)
        listed = _list(manifest, "settings")
        settings = [Setting.from_json(entry) for entry in listed]
        for value in (
            parameter for setting in settings for parameter in setting.as_json().values()
        ):
            if isinstance(value, int) and value >= _LARGE:
                raise ValueError(f"a setting has the number {value!r:.50}")
        if len(set(settings)) < len(settings):
            raise ValueError("a setting stands there twice")
        rows = [_row(entry, settings) for entry in _list(manifest, "runs")]
        if len({os.path.normpath(row["directory"]) for row in rows}) < len(rows):
            raise ValueError("two runs lie in one directory")
    except (ValueError, TypeError) as error:
        why = "".join(char if char.isprintable() else "?" for char in str(error))[:300]
        raise LotusError(
            f"{path / NAME} is damaged: {why}; its runs can be read: lotus report {path}/runs/NAME"
        ) from None
    _not_elsewhere(path, {row["directory"] for row in rows})
    columns = [*PARAMETERS, "setting", "repeat", "directory", "state", *_RUN]
    table = pd.DataFrame(rows, columns=columns)
    types = {"num_workers": "int64", "setting": "int64", "repeat": "int64"}
    run_types = {name: "Int64" if kind is int else "float64" for name, kind in _RUN.items()}
    return settings, table.astype({**types, **run_types})


def _not_elsewhere(path: Path, directories: Iterable[str]) -> None:
    """Raise LotusError if a run, or a parent directory within the sweep, is a link."""
    for place in {folder for name in directories for folder in (Path(name), *Path(name).parents)}:
        if place.parts and os.path.islink(path / place):
            what = "".join(char if char.isprintable() else "?" for char in str(place))[:300]
            raise LotusError(
                f"{path / NAME} names {what}, which is a link, and nothing outside of a sweep is "
                "read; move the run itself there"
            )


def _known_words(manifest: Mapping[str, Any]) -> None:
    """Raise ValueError if the command, the notes or the plan have the wrong type."""
    for name in ("command", "notes"):
        words = manifest.get(name) or []
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"{name} is no list of texts")
    plan = manifest.get("plan") or {}
    if not isinstance(plan, dict):
        raise ValueError("plan is no object")
    if type(plan.get("repeat", 1)) is not int:
        raise ValueError(f"repeat of the plan is {plan['repeat']!r:.50}")


def _list(manifest: Mapping[str, Any], name: str) -> list[Any]:
    items = manifest.get(name)
    if not isinstance(items, list) or not 0 < len(items) <= _MOST:
        raise ValueError(f"{name} is not a list of one to {_MOST}")
    return items


def _row(run: Any, settings: Sequence[Setting]) -> dict[str, Any]:
    if not isinstance(run, dict):
        raise ValueError("a run is not an object")
    place, repeat, directory = run.get("setting"), run.get("repeat"), run.get("directory")
    if type(place) is not int or not 0 <= place < len(settings):
        raise ValueError(f"a run is of setting {place!r:.50}, which is not there")
    if type(repeat) is not int or not 0 <= repeat < _LARGE:
        raise ValueError(f"a run is repeat {repeat!r:.50}")
    # Never read anything outside the directory.
    if not isinstance(directory, str) or not directory or not directory.isprintable():
        raise ValueError(f"a run lies in {directory!r:.100}")
    if os.path.isabs(directory) or ".." in Path(directory).parts:
        raise ValueError(f"a run lies in {directory!r:.100}")
    if run.get("state") not in STATES:
        raise ValueError(f"a run is {run.get('state')!r:.50}")
    for name, kind in _RUN.items():
        value: Any = run.get(name)
        number = isinstance(value, (int, float)) and 0 <= value < 1 << 62
        if value is not None and not (number and type(value) is kind):
            raise ValueError(f"{name} of a run is {run[name]!r:.50}")
    facts = {name: run.get(name) for name in _RUN}
    fields = dataclasses.asdict(settings[place])
    row = {"setting": place, "repeat": repeat, "directory": directory, "state": run["state"]}
    return {**fields, **row, **facts}
