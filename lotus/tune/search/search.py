"""Searches the settings of one loader: asks a strategy, tries what is safe, confirms what it finds.

The program's own setting is measured first: it is needed to say what is gained, it is what the
program does anyway, and it shows what a worker takes before more of them are tried.
"""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from lotus.common.errors import LotusError
from lotus.inside.tune.candidates.trial_requests import CompareEpochs, EpochComparison
from lotus.settings.space import TORCH_PREFETCH, Measurement, Setting, Space
from lotus.tune import strategies
from lotus.tune.program.program import Program, TrialFailed, Watched
from lotus.tune.search import search_notes
from lotus.tune.search.default_space import VARIED, default_space, plain, step_of
from lotus.tune.search.machine_limits import Limits
from lotus.tune.search.result import Result
from lotus.tune.search.safety import Safety, limits_of
from lotus.tune.search.trial_rates import Speedup, compared
from lotus.tune.search.trial_runner import NeverTried, RuledOut, TrialRunner, loader_of
from lotus.tune.strategies import Strategy
from lotus.tune.strategies.problem import Problem

WORTH = 0.02  # a smaller gain is none, and a smaller loss is the price of a cheaper setting
OBJECTIVES = ("train", "throughput")
Factory = Callable[[Problem], Strategy]
_CONFIRMING = 0.3  # of the budget, kept for it
_CHECKING = 0.4  # of the budget, at most, to compare two epochs of an iterable data set
_PAIRS = 3  # at least
_SETUP_MATTERS = 0.02  # of an epoch: from there on its spread must be seen too


@dataclass(frozen=True)
class SearchProgress:
    """What a search does next (`measurement` None), or what that gave."""

    doing: str  # "measuring", "checking samples", "confirming"
    setting: Setting
    why: str  # the strategy's reason
    measurement: Measurement | None
    speedup: Speedup | None  # so far, while confirming
    spent_s: float
    budget_s: float


