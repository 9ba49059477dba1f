"""The result of a search: the setting, its gain, all trials, and settings never tried."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lotus.common.errors import LotusError
from lotus.common.storage import files
from lotus.common.text.formatting import amount, duration, plural, share
from lotus.settings import tuned_file
from lotus.settings.space import PARAMETERS, Measurement, Setting
from lotus.settings.tuned_file import Entry, Tuned
from lotus.tune.program.program import Watched
from lotus.tune.search.default_space import step_of
from lotus.tune.search.outcome import operation_costs
from lotus.tune.search.outcome import search_notes as notes
from lotus.tune.search.outcome.decision import LeftOpen, may_gain
from lotus.tune.search.outcome.rejected_settings import passed_over
from lotus.tune.search.trials.trial_rates import Checked, Speedup
from lotus.tune.search.trials.trial_runner import RuledOut, TrialRow

if TYPE_CHECKING:
    import pandas as pd

_MEASURED = (
    "samples_per_s",
    "low",
    "high",
    "seconds",
    "first_batch_s",
    "memory_bytes",
    "failed",
)
_SHOWN = 8  # reasons why settings were ruled out, in `explain`


@dataclass(frozen=True)
class Result:
    """The outcome of a search. Rates are samples/s over an epoch (see `Measurement`)."""

    best: Setting  # the recommended setting; the own one if nothing better was shown
    own: Setting  # the program's setting
    speedup: Speedup | None  # of `best` over `own`; None if one of them was not measured
    predicted: float | None  # the speed-up predicted by the strategy's model, if it has one
    benefit: bool  # `best` was shown to be faster by 5 % or more
    measured: tuple[TrialRow, ...]
    ruled_out: tuple[RuledOut, ...]
    seconds: float  # duration of the search
    budget_s: float
    settings_tried: int  # different loaders, including that of the own setting
    interrupted: bool
    notes: tuple[str, ...]
    watched: Watched
    objective: str  # "train" or "throughput"
    strategy: str
    reason: str  # why the strategy ended
    cores: float
    cores_why: str
    pruned: tuple[tuple[str, str], ...] = ()  # (what the strategy left out, why)
    untried: str = ""  # why no setting but the own one could be tried
    failure: str = ""  # why not even the own setting could be measured
    out_of_time: bool = False  # the budget sufficed for the own setting only
    iterable_safe: bool = False  # an iterable data set was shown to keep its samples
    checked: Checked | None = None  # the comparison in the program's own steps, if made
    # The same of settings with fewer threads of torch; `checked` is one of them if it is chosen.
    threads_checked: tuple[Checked, ...] = ()
    left_open: LeftOpen | None = None  # what trials left open, for the check
    check_s: float | None = None  # what --check gave to the check; None: it depends on the budget
    slowed_step: str = ""  # of `notes`, what says that the step's threads compete with workers
    compared: tuple[tuple[Setting, Speedup], ...] = ()  # measured in turn with the own setting
    # Costs of operations under each setting, as made by
    # `lotus.tune.search.outcome.operation_costs.operation_costs`; None: not recorded.
    operations: pd.DataFrame | None = field(default=None, repr=False, compare=False)
    make: Callable[[Setting], Any] | None = field(default=None, repr=False, compare=False)

    @property
    def trials(self) -> pd.DataFrame:
        """Measurements in order, a row each, including those that confirm the result.

        Columns: the fields of `Setting`; `samples_per_s` with its 95 % interval `low`, `high`;
        `seconds` of the trial, including start-up; `first_batch_s` from `iter()`; `memory_bytes`
        of the main process and the workers; `failed`, why a trial gave no rate, or ""; `why` it
        was made.
        """
        import pandas as pd

        rows = [self._row(row) for row in self.measured]
        return pd.DataFrame(rows, columns=[*PARAMETERS, *_MEASURED, "why"])

    def _row(self, row: TrialRow) -> dict[str, Any]:
        values = {name: getattr(row.measurement, name) for name in _MEASURED}
        return {**row.measurement.setting.as_json(), **values, "why": row.why}

    def loader(self) -> Any:
        """Return a copy of the user's loader with the best setting; the original is unchanged.

        The copy shares its data set, sampler, collate and worker_init_fn. Raises LotusError if the
        search was not made in this process.
        """
        if self.make is None:
            raise LotusError(
                "this result is of another program; apply it with: lotus run --settings tuned.json"
            )
        return self.make(self.best)

    def tuned(self, command: Sequence[str]) -> Tuned:
        """Return the contents of tuned.json for the program of this command."""
        entry = Entry(self.watched.loader, self.best, self.watched.setting, self.iterable_safe)
        return tuned_file.found_for(
            [entry], command, torch=self.watched.torch, evidence=self.as_json()
        )

    def as_json(self) -> dict[str, Any]:
        """Return all fields but the loader as JSON types; values that are not finite are null."""
        data = {
            each.name: getattr(self, each.name)
            for each in dataclasses.fields(self)
            if each.name
            not in (
                "best", "own", "speedup", "measured", "ruled_out", "operations", "make", "compared",
                "slowed_step", "left_open", "check_s",
            )
        }  # fmt: skip
        data["watched"] = dataclasses.asdict(self.watched)
        data["notes"] = list(self.notes)
        data["best"], data["own"] = self.best.as_json(), self.own.as_json()
        data["speedup"] = None if self.speedup is None else dataclasses.asdict(self.speedup)
        if self.checked is not None:
            data["checked"] = _checked_json(self.checked)
        data["threads_checked"] = [_checked_json(each) for each in self.threads_checked]
        data["trials"] = [self._row(row) for row in self.measured]
        data["ruled_out"] = [
            {"setting": item.setting.as_json(), "why": item.why} for item in self.ruled_out
        ]
        data["passed_over"] = [
            {"setting": item.as_json(), "why": why} for item, why in passed_over(self).items()
        ]
        costs = self.operations
        data["operations"] = [] if costs is None else costs.to_dict("records")
        plain: dict[str, Any] = files.json_value(data)
        return plain

    def explain(self) -> str:
        """Return the result as text: what to set, what it gains, how it was found."""
        lines = self._headline()
        if self.best != self.own:
            lines += [f"  {line}" for line in tuned_file.code_change(self.best)]
        lines += [f"torch's threads: {text}" for text in self.other_threads()]
        if self.step():
            lines.append(f"step: {self.step()}")
        lines.append(
            f"{plural(self.settings_tried, 'setting')} tried in {duration(self.seconds * 1e9)} "
            f"of {duration(self.budget_s * 1e9)}, with {self.cores:g} cores ({self.cores_why}):"
        )
        lines += [f"  {line}" for line in self._tried()]
        if self.best.torch_threads is not None:
            lines.append(notes.trials_had(self.watched.threads))
        if self.reason and not self.untried:
            lines.append(f"{self.strategy}: {self.reason}")
        if self.ruled_out:
            lines.append(f"never tried: {plural(len(self.ruled_out), 'setting')}")
            lines += [f"  {line}" for line in self._never()]
        lines += [f"left out: {what}: {why}" for what, why in self.pruned[:_SHOWN]]
        if self.operations is not None:
            lines += operation_costs.words(self.operations)
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def __str__(self) -> str:
        return self.explain()

    def change(self) -> str:
        """Describe the recommended setting and the one that it replaces."""
        return notes.instead(self.best, self.own, self.watched.threads)

    def other_threads(self) -> list[str]:
        """Describe the settings with fewer torch threads that were tried and not chosen."""
        others = [each for each in self.threads_checked if each.setting != self.best.normal()]
        return [
            f"{notes.setting(each.setting)}: {notes.checked(each, each.setting)}" for each in others
        ]

    def undecided(self) -> str:
        """Describe the most promising setting if it was neither shown to be faster nor refuted."""
        if self.best.normal() != self.own.normal():
            return ""
        most = self._most_doubtful()
        if most is not None:
            return notes.undecided(most, self.own, self.watched.threads)
        if self.left_open is not None and self.checked is None and not self.threads_checked:
            return notes.left_open(self.left_open.setting, self.own)
        return ""

    def _most_doubtful(self) -> Checked | None:
        """Return the check of the most promising setting that was not shown to be faster."""
        checks = [*([self.checked] if self.checked is not None else []), *self.threads_checked]
        doubtful = [
            each for each in checks if not each.speedup.is_significant and may_gain(each.speedup)
        ]
        return max(doubtful, key=lambda each: each.speedup.mean, default=None)

    def longer(self) -> str:
        """Describe what would decide what is undecided."""
        if not self.longer_option():
            return notes.QUIETER
        return notes.longer_check(self.budget_s, self._check_limit())

    def longer_option(self) -> str:
        """Return the option with which more time would decide; "" if it would hardly."""
        most = self._most_doubtful()
        if most is not None and most.speedup.tells_nothing:
            return ""
        return notes.longer_option(self.budget_s, self._check_limit())

    def _check_limit(self) -> float | None:
        was_checked = self.checked is not None or self.threads_checked
        return self.check_s if was_checked else None

    def step(self) -> str:
        """Describe the duration of the program's own step, and the rate that it allows."""
        watched = self.watched
        if not watched.steps_s or not watched.sizes:
            return ""
        step = step_of(watched)[0]
        samples = statistics.mean(watched.sizes)
        if step <= 0 or samples <= 0:
            return ""
        text = f"the program's step takes {duration(step * 1e9)} per batch"
        if self.objective == "train":
            text += f"; with data always ready that is {amount(samples / step)} samples/s"
            wanted = self.best.normal()
            rates = [
                row.measurement.samples_per_s
                for row in self.measured
                if row.measurement.setting.normal() == wanted and not row.measurement.failed
            ]
            if rates:
                part = share(statistics.mean(rates) * step / samples)
                text += f"; {notes.setting(self.best)} gives {part} of that"
        return text

    def _headline(self) -> list[str]:
        best, own = notes.setting(self.best), notes.setting(self.own)
        if self.failure:
            return [self.failure]
        if self.untried:
            step = notes.next_step(self.untried)
            verdict = [f"no other setting could be tried: the program keeps its own, {own}"]
            return [*verdict, f"why: {self.untried}", *([f"next: {step}"] if step else [])]
        if self.speedup is None:
            if self.best == self.own:
                return [f"nothing found: the program keeps its own setting, {own}"]
            return [f"{best} worked; the program's own setting, {own}, was not measured"]
        shown = notes.speedup(self.speedup)
        if self.benefit and self.checked is not None:
            steps = notes.checked(self.checked, self.best)
            if self.speedup != self.checked.speedup:
                steps += f"; in trials {self.speedup.mean:.3g} times"
            return [f"{self.change()}: {steps}"]
        if self.benefit:
            return [f"{self.change()}: {shown}"]
        if self.undecided():
            return [self.undecided(), f"next: {self.longer()}"]
        if self.best == self.own and self.interrupted:
            return [f"nothing was shown to be better so far than the program's own, {own}"]
        if self.best == self.own and self.out_of_time:
            more = notes.more_time(self.budget_s)
            return [notes.only_own(self.own, self.seconds), f"next: {more}"]
        return [f"no benefit from another setting: the program keeps its own, {own}"]

    def _tried(self) -> list[str]:
        """Return a line per setting, in the order of their first trials."""
        trials: dict[Setting, list[Measurement]] = {}
        for row in self.measured:
            trials.setdefault(row.measurement.setting, []).append(row.measurement)
        width = max((len(notes.setting(setting)) for setting in trials), default=0)
        whys = {} if self.best.torch_threads is not None else passed_over(self)
        return [
            f"{notes.setting(setting):{width}}  {_rates(rows)}"
            + (f"; {whys[setting.normal()]}" if setting.normal() in whys else "")
            for setting, rows in trials.items()
        ]

    def _never(self) -> list[str]:
        """Return a line per reason, with the number of settings ruled out and their cheapest."""
        grouped = notes.grouped(self.ruled_out)
        lines = [notes.never(those, why) for those, why in grouped[:_SHOWN]]
        if len(grouped) > _SHOWN:
            rest = sum(len(those) for those, _ in grouped[_SHOWN:])
            lines.append(f"and {plural(rest, 'setting')} more")
        return lines


def _checked_json(checked: Checked) -> dict[str, Any]:
    return {**dataclasses.asdict(checked), "setting": checked.setting.as_json()}


def _rates(rows: Sequence[Measurement]) -> str:
    worked = [row for row in rows if not row.failed]
    if not worked:
        return f"failed: {rows[-1].failed}"
    mean = sum(row.samples_per_s for row in worked) / len(worked)
    text = f"{amount(mean)} samples/s"
    if len(worked) == 1 and math.isfinite(worked[0].high):
        text += f" ({amount(worked[0].low)} to {amount(worked[0].high)})"
    elif len(worked) > 1:
        text += f" (mean of {len(worked)} blocks)"
    failed = [row.failed for row in rows if row.failed]
    return (
        text
        + f", {duration(sum(row.seconds for row in rows) * 1e9)}"
        + (f"; then failed: {failed[-1]}" if failed else "")
    )
