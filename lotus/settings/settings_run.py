"""Runs a command with loader settings, shares of the global batch and a training mode applied.

lotus/inside/apply/settings_applier.py puts each setting on its loader where the program makes it,
and the plan of a balance.json on the ranks.
"""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lotus.common.errors import LotusError
from lotus.recording import launcher, program_environment
from lotus.recording.launcher import ProgramOutcome
from lotus.settings.share_plan import SharePlan
from lotus.settings.tuned_file import Entry, Target, Tuned, printable

_MOST_GIVEN = 100_000  # bytes: the kernel takes 128 KiB as one variable of an environment

# How long a rank waits until the others report whether they can apply a plan. The first batch may
# come minutes later if one rank prepares the data for all.
WAIT_S = 120

MODES = ("sync", "local", "hybrid", "async")
# Of `ModeOptions`; those that are not here are for all modes.
MODES_OF_OPTION = {
    "every": ("local", "hybrid"),
    "after": ("local", "hybrid"),
    "groups": ("hybrid",),
    "staleness": ("async",),
}


def shares_change(plan: SharePlan) -> list[str]:
    """Return the code changes with which a user would apply a plan by hand."""
    world, whole = plan.world_size, plan.global_batch
    return [
        f"batch_size = {list(plan.batch_sizes)}[rank]",
        f"# a sampler that gives each rank its part of every {whole} samples of one permutation",
        f"(loss * {world} * batch_size / {whole}).backward()  # where loss is a mean",
    ]


@dataclass(frozen=True)
class Shares:
    """A plan to apply, and how to apply it."""

    plan: SharePlan
    summed: bool = False  # a rank's loss is the sum over its samples, not their mean
    wait_s: float = WAIT_S
    rebalance_every: int = 0  # steps after which shares are computed again; 0: never


@dataclass(frozen=True)
class ModeOptions:
    """The synchronisation of a model by ranks; see lotus/inside/distributed/training_modes.py."""

    name: str  # of MODES
    every: int = 8  # local, hybrid: batches between averagings of parameters
    after: int = 0  # local, hybrid: steps at the start whose gradients all ranks average
    groups: tuple[tuple[int, ...], ...] = ()  # hybrid: groups of ranks; empty: one per host
    staleness: int = 4  # async: steps that a rank may be ahead of updates from the others
    wait_s: float = WAIT_S


def mode_of(name: str | None, given: Mapping[str, Any]) -> ModeOptions | None:
    """Return the mode of this name with the options that are given; None without a name.

    `given` may have None for an option that was not. Raises LotusError for one of another mode.
    """
    values = {option: value for option, value in given.items() if value is not None}
    for option in values:
        if name not in MODES_OF_OPTION[option]:
            modes = " and --mode ".join(MODES_OF_OPTION[option])
            raise LotusError(f"--{option} is for --mode {modes}")
    return None if name is None else ModeOptions(name, **values)


