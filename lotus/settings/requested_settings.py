"""What is to be applied to a program: the settings of several files, shares and a training mode."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lotus.common.errors import LotusError
from lotus.common.terminal.stderr import printable
from lotus.inside.common import alternative_files
from lotus.settings import settings_run, share_plan, tuned_file
from lotus.settings.combined_settings import combined
from lotus.settings.settings_run import ModeOptions, Shares
from lotus.settings.tuned_file import Entry, Tuned


@dataclass(frozen=True)
class RequestedSettings:
    """Documents by their files, their combination `tuned`, and what else is applied."""

    documents: Mapping[Path, Tuned]
    tuned: Tuned
    shares: Shares | None = None
    mode: ModeOptions | None = None

    @property
    def changes_anything(self) -> bool:
        """True if the program runs with anything but its own settings."""
        return self.mode is not None or self.shares is not None or self.tuned.changes_anything

    @property
    def _files(self) -> str:
        return " and ".join(map(str, self.documents))

    def other_program(self, command: Sequence[str]) -> str:
        """Return a message if a file is for another script or module than the command; else ""."""
        found = (tuned_file.other_program(each, command) for each in self.documents.values())
        return next(filter(None, found), "")

    def notes(self, command: Sequence[str]) -> list[str]:
        """Return what to know before the command runs: what differs, and what was not measured."""
        differences = [
            text
            for document in self.documents.values()
            if document.loaders
            for text in tuned_file.differences(document, command)
        ]
        notes = list(dict.fromkeys(differences))
        if len(self.documents) > 1:
            notes.append(
                f"{self._files} are applied together; what that gains has not been measured"
            )
        if not self.changes_anything:
            notes.append(f"{self._files}: the program's own settings, so it runs as it is")
        return notes

    def left_out(self, allowed: Collection[str]) -> list[str]:
        """Return the names of alternatives that may change values and are not `allowed`.

        Raises LotusError for an allowed one that is not in the files.
        """
        uses = [use for entry in self.tuned.loaders for use in entry.alternatives]
        known = sorted({use.name for use in uses})
        for name in allowed:
            if name not in known:
                raise LotusError(
                    f"--allow {name}: the settings have "
                    + (f"only {', '.join(known)}" if known else "no alternatives")
                    + "; `lotus advise -- COMMAND` tries them"
                )
        return sorted({use.name for use in uses if not use.exact}.difference(allowed))

    def code_changes(self) -> list[str]:
        """Return the lines of the code changes that have the same effect, with comments."""
        lines = []
        if self.documents and not self.changes_anything:
            lines.append(printable(f"# {self._files}: the program's own settings are kept"))
        for entry in self.tuned.loaders:
            if len(self.tuned.loaders) > 1:
                lines.append(printable(f"# {entry.loader.words()}"))
            lines += _code_changes(entry)
        if self.shares is not None:
            lines += settings_run.shares_change(self.shares.plan)
        return lines


def _code_changes(entry: Entry) -> list[str]:
    lines = tuned_file.code_change(entry.setting)
    if entry.cache is not None:
        lines.append("# samples are cached by lotus run only, without a change of code")
    for use in entry.alternatives:
        known = use.name in alternative_files.names()
        change = alternative_files.load(use.name).CHANGE if known else "unknown here"
        lines.append(f"# {use.name}: {change}")
    return lines


def read(
    paths: Sequence[Path],
    mode: ModeOptions | None = None,
    *,
    summed: bool = False,
    rebalance_every: int = 0,
) -> RequestedSettings:
    """Read files of settings, one of which may be a plan of shares (balance.json).

    Without paths it is tuned.json, or no file where there is a mode. `summed` and `rebalance_every`
    are those of `Shares`. Raises LotusError where a file is not valid, or cannot be applied with
    the others.
    """
    paths = paths or ([] if mode is not None else [tuned_file.DEFAULT])
    plans = [path for path in paths if share_plan.is_plan(path)]
    if len(plans) > 1:
        raise LotusError(
            f"{plans[0]} and {plans[1]} both have shares; only one of them can be applied"
        )
    documents = {path: tuned_file.read(path) for path in paths if path not in plans}
    shares = None
    if plans:
        shares = Shares(share_plan.read(plans[0]), summed, rebalance_every=rebalance_every)
    elif rebalance_every:
        raise LotusError("--rebalance-every needs a plan: --settings balance.json")
    tuned = combined(documents)
    if mode is not None and mode.name != "sync" and shares is not None:
        raise LotusError(
            f"--mode {mode.name} cannot use shares: a plan of lotus balance is for gradients "
            "that are averaged in each step; leave out one of the two"
        )
    return RequestedSettings(documents, tuned, shares, mode)
