"""tuned.json: loader settings, which loader each is for, and with what they were found.

`run` starts a program with them: lotus/inside/settings.py puts each on its loader, where the
program makes it. So does it with the plan of a balance.json (lotus/balance/plan.py).
"""

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotus import files, host, launch, redact
from lotus.errors import LotusError
from lotus.launch import Outcome
from lotus.tune.space import Setting

if TYPE_CHECKING:
    from lotus.balance.plan import Plan

SCHEMA = 1
DEFAULT = Path("tuned.json")
_MOST = 16 << 20  # bytes of a document
_MOST_GIVEN = 100_000  # bytes: the kernel takes 128 KiB as one variable of an environment
# How long a rank waits for the others to say whether they can apply a plan: a first batch may come
# minutes later where one rank prepares the data for all.
WAIT_S = 120
MODES = ("sync", "local", "hybrid", "async")


@dataclass(frozen=True)
class Target:
    """Which loader a setting is for: all that is given must be so.

    `number` counts loaders by their first iteration, as reports do; it decides only where nothing
    else is given, for when a loader is made its number is not known. `call_site` is `file:line` of
    the program where the loader is made, `dataset` and `sampler` are names of classes.
    """

    number: int | None = None
    call_site: str | None = None
    dataset: str | None = None
    dataset_length: int | None = None
    sampler: str | None = None

    def __post_init__(self) -> None:
        for name in ("number", "dataset_length"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 0):
                raise ValueError(f"{name} is {value!r}: it must be a whole number from 0 on")
        for name in ("call_site", "dataset", "sampler"):
            value = getattr(self, name)
            if value is not None and (type(value) is not str or not value or len(value) > 1000):
                raise ValueError(f"{name} must be a text")
        if all(value is None for value in asdict(self).values()):
            raise ValueError("nothing says which loader it is: give number, call_site or dataset")

    def words(self) -> str:
        """As "the loader of ImageFolder (1000 samples) at train.py:12"."""
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
class Entry:
    """A setting of one loader, and the one that the program gave it (`before`)."""

    loader: Target
    setting: Setting
    before: Setting | None = None
    iterable_safe: bool = False  # it was shown that an epoch's samples of it stay the same


@dataclass(frozen=True)
class Tuned:
    """What tuned.json holds."""

    loaders: tuple[Entry, ...]
    command: tuple[str, ...] = ()  # the program's, secrets redacted
    host: str | None = None
    cores: float | None = None  # that the program could use at once
    torch: str | None = None
    # How the settings were found, for people to read: trials, rates, reasons.
    evidence: Mapping[str, Any] = field(default_factory=dict)


def machine() -> dict[str, Any]:
    """Host and cores of here, as fields of `Tuned`."""
    facts = host.facts()
    cpu = facts["cpu"]
    return {"host": facts["host"], "cores": min(cpu["affinity"], cpu["quota"] or cpu["affinity"])}


def found_for(entries: Sequence[Entry], command: Sequence[str], **facts: Any) -> Tuned:
    """A document on settings that were found here for this command."""
    return Tuned(tuple(entries), tuple(redact.command(list(command))), **machine(), **facts)


def write(path: Path, tuned: Tuned) -> None:
    """Write a document so that a reader sees the old one or the new one.

    Raises LotusError.
    """
    text = json.dumps({"schema": SCHEMA, **asdict(tuned)}, indent=2) + "\n"
    files.replace(path, text, mode=0o600)