def run(
    command: Sequence[str],
    tuned: Tuned,
    shares: Shares | None = None,
    mode: ModeOptions | None = None,
    allowed: Collection[str] = (),
) -> tuple[ProgramOutcome, list[str]]:
    """Run a command with settings, shares of the global batch and a mode applied.

    `allowed` names alternatives that may change values. Returns how it ended, and messages on what
    was not found. Raises CommandStartError if the command cannot be started.
    """
    words = launcher.resolve(command)
    folder = None
    with contextlib.suppress(OSError):  # without it each process prints its messages
        folder = tempfile.mkdtemp(prefix="lotus-settings-")
    try:
        messages = None
        if folder is not None:
            messages = Path(folder) / "said"
            with contextlib.suppress(OSError):
                messages.touch(0o600)
        document = request(tuned, messages, shares, mode, allowed)
        environ = program_environment.with_settings(os.environ, document)
        outcome = launcher.run(words, environ)
        if messages is None:
            return outcome, []
        facts = recorded_facts(messages)
        return outcome, [*not_found(tuned, facts, shares, mode), *_kept(facts)]
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def request(
    tuned: Tuned,
    messages: Path | None,
    shares: Shares | None = None,
    mode: ModeOptions | None = None,
    allowed: Collection[str] = (),
) -> str:
    """Return the JSON request to lotus/inside/apply/settings_applier.py.

    Alternatives that may change values are put in where they are `allowed`. Raises LotusError if it
    is too long.
    """
    loaders = [
        {
            "loader": asdict(entry.loader),
            "setting": entry.setting.normal().as_json(),
            "iterable_safe": entry.iterable_safe,
            **({} if entry.cache is None else {"cache": asdict(entry.cache)}),
            **({"alternatives": names} if (names := _put_in(entry, allowed)) else {}),
        }
        for entry in tuned.loaders
    ]
    facts: dict[str, Any] = {"loaders": loaders, "torch": tuned.torch}
    facts["said"] = None if messages is None else str(messages)
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


def _put_in(entry: Entry, allowed: Collection[str]) -> list[str]:
    """Return the alternatives to put in: those that replace most operations come first."""
    uses = sorted(
        entry.alternatives, key=lambda use: (use.exact, use.name)
    )  # as they were measured
    return [use.name for use in uses if use.exact or use.name in allowed]


def recorded_facts(messages: Path) -> list[dict[str, Any]]:
    """Return what the program's processes have recorded."""
    facts = []
    with contextlib.suppress(OSError):
        for line in messages.read_bytes()[: 1 << 20].splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                facts.append(json.loads(line))
    return [fact for fact in facts if isinstance(fact, dict)]


def _kept(facts: Sequence[dict[str, Any]]) -> list[str]:
    """Return a message on how many samples came from a cache, if any did."""
    counts = [fact for fact in facts if type(fact.get("kept")) is int]
    if not counts:
        return []
    kept, made = (sum(int(fact[name]) for fact in counts) for name in ("kept", "made"))
    return [f"{kept:,} of {kept + made:,} samples came from the cache; `lotus cache ls` lists them"]


def not_found(
    tuned: Tuned,
    facts: Sequence[dict[str, Any]],
    shares: Shares | None = None,
    mode: ModeOptions | None = None,
) -> list[str]:
    """Return messages on settings whose loader was not found, with the loaders made instead."""
    met = {fact.get(key) for fact in facts for key in ("applied", "refused") if key in fact}
    made = [str(fact["made"]) for fact in facts if "made" in fact]
    rest = [entry for index, entry in enumerate(tuned.loaders) if index not in met]
    problems = [
        f"{entry.loader.words()} was not found, so its setting was not applied; "
        + _others(entry.loader, made)
        for entry in rest
    ]
    if shares is not None and not any("balance" in fact for fact in facts):
        target = shares.plan.loader
        what = "a loader with a DistributedSampler that shuffles"
        problems.append(
            f"{what if target is None else target.words()} was not read from, so no shares were "
            f"applied; {_others(target or Target(dataset='-'), made)}"
        )
    if mode is not None and not any("mode" in fact for fact in facts):
        problems.append(
            "no loader was read from while a model was in DistributedDataParallel, so --mode "
            f"{mode.name} changed nothing"
        )
    return [printable(text) for text in problems]


def _others(target: Target, made: Sequence[str]) -> str:
    """Return the loaders made instead, the most similar first."""
    if not made:
        return "no other was made"
    file = (target.call_site or "").partition(":")[0]

    def unlike(words: str) -> tuple[bool, bool]:
        return f" of {target.dataset} " not in words, not file or f" at {file}:" not in words

    shown = [words.removeprefix("the loader of ") for words in sorted(made, key=unlike)[:2]]
    return f"made were {', '.join(shown)}" + (f" and {len(made) - 2} more" if len(made) > 2 else "")