def search(
    program: Program,
    *,
    strategy: str | Factory = "lotus",
    space: Space | None = None,
    budget_s: float = 60.0,
    objective: str = "train",
    seed: int = 0,
    vary: Collection[str] = (),
    on_progress: Callable[[SearchProgress], object] | None = None,
    limits: Limits | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Find the setting that feeds a program fastest, in `budget_s` seconds.

    `objective`: "train" with the program's step between batches, "throughput" without. `vary`
    names what else to vary of `VARIED`, where `space` is not given. `limits`: what may be used,
    read from the machine as it goes where not given. What a trial does wrong is a row of the
    result; Ctrl-C ends the search with what it has. All candidates are closed at the end.
    Raises LotusError where what is asked for cannot be searched.
    """
    if objective not in OBJECTIVES:
        raise LotusError(f"objective {objective!r} is none of {', '.join(OBJECTIVES)}")
    unknown = [name for name in vary if name not in VARIED]
    if unknown:
        raise LotusError(f"{', '.join(unknown)}: what can be varied is {', '.join(VARIED)}")
    if not 0 < budget_s < math.inf:
        raise LotusError(f"a budget of {budget_s:g} s is none; give seconds above 0")
    if isinstance(strategy, str) and strategy not in strategies.NAMES:
        raise LotusError(
            f"no strategy is called {strategy!r}; there are {', '.join(strategies.NAMES)}"
        )
    pid = program.watched.pid
    safety = Safety(program.watched, (lambda: limits) if limits else (lambda: limits_of(pid)))
    trials = TrialRunner(program, safety, clock, budget_s, objective == "train")
    tuning = _Search(program.watched, trials, budget_s, seed, frozenset(vary), on_progress)
    return tuning.run(strategy, space, objective)


class _Search:
    """One search; its state is what Ctrl-C must leave usable."""

    def __init__(
        self,
        watched: Watched,
        trials: TrialRunner,
        budget_s: float,
        seed: int,
        vary: frozenset[str],
        on_progress: Callable[[SearchProgress], object] | None,
    ) -> None:
        self.watched, self.trials, self.budget_s = watched, trials, budget_s
        self.seed, self.vary, self.on_progress = seed, vary, on_progress
        self.own = plain(watched.setting, vary)
        self.chosen = self.own  # what is recommended so far
        self.speedup: Speedup | None = None
        self.epochs: tuple[tuple[int, int, int], ...] = ()  # as EpochComparison has them
        self.samples_kept = False  # of an iterable data set, with more workers
        self.compared: dict[Setting, Speedup] = {}  # what was measured in turn with the own one
        self.notes: list[str] = []
        self.strategy: Strategy | None = None
        self.space: Space | None = None

    def run(self, strategy: str | Factory, space: Space | None, objective: str) -> Result:
        interrupted = False
        try:
            try:
                self._search(strategy, space)
                if not self.trials.forbidden:
                    self._decide()
                if self.trials.forbidden:  # what was shown until then was of garbage
                    self.chosen, self.speedup = self.own, None
            except KeyboardInterrupt:
                interrupted = True
                self._guess()
            finally:
                self.trials.close_all()
        except KeyboardInterrupt:
            interrupted = True
            self.trials.close_all()
        return self._result(objective, interrupted)

    # The search.

    def _search(self, strategy: str | Factory, space: Space | None) -> None:
        if self.trials.forbidden:
            return
        own = self._measure(self.own, "the program's own setting, measured first")
        if self.trials.forbidden:
            return
        known = self.trials.safety.known
        if own.failed and not known and not self.watched.iterable and self.trials.left > 0:
            small = dataclasses.replace(self.own, num_workers=1, prefetch_factor=TORCH_PREFETCH)
            self._measure(small, "the smallest setting with a worker: it shows what one takes")
        if self.watched.iterable and self.trials.left > 0:
            self._check_iterable()
        if self.trials.forbidden:
            return
        self.space = space or default_space(
            self.watched, self.trials.safety.start.cores, own, self.vary
        )
        problem = self._problem(self.space)
        if isinstance(strategy, str):
            self.strategy = strategies.make(strategy, self.space, seed=self.seed, problem=problem)
        else:
            self.strategy = strategy(problem)
        for row in self.trials.rows:
            self.strategy.tell(row.measurement)
        while self.trials.left > self.budget_s * _CONFIRMING:
            setting = self.strategy.ask()
            if setting is None:
                return
            self.strategy.tell(self._measure(setting, self.strategy.reason()))
            if self.trials.forbidden:
                return
        if self.strategy.ask() is not None:
            self.notes.append(search_notes.cut_short(self.strategy.reason()))

    def _measure(self, setting: Setting, why: str) -> Measurement:
        self._say("measuring", setting, why)
        safety = self.trials.safety
        if safety.known or safety.first(setting):
            measurement = self.trials.measure(setting, why)
        else:
            self.trials.ruled_out[setting.normal()] = search_notes.NOTHING_KNOWN
            measurement = Measurement.failure(
                setting.normal(), f"never tried: {search_notes.NOTHING_KNOWN}"
            )
        self._say("measuring", setting, why, measurement)
        return measurement

    def _check_iterable(self) -> None:
        """Allow other worker counts only where more workers were shown to keep the samples."""
        own = self.own.num_workers
        more = dataclasses.replace(
            self.own,
            num_workers=max(own + 1, 2),
            prefetch_factor=self.own.prefetch_factor or TORCH_PREFETCH,
        )
        self._say("checking samples", more, "an iterable data set may repeat samples in workers")
        why = (
            self.trials.make_room(more) if self.trials.safety.known else search_notes.NOTHING_KNOWN
        )
        if not why:
            limit_s = min(self.budget_s * _CHECKING, self.trials.left)
            try:
                same = self.trials.program.perform(more, CompareEpochs(limit_s))
                why = same.why
                self._count(same)
            except TrialFailed as error:
                self.trials.heed(error)
                why = str(error) or "it failed"
        self.samples_kept = not why
        if why:
            self.trials.workers = {own}
            self.trials.workers_why = search_notes.not_same_samples(own, more.num_workers, why)
            self.notes.append(self.trials.workers_why)

    def _count(self, same: EpochComparison) -> None:
        """An epoch has been counted: so long it is, where the loader does not tell."""
        if same.why or self.watched.batches is not None:
            return
        for workers, samples, batches in same.epochs:
            if workers == self.own.num_workers and samples and batches:
                self.trials.counted(samples, batches)
                self.watched = dataclasses.replace(self.watched, batches=batches)
                self.epochs = same.epochs

    def _problem(self, space: Space) -> Problem:
        watched, train = self.watched, self.trials.train
        step_s, cores = step_of(watched)
        sizes = watched.sizes
        return Problem(
            space=space,
            own=self.own,
            cores=self.trials.safety.start.cores,
            batches=watched.batches or None,
            samples=max(sum(sizes) / len(sizes), 1e-9) if sizes else float(watched.batch_size or 1),
            step_s=step_s if train else 0.0,
            step_cores=cores if train else 0.0,
            accelerator=watched.accelerator is not None,
            iterable=watched.iterable,
            allowed=self.trials.refused,
            seed=self.seed,
            budget_s=max(self._for_trials(), 1e-3),
        )

    def _for_trials(self) -> float:
        """Seconds for all trials, those made counted: without confirming and what else was done."""
        made = sum(row.measurement.seconds for row in self.trials.rows)
        return self.budget_s * (1 - _CONFIRMING) - (self.trials.spent - made)

    # The decision.

    def _decide(self) -> None:
        candidate = self._best()
        if candidate is None:
            self.notes.append(search_notes.nothing_worked(self.trials.rows, self.trials.left <= 0))
            return
        if self._rate(self.own) is None:
            self.chosen = candidate  # nothing to compare with
            self.notes.append(search_notes.OWN_NOT_MEASURED)
            return
        if candidate != self.own:
            self.chosen = candidate
            self.speedup = self._confirm(candidate)
            if self.speedup.low > 1 and self.speedup.mean >= 1 + WORTH:
                return
        self._take_cheapest(candidate)

    def _take_cheapest(self, candidate: Setting) -> None:
        """No benefit: take the cheapest setting that is as fast, if that can be shown."""
        before = self.speedup
        self.chosen, self.speedup = self.own, Speedup(1.0, 1.0, 1.0, 0)
        own = self._rate(self.own) or 0.0
        worked = {row.measurement.setting for row in self.trials.rows if not row.measurement.failed}
        cheaper = sorted(setting for setting in worked if setting < self.own)
        as_fast = [
            setting for setting in cheaper if (self._rate(setting) or 0.0) >= own * (1 - WORTH)
        ]
        if before is not None and (candidate not in as_fast or before.low < 1 - WORTH):
            self.notes.append(search_notes.no_benefit(candidate, before))
        for setting in as_fast:
            if setting == candidate and before is not None:
                shown = before
            elif self.trials.left > 0:
                shown = self._confirm(setting)
            else:
                return
            if shown.low >= 1 - WORTH:
                self.chosen, self.speedup = setting, shown
                return
            if setting != candidate:
                self.notes.append(search_notes.no_benefit(setting, shown))

    def _confirm(self, setting: Setting) -> Speedup:
        """Measure it in turn with the own setting until the ratio is known well enough."""
        chance = random.Random(f"{self.seed} {setting}")
        pairs: list[tuple[float, float]] = []
        apart = self._apart(setting)
        took = 0.0
        while self.trials.left > 0:
            enough = self.trials.left < took or (pairs and compared(pairs).precision <= WORTH)
            if len(pairs) >= _PAIRS and enough:
                break
            start = self.trials.spent
            self._say("confirming", setting, "", speedup=compared(pairs) if pairs else apart)
            try:
                pairs.append(self._pair(setting, chance))
            except (TrialFailed, NeverTried) as error:
                if isinstance(error, TrialFailed):
                    self.trials.heed(error)
                self.notes.append(search_notes.not_confirmed(setting, str(error)))
                break
            took = self.trials.spent - start
        speedup = compared(pairs) if len(pairs) >= _PAIRS else apart
        if len(pairs) < _PAIRS:
            if pairs:  # too few for their own spread to say much
                speedup = self._apart(setting, len(pairs))
            self.notes.append(search_notes.few_pairs(len(pairs)))
        self._say("confirming", setting, "", speedup=speedup)
        self.compared[setting.normal()] = speedup
        return speedup

    def _pair(self, setting: Setting, chance: random.Random) -> tuple[float, float]:
        """The epoch rates of a setting and the own one, measured next to each other."""
        both = [setting, self.own]
        if dataclasses.replace(setting, persistent_workers=self.own.persistent_workers) == self.own:
            both = [setting]  # one loader: only its set-up counts or does not
        chance.shuffle(both)
        for candidate in (setting, self.own):
            if self.trials.setup_share(candidate) > _SETUP_MATTERS:
                self.trials.close(candidate)
        for candidate in both:
            self.trials.opened(candidate, keep=(setting, self.own))
            self.trials.again(candidate, "confirming, in turn with the other")
        return self.trials.last(setting), self.trials.last(self.own)

    def _apart(self, setting: Setting, pairs: int = 0) -> Speedup:
        """The speed-up by the last trial of each, and the spread within these."""
        new, own = self._last(setting), self._last(self.own)
        assert new is not None
        assert own is not None
        low = new.low / own.high if own.high > 0 else 0.0
        high = new.high / own.low if own.low > 0 else math.inf
        return Speedup(new.samples_per_s / own.samples_per_s, low, high, pairs)

    def _guess(self) -> None:
        """Ctrl-C: what looks best, by the trials that there are."""
        if self.speedup is not None:
            return
        candidate = self._best()
        if candidate is None or self._rate(self.own) is None:
            return
        if candidate != self.own:
            self.chosen, self.speedup = candidate, self._apart(candidate)
            if self.speedup.low > 1 and self.speedup.mean >= 1 + WORTH:
                return
        self.chosen, self.speedup = self.own, Speedup(1.0, 1.0, 1.0, 0)

    def _best(self) -> Setting | None:
        """The strategy's choice; before it has one, the fastest that worked."""
        best = self.strategy.best() if self.strategy is not None else None
        if best is None:
            worked = [row.measurement for row in self.trials.rows if not row.measurement.failed]
            best = min(
                worked,
                key=lambda measurement: (-measurement.samples_per_s, measurement.setting),
                default=None,
            )
        return best.setting.normal() if best is not None else None

    def _last(self, setting: Setting) -> Measurement | None:
        wanted = setting.normal()
        trials = [row.measurement for row in self.trials.rows]
        trials = [trial for trial in trials if trial.setting == wanted and not trial.failed]
        return trials[-1] if trials else None

    def _rate(self, setting: Setting) -> float | None:
        """The median rate of its blocks."""
        wanted = setting.normal()
        rates = [
            row.measurement.samples_per_s
            for row in self.trials.rows
            if row.measurement.setting == wanted and not row.measurement.failed
        ]
        return statistics.median(rates) if rates else None

    # What is said.

    def _say(
        self,
        doing: str,
        setting: Setting,
        why: str,
        measurement: Measurement | None = None,
        speedup: Speedup | None = None,
    ) -> None:
        if self.on_progress is not None:
            spent = self.trials.spent
            self.on_progress(
                SearchProgress(doing, setting, why, measurement, speedup, spent, self.budget_s)
            )

    def _slowed_step(self) -> str:
        """Of the chosen setting; where that has no workers, of the quickest that has some."""
        worked = [row.measurement for row in self.trials.rows if not row.measurement.failed]
        worked = [trial for trial in worked if trial.setting.num_workers]
        setting = self.chosen
        if not setting.num_workers:
            if not worked:
                return ""
            setting = max(worked, key=lambda trial: trial.samples_per_s).setting
        beside_s, cores = self.trials.step_beside(setting), self.trials.safety.start.cores
        return search_notes.slowed_step(self.watched, setting, beside_s, cores)

    def _result(self, objective: str, interrupted: bool) -> Result:
        trials, watched, own = self.trials, self.watched, self.own
        if interrupted:
            self.notes.insert(0, search_notes.INTERRUPTED)
        apart = search_notes.against_watched(watched, trials.steady(own)) if trials.train else ""
        ruled_out = trials.all_ruled_out(self.space.settings() if self.space else ())
        notes = [
            apart,
            self._slowed_step(),
            search_notes.page_cache(trials.reads),
            self._first_epoch(),
            search_notes.grown(watched),
            search_notes.counted(self.epochs, self.chosen, watched.batch_size),
            search_notes.augmentations(self.chosen, own, watched.iterable),
            *self.notes,
            *(f"not checked before trials: {text}" for text in trials.safety.unknown),
            *watched.notes,
        ]
        benefit = (
            self.speedup is not None
            and self.chosen != own
            and self.speedup.low > 1
            and self.speedup.mean >= 1 + WORTH
        )
        untried, failure = ("", "") if interrupted else self._without_trials(ruled_out)
        return Result(
            untried=untried,
            failure=failure,
            best=self.chosen,
            own=own,
            speedup=self.speedup,
            predicted=self._predicted(),
            benefit=benefit,
            measured=tuple(trials.rows),
            ruled_out=ruled_out,
            seconds=trials.spent,
            budget_s=self.budget_s,
            settings_tried=trials.tried,
            interrupted=interrupted,
            notes=tuple(text for text in notes if text),
            watched=watched,
            objective=objective,
            strategy=self.strategy.name if self.strategy is not None else "",
            reason=self.strategy.reason() if self.strategy is not None else "",
            cores=trials.safety.start.cores,
            cores_why=trials.safety.start.cores_why,
            pruned=self._pruned(),
            iterable_safe=watched.iterable and self.samples_kept,
            compared=tuple(self.compared.items()),
        )

    def _first_epoch(self) -> str:
        """What is gained in the epoch that starts workers which stay, where that is less."""
        if self.speedup is None or not self.chosen.persistent_workers:
            return ""
        new, own = self.trials.first_epoch(self.chosen), self.trials.first_epoch(self.own)
        return search_notes.first_epoch(self.speedup.mean, new / own)

    def _without_trials(self, ruled_out: Sequence[RuledOut]) -> tuple[str, str]:
        """Why nothing but the own setting could be tried, and why not even that; "" for each."""
        trials = self.trials
        if trials.forbidden:
            return trials.forbidden, ""
        worked = {
            loader_of(setting.measurement.setting)
            for setting in trials.rows
            if not setting.measurement.failed
        }
        if not worked:
            return "", search_notes.failure(trials.rows, trials.left <= 0)
        own = loader_of(self.own)
        others = {loader_of(setting) for setting in self.space.settings()} if self.space else set()
        others -= {own}
        whys = {setting.setting: setting.why for setting in ruled_out}
        known = {setting: why for setting, why in whys.items() if why != search_notes.NOTHING_KNOWN}
        reasons = {**whys, **known, **trials.failed}
        tried = {setting for setting in trials.failed if setting != own}
        if worked - {own} or not others or not (tried or others <= reasons.keys()):
            return "", ""
        telling = tried or others & known.keys() or others
        # The smallest that has a worker: what hinders it hinders all that are larger.
        return reasons[min(telling, key=lambda setting: (setting.num_workers == 0, setting))], ""

    def _pruned(self) -> tuple[tuple[str, str], ...]:
        """What the strategy ruled out by itself, where it tells."""
        tell = getattr(self.strategy, "ruled_out", None)
        return () if tell is None else tuple((str(what), str(why)) for what, why in tell())

    def _predicted(self) -> float | None:
        """The speed-up that the strategy's model gives, where it has one."""
        predict = getattr(self.strategy, "predicted", None)
        if predict is None:
            return None
        new, own = predict(self.chosen), predict(self.own)
        if new is None or own is None:
            return None
        batches = self.watched.batches
        if not batches:
            return float(new.batches_per_s / own.batches_per_s)
        return float(
            own.epoch_s(batches, 1000 if own.setting.persistent_workers else 1)
            / new.epoch_s(batches, 1000 if new.setting.persistent_workers else 1)
        )