def read(path: Path) -> Tuned:
    """Read a document. Raises LotusError where it is not as `write` makes it."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST + 1)
    except OSError as error:
        raise LotusError(
            f"cannot read {path}: {error.strerror}; --settings FILE names what "
            "`lotus tune` or `lotus balance` wrote"
        ) from None
    try:
        return _tuned(files.json_of(data, _MOST))
    except ValueError as error:
        raise LotusError(
            f"{path} holds no settings of lotus: {_plain(str(error))[:500]}; such a file is "
            f"written by: lotus tune -o {path.name} -- COMMAND"
        ) from None


def _tuned(content: object) -> Tuned:
    if not isinstance(content, dict) or "schema" not in content:
        raise ValueError('it must be an object with "schema"')
    if content["schema"] != SCHEMA:
        raise ValueError(f"its schema is {content['schema']!r:.50}, this lotus reads {SCHEMA}")
    given = {key: value for key, value in content.items() if key != "schema"}
    _only(given, Tuned, "the document")
    loaders = given.get("loaders")
    if not isinstance(loaders, list) or not loaders:
        raise ValueError('"loaders" must be a list of at least one')
    command = given.get("command", [])
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise ValueError('"command" must be a list of texts')
    for name, kinds in (("host", (str,)), ("cores", (int, float)), ("torch", (str,))):
        value = given.get(name)
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise ValueError(f'"{name}" is {value!r:.50}')
    if not isinstance(given.get("evidence", {}), dict):
        raise ValueError('"evidence" must be an object')
    entries = []
    for number, entry in enumerate(loaders):
        try:
            entries.append(_entry(entry))
        except ValueError as error:
            raise ValueError(f"in loaders[{number}], {error}") from None
    return Tuned(**{**given, "loaders": tuple(entries), "command": tuple(command)})


def _entry(content: object) -> Entry:
    if not isinstance(content, dict):
        raise ValueError("it must be an object")
    _only(content, Entry, "it")
    target = content.get("loader")
    if not isinstance(target, dict):
        raise ValueError('"loader" must say which loader it is')
    _only(target, Target, '"loader"')
    before, safe = content.get("before"), content.get("iterable_safe", False)
    if type(safe) is not bool:
        raise ValueError('"iterable_safe" must be true or false')
    return Entry(
        Target(**target),
        Setting.from_json(content.get("setting")),
        None if before is None else Setting.from_json(before),
        safe,
    )


def _only(content: Mapping[str, object], kind: Any, what: str) -> None:
    unknown = sorted(set(content) - {field.name for field in fields(kind)})
    if unknown:
        raise ValueError(f"{what} has unknown fields: {', '.join(unknown)[:200]}")


def code_change(setting: Setting) -> list[str]:
    """The lines by which a user would write a setting into the program."""
    kwargs = setting.kwargs()
    words = [f"num_workers={kwargs.pop('num_workers')}"]
    words += [f"{name}={value!r}" for name, value in kwargs.items() if value not in (None, False)]
    if kwargs.get("in_order") is False:
        words.append("in_order=False")
    lines = [f"DataLoader(..., {', '.join(words)})"]
    if setting.threads is not None and setting.num_workers:
        lines.append(f"torch.set_num_threads({setting.threads})  # first in its worker_init_fn")
    return lines


def shares_change(plan: "Plan") -> list[str]:
    """What a user would have to write into the program for a plan."""
    world, whole = plan.world_size, plan.global_batch
    return [
        f"batch_size = {list(plan.batch_sizes)}[rank]",
        f"# a sampler that gives each rank its part of every {whole} samples of one permutation",
        f"(loss * {world} * batch_size / {whole}).backward()  # where loss is a mean",
    ]


def differences(tuned: Tuned, command: Sequence[str]) -> list[str]:
    """What is not as it was where the settings were found, in words."""
    found = []
    if tuned.command:
        before, now = (_program(words) for words in (tuned.command, redact.command(list(command))))
        if before != now:
            found.append(f"the settings were found for {before}, this is {now}")
    here = machine()
    if tuned.host is not None and tuned.host != here["host"]:
        found.append(f"the settings were found on {tuned.host}, this is {here['host']}")
    if tuned.cores is not None and tuned.cores != here["cores"]:
        cores = f"{tuned.cores:g} core" + ("s" if tuned.cores != 1 else "")
        found.append(f"the settings were found with {cores}, here are {here['cores']:g}")
    return [_plain(text) for text in found]


def _program(command: Sequence[str]) -> str:
    """What a command runs: its script or module, whatever starts it; its arguments do not count."""
    for word, after in zip(command, [*command[1:], ""], strict=True):
        if word in ("-m", "-c") and after and "run" not in after.rpartition(".")[2]:
            return f"{word} {after:.100}"
        if re.search(r"\.(py|sh|bash)$", word):
            return os.path.basename(word)
    return os.path.basename(command[0])


@dataclass(frozen=True)
class Shares:
    """A plan that is to be applied, and how."""

    plan: "Plan"
    summed: bool = False  # a rank's loss is the sum over its samples, not their mean
    wait_s: float = WAIT_S
    rebalance_every: int = 0  # steps after which shares are chosen anew; 0: they stay


@dataclass(frozen=True)
class Mode:
    """How ranks come to one model: lotus/inside/modes.py says what each mode does."""

    name: str  # of MODES
    every: int = 8  # batches from one averaging of parameters to the next: local, hybrid
    after: int = 0  # steps whose gradients are averaged over all ranks before that: local, hybrid
    groups: tuple[tuple[int, ...], ...] = ()  # of ranks; none: those of one host. hybrid
    staleness: int = 4  # steps that a rank may be ahead of what it has of the others: async
    wait_s: float = WAIT_S


def run(
    command: Sequence[str], tuned: Tuned, shares: Shares | None = None, mode: Mode | None = None
) -> tuple[Outcome, list[str]]:
    """Run a command with settings put on its loaders, its global batch shared out, in a mode.

    Returns how it ended, and in words what was not found. Raises CannotStart where the command
    cannot be started.
    """
    words = launch.resolve(command)
    folder = None
    with contextlib.suppress(OSError):  # without it each process says what there is to say
        folder = tempfile.mkdtemp(prefix="lotus-settings-")
    try:
        said = None
        if folder is not None:
            said = Path(folder) / "said"
            with contextlib.suppress(OSError):
                said.touch(0o600)
        environ = launch.with_settings(os.environ, given(tuned, said, shares, mode))
        outcome = launch.run(words, environ)
        return outcome, [] if said is None else not_found(tuned, said, shares, mode)
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def given(
    tuned: Tuned, said: Path | None, shares: Shares | None = None, mode: Mode | None = None
) -> str:
    """What lotus/inside/settings.py is told. Raises LotusError where it is too long."""
    loaders = [
        {
            "loader": asdict(entry.loader),
            "setting": entry.setting.normal().as_json(),
            "iterable_safe": entry.iterable_safe,
        }
        for entry in tuned.loaders
    ]
    facts: dict[str, Any] = {"loaders": loaders, "torch": tuned.torch}
    facts["said"] = None if said is None else str(said)
    if shares is not None:
        plan = shares.plan
        facts["balance"] = {
            "batch_sizes": plan.batch_sizes,
            "loader": None if plan.loader is None else asdict(plan.loader),
            "model": None if plan.model is None else asdict(plan.model),
            "loss": "sum" if shares.summed else "mean",
            "wait_s": shares.wait_s,
            "rebalance_every": shares.rebalance_every,
        }
    if mode is not None:
        facts["mode"] = asdict(mode)
    text = json.dumps(facts)
    if len(text) > _MOST_GIVEN:
        raise LotusError(
            f"settings of {len(loaders)} loaders are too many for an environment"
            if shares is None
            else f"shares of {shares.plan.world_size} ranks are too many for an environment"
        )
    return text


def not_found(
    tuned: Tuned, said: Path, shares: Shares | None = None, mode: Mode | None = None
) -> list[str]:
    """Which settings met no loader of theirs, and what loaders were made instead, in words."""
    facts = []
    with contextlib.suppress(OSError):
        for line in said.read_bytes()[: 1 << 20].splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                facts.append(json.loads(line))
    facts = [fact for fact in facts if isinstance(fact, dict)]
    met = {fact.get(key) for fact in facts for key in ("applied", "refused") if key in fact}
    made = [str(fact["made"]) for fact in facts if "made" in fact]
    rest = [entry for index, entry in enumerate(tuned.loaders) if index not in met]
    found = [
        f"{entry.loader.words()} was not found, so its setting was not applied; "
        + _others(entry.loader, made)
        for entry in rest
    ]
    if shares is not None and not any("balance" in fact for fact in facts):
        target = shares.plan.loader
        what = "a loader with a DistributedSampler that shuffles"
        found.append(
            f"{what if target is None else target.words()} was not read from, so no shares were "
            f"applied; {_others(target or Target(dataset='-'), made)}"
        )
    if mode is not None and not any("mode" in fact for fact in facts):
        found.append(
            "no loader was read from while a model was in DistributedDataParallel, so --mode "
            f"{mode.name} changed nothing"
        )
    return [_plain(text) for text in found]


def _others(target: Target, made: Sequence[str]) -> str:
    """What was made instead, the most alike first."""
    if not made:
        return "no other was made"
    file = (target.call_site or "").partition(":")[0]

    def unlike(words: str) -> tuple[bool, bool]:
        return f" of {target.dataset} " not in words, not file or f" at {file}:" not in words

    shown = [words.removeprefix("the loader of ") for words in sorted(made, key=unlike)[:2]]
    return f"made were {', '.join(shown)}" + (f" and {len(made) - 2} more" if len(made) > 2 else "")


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)[:2000]
