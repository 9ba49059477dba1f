"""tuned.json: loader settings, the loaders they are for, and how they were found."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lotus.common import declared, files, host, redaction
from lotus.common.errors import LotusError
from lotus.inside.cache.compression import METHODS
from lotus.settings.program_name import program_of
from lotus.settings.space import Setting

SCHEMA = 1
DEFAULT = Path("tuned.json")
_MOST = 16 << 20  # bytes of a document
_MOST_ALTERNATIVES = 100
_MOST_NAMES, _LONGEST_NAME = 1000, 1000  # of a transform's operations; characters


@dataclass(frozen=True)
class Target:
    """Identifies the loader of a setting: all fields that are not None must match.

    Only `dataset_length` may differ, if call site, data set and sampler identify one loader.
    `number` counts loaders by their first iteration, as reports do. It is used only if all other
    fields are None, as a loader's number is not known when it is made. `call_site` is the
    `file:line` that makes the loader; `dataset` and `sampler` are names of classes. Raises
    ValueError.
    """

    number: int | None = None
    call_site: str | None = None
    dataset: str | None = None
    dataset_length: int | None = None
    sampler: str | None = None

    def __post_init__(self) -> None:
        for name in ("number", "dataset_length"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} is {value!r}: it must be a whole number from 0 on")
        for name in ("call_site", "dataset", "sampler"):
            value = getattr(self, name)
            if value is not None and not 0 < len(value) <= _LONGEST_NAME:
                raise ValueError(f"{name} must have 1 to {_LONGEST_NAME} characters")
        if all(value is None for value in asdict(self).values()):
            raise ValueError("nothing says which loader it is: give number, call_site or dataset")

    def words(self) -> str:
        """Return, for example, "the loader of ImageFolder (1000 samples) at train.py:12"."""
        if not (self.dataset or self.call_site):
            return "a loader" if self.number is None else f"loader {self.number}"
        inner = [] if self.dataset_length is None else [f"{self.dataset_length} samples"]
        inner += [self.sampler] if self.sampler else []
        return (
            "the loader"
            + (f" of {self.dataset}" if self.dataset else "")
            + (f" ({', '.join(inner)})" if inner else "")
            + (f" at {self.call_site}" if self.call_site else "")
        )


@dataclass(frozen=True)
class SampleCache:
    """Which part of each sample of a loader's data set is cached, and where. Raises ValueError.

    `path` are the attributes that lead from the data set to its transform, and `operations` are the
    transform's; None: it has none. What goes into operation `cut` is cached; after the last one, or
    without a transform, whole samples are. What saves less than `least_ns_per_byte` nanoseconds
    per byte is not cached.
    """

    path: tuple[str, ...] | None
    cut: int
    operations: tuple[str, ...]
    folder: str | None  # None: in the user's cache folder
    budget_bytes: int
    least_ns_per_byte: float = 0.0
    compression: str | None = None  # None: none

    def __post_init__(self) -> None:
        if self.path is not None:
            _check_names("path", self.path)
            if not self.path:
                raise ValueError("path is empty: it must have an attribute, or be null")
        _check_names("operations", self.operations)
        if self.path is None and self.operations:
            raise ValueError("operations need a path to the transform that has them")
        if not 0 <= self.cut <= len(self.operations):
            raise ValueError(
                f"cut is {self.cut!r:.50}: it must be a whole number from 0 to the number of "
                f"operations, {len(self.operations)}"
            )
        folder = self.folder
        if folder is not None and (not os.path.isabs(folder) or "\0" in folder):
            raise ValueError("folder must be an absolute path, or null")
        if self.budget_bytes < 1:
            raise ValueError(f"budget_bytes is {self.budget_bytes!r:.50}: it must be above 0")
        if not 0 <= self.least_ns_per_byte < math.inf:
            raise ValueError(
                f"least_ns_per_byte is {self.least_ns_per_byte!r}: it must be finite and at least 0"
            )
        if self.compression is not None and self.compression not in METHODS:
            raise ValueError(
                f"compression is {self.compression!r:.50}: it must be one of {', '.join(METHODS)}"
            )


def _check_names(field_name: str, names: Sequence[str]) -> None:
    if len(names) > _MOST_NAMES or not all(0 < len(name) <= _LONGEST_NAME for name in names):
        raise ValueError(
            f"{field_name} must have at most {_MOST_NAMES} texts of 1 to {_LONGEST_NAME} characters"
        )


@dataclass(frozen=True)
class AlternativeUse:
    """Another way to make samples: `name` is a file's in lotus/inside/alternatives/.

    Samples are meant to stay equal bit for bit where it is `exact`. Raises ValueError.
    """

    name: str
    exact: bool

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,99}", self.name):
            raise ValueError(f"an alternative is called {self.name!r:.50}")


@dataclass(frozen=True)
class Entry:
    """A loader's new setting, and the program's own (`before`).

    Where only samples are cached (`cache`) or made in another way (`alternatives`), the setting is
    the program's own.
    """

    loader: Target
    setting: Setting
    before: Setting | None = None
    iterable_safe: bool = False  # whether an epoch was shown to keep its samples
    cache: SampleCache | None = None
    alternatives: tuple[AlternativeUse, ...] = ()

    def __post_init__(self) -> None:
        if len(self.alternatives) > _MOST_ALTERNATIVES:
            raise ValueError(f"alternatives must be at most {_MOST_ALTERNATIVES}")


@dataclass(frozen=True)
class Tuned:
    """The contents of tuned.json."""

    loaders: tuple[Entry, ...]
    command: tuple[str, ...] = ()  # of the program, with secrets redacted
    cwd: str | None = None  # working directory of the program
    host: str | None = None
    cores: float | None = None  # that the program could use at once
    torch: str | None = None
    # How the settings were found, for the reader: trials, rates, reasons.
    evidence: Mapping[str, Any] = field(default_factory=dict)


def machine() -> dict[str, Any]:
    """Return this machine's host and cores as fields of `Tuned`."""
    facts = host.facts()
    cpu = facts["cpu"]
    return {"host": facts["host"], "cores": min(cpu["affinity"], cpu["quota"] or cpu["affinity"])}


