"""tuned.json: loader settings, the loaders they are for, and how they were found."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from lotus.common.errors import LotusError
from lotus.common.machine import host
from lotus.common.storage import declared, files
from lotus.common.storage.declared import Length, OneOf, Pattern, Range
from lotus.common.text import redaction
from lotus.inside.cache.compression import METHODS
from lotus.settings.program_name import program_of
from lotus.settings.space import Setting

SCHEMA = 1
DEFAULT = Path("tuned.json")
_VERBS = {"advice.json": "advise", "plan.json": "plan"}
_MOST = 16 << 20  # bytes of a document
_MOST_NAMES = 1000  # of a transform's operations
Count = Annotated[int, Range(0)]
Name = Annotated[str, Length(1, 1000)]


@dataclass(frozen=True)
class Target:
    """Identifies the loader of a setting: all fields that are not None must match.

    Only `dataset_length` may differ, if call site, data set and sampler identify one loader.
    `number` counts loaders by their first iteration, as reports do. It is used only if all other
    fields are None, as a loader's number is not known when it is made. `call_site` is the
    `file:line` that makes the loader; `dataset` and `sampler` are names of classes. Raises
    ValueError.
    """

    number: Annotated[Count | None, "Its number by first iteration."] = None
    call_site: Annotated[Name | None, "FILE:LINE that makes it."] = None
    dataset: Annotated[Name | None, "The data set's class."] = None
    dataset_length: Annotated[Count | None, "Samples of the data set."] = None
    sampler: Annotated[Name | None, "The sampler's class."] = None

    def __post_init__(self) -> None:
        declared.check(self)
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
    """The part of each sample of a loader's data set that is cached, and where.

    `path` are the attributes that lead from the data set to its transform, and `operations` are the
    transform's; None: it has none. What goes into operation `cut` is cached; after the last one, or
    without a transform, whole samples are. What saves less than `least_ns_per_byte` nanoseconds
    per byte is not cached. Raises ValueError.
    """

    path: Annotated[
        Annotated[tuple[Annotated[Name, "An attribute."], ...], Length(1, _MOST_NAMES)] | None,
        "Attributes from the data set to its transform; null: it has none.",
    ]
    cut: Annotated[Count, "What goes into this operation is cached; after the last: whole samples."]
    operations: Annotated[
        tuple[Annotated[Name, "Its name."], ...],
        Length(0, _MOST_NAMES),
        "Operations of the transform, in their order.",
    ]
    folder: Annotated[
        Annotated[str, Pattern(r"/[^\0]*", "an absolute path, or null")] | None,
        "Where samples are cached; null: the user's cache folder.",
    ]
    budget_bytes: Annotated[Annotated[int, Range(1)], "What may be cached at most, in bytes."]
    least_ns_per_byte: Annotated[
        Annotated[float, Range(0)], "A sample that saves fewer nanoseconds per byte is not cached."
    ] = 0.0
    compression: Annotated[
        Annotated[str, OneOf(METHODS)] | None,
        "Method by which samples are compressed; absent: they are not.",
    ] = None

    def __post_init__(self) -> None:
        declared.check(self)
        if self.path is None and self.operations:
            raise ValueError("operations need a path to the transform that has them")
        if self.cut > len(self.operations):
            raise ValueError(
                f"cut is {self.cut!r:.50}: it must be a whole number from 0 to the number of "
                f"operations, {len(self.operations)}"
            )


@dataclass(frozen=True)
class AlternativeUse:
    """Another way to make samples: `name` is a file's in lotus/inside/alternatives/.

    Samples are meant to stay equal bit for bit where it is `exact`. Raises ValueError.
    """

    name: Annotated[
        Annotated[str, Pattern(r"[a-z][a-z0-9_]{0,99}", "one that lotus advise names")],
        "Its name, as lotus advise gives it.",
    ]
    exact: Annotated[bool, "Whether samples are meant to stay equal bit for bit."]

    def __post_init__(self) -> None:
        declared.check(self)


@dataclass(frozen=True)
class Entry:
    """A loader's new setting, and the program's own (`before`).

    Where only samples are cached (`cache`) or made in another way (`alternatives`), the setting is
    the program's own.
    """

    loader: Annotated[Target, "Which loader."]
    setting: Annotated[Setting, "What it is given."]
    before: Annotated[Setting | None, "What the program gave it."] = None
    iterable_safe: Annotated[
        bool, "Whether an epoch of an iterable data set was shown to keep its samples."
    ] = False
    cache: Annotated[
        SampleCache | None, "Which part of each sample is cached; absent: nothing is."
    ] = None
    alternatives: Annotated[
        tuple[AlternativeUse, ...],
        Length(0, 100),
        "Other ways to make its samples; absent: none.",
    ] = ()

    def __post_init__(self) -> None:
        declared.check(self)


@dataclass(frozen=True)
class TunedHead:
    """The layout of a tuned.json. Raises ValueError for one that this lotus does not read."""

    schema: Annotated[int, "Number of this layout; fields are only ever added within one."]

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"its schema is {self.schema!r:.50}, this lotus reads {SCHEMA}")


@dataclass(frozen=True)
class Tuned:
    """Loader settings, as lotus tune writes and lotus run --settings reads them."""

    loaders: Annotated[tuple[Entry, ...], Length(1), "Settings, a loader each."]
    command: Annotated[
        tuple[Annotated[str, "A word."], ...],
        "Words of the command that they were found for, secrets replaced.",
    ] = ()
    cwd: Annotated[str | None, "Working directory of the command; null: not known."] = None
    host: Annotated[str | None, "Where they were found."] = None
    cores: Annotated[float | None, "Cores that the program could use at once."] = None
    torch: Annotated[str | None, "Version of torch."] = None
    evidence: Annotated[
        Mapping[str, Any],
        "How the settings were found: as of lotus tune --json, of which a file of an earlier "
        "version may lack fields; empty: not by lotus tune.",
    ] = field(default_factory=dict)

    @property
    def changes_anything(self) -> bool:
        """True if a loader gets another setting, cached samples or alternatives."""
        return any(
            entry.before is None
            or entry.setting.normal() != entry.before.normal()
            or entry.cache is not None
            or entry.alternatives
            for entry in self.loaders
        )


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
            f"cannot read {path}: {error.strerror}; create it with `{_written_by(path)}`, or name "
            "another file with --settings"
        ) from None
    try:
        return _tuned(files.json_of(data, _MOST))
    except ValueError as error:
        raise LotusError(
            f"{path} is not a file of settings: {printable(str(error))[:500]}; such a file is "
            f"written by: {_written_by(path)}"
        ) from None


def is_without_gain(path: Path) -> bool:
    """Return True if `lotus tune` wrote the file and found nothing better: nobody will miss it."""
    try:
        tuned = read(path)
    except LotusError:
        return False
    return bool(tuned.evidence) and not tuned.changes_anything


def _written_by(path: Path) -> str:
    """Return the command that writes such a file, as far as its name tells."""
    if path.name == "balance.json":
        return "lotus balance RUN -o balance.json"
    return f"lotus {_VERBS.get(path.name, 'tune')} -o {path.name} -- COMMAND"


def _tuned(content: object) -> Tuned:
    _, fields = declared.read_head(TunedHead, content)
    tuned = declared.read_as(Tuned, fields)
    declared.check(tuned)  # `combined_settings` makes one without loaders
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
        # What lotus/inside/common/loaders/worker_threads.py does.
        lines += [
            f"torch.set_num_threads({setting.threads})  # only there: in its worker_init_fn",
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
    return printable(f"the settings were found for {before}, but this command runs {now}")


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
            changes.append(f"the settings were found for {before}, but this command runs {now}")
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