def found_for(entries: Sequence[Entry], command: Sequence[str], **facts: Any) -> Tuned:
    """Return a document of settings found on this machine for this command."""
    words = tuple(redaction.command(list(command)))
    return Tuned(tuple(entries), words, cwd=_cwd(), **machine(), **facts)


def _cwd() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def write(path: Path, tuned: Tuned) -> None:
    """Write a document atomically. Raises LotusError."""
    content = {"schema": SCHEMA, **asdict(tuned)}
    for entry in content["loaders"]:
        for name in ("cache", "alternatives"):  # versions of before refuse these
            if not entry[name]:
                del entry[name]
        if "cache" in entry and entry["cache"]["compression"] is None:
            del entry["cache"]["compression"]
    files.write_json(path, content, mode=0o600)


def read(path: Path) -> Tuned:
    """Read a document. Raises LotusError if the file is missing or not valid."""
    try:
        data = files.read(path, _MOST + 1, follow=True)
    except OSError as error:
        raise LotusError(
            f"cannot read {path}: {error.strerror}; create it with `lotus tune -o {path.name} -- "
            "COMMAND`, or name another file with --settings"
        ) from None
    try:
        return _tuned(files.json_of(data, _MOST))
    except ValueError as error:
        raise LotusError(
            f"{path} is not a file of settings: {printable(str(error))[:500]}; such a file is "
            f"written by: lotus tune -o {path.name} -- COMMAND"
        ) from None


def _tuned(content: object) -> Tuned:
    if not isinstance(content, dict) or "schema" not in content:
        raise ValueError('it must be an object with "schema"')
    if content["schema"] != SCHEMA:
        raise ValueError(f"its schema is {content['schema']!r:.50}, this lotus reads {SCHEMA}")
    fields = {key: value for key, value in content.items() if key != "schema"}
    tuned = declared.read_as(Tuned, fields)
    if not tuned.loaders:
        raise ValueError("loaders is empty: it must have at least one")
    return tuned


def code_change(setting: Setting) -> list[str]:
    """Return the code changes with which a user would apply a setting by hand."""
    kwargs = setting.kwargs()
    words = [f"num_workers={kwargs.pop('num_workers')}"]
    words += [f"{name}={value!r}" for name, value in kwargs.items() if value not in (None, False)]
    if kwargs.get("in_order") is False:
        words.append("in_order=False")
    lines = [f"DataLoader(..., {', '.join(words)})"]
    if setting.threads is not None and setting.num_workers:
        # What lotus/inside/common/worker_threads.py does.
        lines += [
            f"torch.set_num_threads({setting.threads})  # first in its worker_init_fn",
            f"cv2.setNumThreads({setting.threads})  # there, too, where it uses OpenCV",
            f"threadpoolctl.threadpool_limits({setting.threads})  # and for numpy's BLAS",
        ]
    if setting.torch_threads is not None:
        lines.append(f"torch.set_num_threads({setting.torch_threads})  # before training")
    return lines


def other_program(tuned: Tuned, command: Sequence[str]) -> str:
    """Return a message if the settings were found for another script or module; else "".

    Directory, arguments and launcher are ignored, and so are settings without a command.
    """
    if not tuned.command:
        return ""
    before, now = (program_of(redaction.command(list(words))) for words in (tuned.command, command))
    if os.path.basename(before) == os.path.basename(now):
        return ""
    return printable(f"the settings were found for {before}, this is {now}")


def differences(tuned: Tuned, command: Sequence[str]) -> list[str]:
    """Return messages on what differs from the program and machine of the settings."""
    changes = [other_program(tuned, command)]
    if tuned.command and not changes[0]:
        before, now = (
            os.path.normpath(os.path.join(folder or "", program_of(words)))
            for folder, words in ((tuned.cwd, tuned.command), (_cwd(), command))
        )
        scripts = all(re.search(r"\.(py|sh|bash)$", path) for path in (before, now))
        if before != now and scripts and os.path.isabs(before):
            changes.append(f"the settings were found for {before}, this is {now}")
    here = machine()
    if tuned.host is not None and tuned.host != here["host"]:
        changes.append(f"the settings were found on {tuned.host}, this is {here['host']}")
    if tuned.cores is not None and tuned.cores != here["cores"]:
        cores = f"{tuned.cores:g} core" + ("s" if tuned.cores != 1 else "")
        changes.append(f"the settings were found with {cores}, here are {here['cores']:g}")
    return [printable(text) for text in changes if text]


def printable(text: str) -> str:
    """Return at most 2,000 characters of a text, without control characters."""
    return "".join(char if char.isprintable() else "?" for char in text)[:2000]
