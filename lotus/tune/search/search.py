"""Searches the settings of one loader: runs a strategy, tries safe settings, confirms the best.

The program's own setting is measured first. It is the baseline, it is safe because the program uses
it anyway, and it shows the cost of a worker before more workers are tried.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from lotus.common.errors import LotusError
from lotus.common.torch_defaults import TORCH_PREFETCH
from lotus.inside.tune.candidates.trial_requests import CompareEpochs, EpochComparison
from lotus.settings.space import Measurement, Setting, Space
from lotus.tune import strategies
from lotus.tune.program.program import PausedProgram, TrialError, Watched
from lotus.tune.search.check import torch_threads
from lotus.tune.search.default_space import VARIED, default_space, plain, step_of
from lotus.tune.search.limits.machine_limits import MachineLimits
from lotus.tune.search.limits.safety import Safety, limits_of
from lotus.tune.search.outcome import search_notes
from lotus.tune.search.outcome.decision import Decision, is_faster
from lotus.tune.search.outcome.result import Result
from lotus.tune.search.trials.trial_rates import Speedup
from lotus.tune.search.trials.trial_runner import RuledOut, TrialRunner, loader_of
from lotus.tune.strategies import Strategy
from lotus.tune.strategies.problem import Problem

OBJECTIVES = ("train", "throughput")
Factory = Callable[[Problem], Strategy]
_CONFIRMING = 0.3  # share of the budget reserved for confirming
_CHECKING = 0.4  # largest share of the budget for comparing two epochs of an iterable data set


@dataclass(frozen=True)
class SearchProgress:
    """The next action of a search (`measurement` is None), or its result."""

    doing: str  # "measuring", "checking samples", "confirming"
    setting: Setting
    why: str  # the strategy's reason
    measurement: Measurement | None
    speedup: Speedup | None  # while confirming, the speed-up so far
    spent_s: float
    budget_s: float


@dataclass(frozen=True)
class SearchPlan:
    """The goal, place and time of a search. Raises LotusError.

    `objective` is "train", with the program's step between batches, or "throughput", without.
    `vary` adds parameters of `VARIED` to the default space; it has no effect on `space`. With
    `check_follows` (see step_check.py) the setting is tried too that a step with fewer threads of
    torch would need.
    """

    strategy: str | Factory = "lotus"
    space: Space | None = None
    budget_s: float = 60.0
    objective: str = "train"
    seed: int = 0
    vary: Collection[str] = ()
    check_follows: bool = False

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise LotusError(f"objective {self.objective!r} is not one of {', '.join(OBJECTIVES)}")
        unknown = [name for name in self.vary if name not in VARIED]
        if unknown:
            raise LotusError(
                f"{', '.join(unknown)} cannot be varied; choose from {', '.join(VARIED)}"
            )
        if not 0 < self.budget_s < math.inf:
            raise LotusError(f"a budget of {self.budget_s:g} s is not valid; give seconds above 0")
        if isinstance(self.strategy, str) and self.strategy not in strategies.NAMES:
            raise LotusError(
                f"no strategy is called {self.strategy!r}; there are {', '.join(strategies.NAMES)}"
            )

    @property
    def with_check(self) -> bool:
        """True if a check follows: it is made in the program's own steps."""
        return self.check_follows and self.objective == "train"


DEFAULT_PLAN = SearchPlan()


def search(
    program: PausedProgram,
    plan: SearchPlan = DEFAULT_PLAN,
    *,
    on_progress: Callable[[SearchProgress], object] | None = None,
    limits: MachineLimits | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Find the setting that feeds a program fastest, within the plan's time.

    `limits` replaces the machine's limits, which are otherwise read before each trial. Failed
    trials are rows of the result; Ctrl-C ends the search with the result so far. All candidates are
    closed at the end.
    """
    pid = program.watched.pid
    safety = Safety(program.watched, (lambda: limits) if limits else (lambda: limits_of(pid)))
    trials = TrialRunner(program, safety, clock, plan.budget_s, plan.objective == "train")
    return _Search(program.watched, trials, plan, on_progress).run()


class _Search:
    """One search; its state stays usable after Ctrl-C."""

    def __init__(
        self,
        watched: Watched,
        trials: TrialRunner,
        plan: SearchPlan,
        on_progress: Callable[[SearchProgress], object] | None,
    ) -> None:
        self.watched, self.trials, self.plan = watched, trials, plan
        self.budget_s, self.vary = plan.budget_s, frozenset(plan.vary)
        self.on_progress = on_progress
        self.own = plain(watched.setting, self.vary)
        self.decision = Decision(self.own, trials, plan.seed, self._confirming, plan.with_check)
        self.epochs: tuple[tuple[int, int, int], ...] = ()  # as in EpochComparison
        self.samples_kept = False  # an iterable data set keeps its samples
        self.notes: list[str] = []
        self.strategy: Strategy | None = None
        self.space: Space | None = None

    def run(self) -> Result:
        interrupted = False
        try:
            try:
                self._search()
                if self.plan.with_check:
                    self._try_for_fewer_threads()
                if not self.trials.forbidden:
                    self.decision.decide(self._best())
                if self.trials.forbidden:  # earlier results are not valid
                    self.decision.keep_own()
            except KeyboardInterrupt:
                interrupted = True
                self.decision.guess(self._best())
            finally:
                self.trials.close_all()
        except KeyboardInterrupt:
            interrupted = True
            self.trials.close_all()
        return self._result(interrupted)

    # The search.

    def _search(self) -> None:
        if self.trials.forbidden:
            return
        own = self._measure(self.own, "the program's own setting, measured first")
        if self.trials.forbidden:
            return
        known = self.trials.safety.costs_known
        if own.failed and not known and not self.watched.iterable and self.trials.left > 0:
            small = dataclasses.replace(self.own, num_workers=1, prefetch_factor=TORCH_PREFETCH)
            self._measure(small, "the smallest setting with a worker, which shows the cost of one")
        if self.watched.iterable and self.trials.left > 0:
            self._check_iterable()
        if self.trials.forbidden:
            return
        self.space = self.plan.space or default_space(
            self.watched, self.trials.safety.start.cores, own, self.vary
        )
        self._try_one_thread()
        if self.trials.forbidden:
            return
        problem = self._problem(self.space)
        strategy = self.plan.strategy
        if isinstance(strategy, str):
            seed = self.plan.seed
            self.strategy = strategies.make(strategy, self.space, seed=seed, problem=problem)
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

    def _try_one_thread(self) -> None:
        """Try one thread a worker where their threads were seen to compute: they may fight."""
        one = dataclasses.replace(self.own, threads=1)
        if self.space is None or "threads" in self.vary or one not in self.space:
            return
        if one.num_workers and self.trials.left > self.budget_s * _CONFIRMING:
            self._measure(one, "several threads of a worker compute: with one, they cannot fight")

    def _try_for_fewer_threads(self) -> None:
        """Try the setting with workers that would feed a step with fewer threads of torch best."""
        trials = self.trials
        if self.space is None or trials.forbidden or self.watched.iterable:
            return
        if trials.left <= self.budget_s * _CONFIRMING:
            return
        cores, best = trials.safety.start.cores, self._best()
        setting = torch_threads.worth_a_trial(
            self.watched,
            self.own if best is None else dataclasses.replace(self.own, threads=best.threads),
            [row.measurement for row in trials.rows],
            [count for count in self.space.num_workers if 0 < count <= cores],
            cores,
        )
        if setting is not None and not trials.refused(setting):
            measurement = self._measure(setting, search_notes.FOR_FEWER_THREADS)
            if self.strategy is not None:
                self.strategy.tell(measurement)

    def _measure(self, setting: Setting, why: str) -> Measurement:
        self._say("measuring", setting, why)
        safety = self.trials.safety
        if safety.costs_known or safety.first(setting):
            measurement = self.trials.measure(setting, why)
        else:
            self.trials.ruled_out[setting.normal()] = search_notes.NOTHING_KNOWN
            measurement = Measurement.failure(
                setting.normal(), f"never tried: {search_notes.NOTHING_KNOWN}"
            )
        self._say("measuring", setting, why, measurement)
        return measurement

    def _check_iterable(self) -> None:
        """Allow other numbers of workers only if more workers are shown to keep the samples."""
        own = self.own.num_workers
        more = dataclasses.replace(
            self.own,
            num_workers=max(own + 1, 2),
            prefetch_factor=self.own.prefetch_factor or TORCH_PREFETCH,
        )
        self._say("checking samples", more, "an iterable data set may repeat samples in workers")
        why = (
            self.trials.make_room(more)
            if self.trials.safety.costs_known
            else search_notes.NOTHING_KNOWN
        )
        if not why:
            limit_s = min(self.budget_s * _CHECKING, self.trials.left)
            try:
                same = self.trials.program.perform(more, CompareEpochs(limit_s))
                why = same.why
                self._count(same)
            except TrialError as error:
                self.trials.heed(error)
                why = str(error) or "it failed"
        self.samples_kept = not why
        if why:
            self.trials.workers = {own}
            self.trials.workers_why = search_notes.not_same_samples(own, more.num_workers, why)
            self.notes.append(self.trials.workers_why)

    def _count(self, same: EpochComparison) -> None:
        """Use the counted length of an epoch, if the loader does not report one."""
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
            seed=self.plan.seed,
            budget_s=max(self._for_trials(), 1e-3),
        )

    def _for_trials(self) -> float:
        """Return the seconds for all trials, past and future: the budget less confirming."""
        made = sum(row.measurement.seconds for row in self.trials.rows)
        return self.budget_s * (1 - _CONFIRMING) - (self.trials.spent - made)

    def _best(self) -> Setting | None:
        """Return the strategy's choice; the fastest setting that worked before it has one."""
        best = self.strategy.best() if self.strategy is not None else None
        if best is None:
            worked = [row.measurement for row in self.trials.rows if not row.measurement.failed]
            best = min(
                worked,
                key=lambda measurement: (-measurement.samples_per_s, measurement.setting),
                default=None,
            )
        return best.setting.normal() if best is not None else None

    # The report.

    def _confirming(self, setting: Setting, speedup: Speedup) -> None:
        self._say("confirming", setting, "", speedup=speedup)

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
        """Return a note on the chosen setting, or the fastest with workers if that has none."""
        worked = [row.measurement for row in self.trials.rows if not row.measurement.failed]
        worked = [trial for trial in worked if trial.setting.num_workers]
        setting = self.decision.chosen
        if not setting.num_workers:
            if not worked:
                return ""
            setting = max(worked, key=lambda trial: trial.samples_per_s).setting
        beside_s, cores = self.trials.step_beside(setting), self.trials.safety.start.cores
        return search_notes.slowed_step(self.watched, setting, beside_s, cores)

    def _result(self, interrupted: bool) -> Result:
        trials, watched, own = self.trials, self.watched, self.own
        if interrupted:
            self.notes.insert(0, search_notes.INTERRUPTED)
        apart = search_notes.against_watched(watched, trials.steady(own)) if trials.train else ""
        ruled_out = trials.all_ruled_out(self.space.settings() if self.space else ())
        slowed_step = self._slowed_step()
        notes = [
            apart,
            slowed_step,
            search_notes.page_cache(trials.reads),
            self._first_epoch(),
            search_notes.grown(watched),
            search_notes.counted(self.epochs, self.decision.chosen, watched.batch_size),
            search_notes.augmentations(self.decision.chosen, own, watched.iterable),
            *self.notes,
            *self.decision.notes,
            *(f"not checked before trials: {text}" for text in trials.safety.unknown),
            *watched.notes,
        ]
        speedup, chosen = self.decision.speedup, self.decision.chosen
        benefit = speedup is not None and chosen != own and is_faster(speedup)
        untried, failure = ("", "") if interrupted else self._without_trials(ruled_out)
        return Result(
            untried=untried,
            failure=failure,
            out_of_time=not interrupted and self._is_out_of_time(),
            best=chosen,
            own=own,
            speedup=speedup,
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
            objective=self.plan.objective,
            strategy=self.strategy.name if self.strategy is not None else "",
            reason=self.strategy.reason() if self.strategy is not None else "",
            cores=trials.safety.start.cores,
            cores_why=trials.safety.start.cores_why,
            pruned=self._pruned(),
            iterable_safe=watched.iterable and self.samples_kept,
            compared=tuple(self.decision.comparisons.items()),
            left_open=self.decision.left_open,
            slowed_step=slowed_step,
        )

    def _is_out_of_time(self) -> bool:
        """Return True if there was time for the own setting, and not for another."""
        rows = self.trials.rows
        if self.trials.tried != 1 or not rows:
            return False
        return 2 * rows[0].measurement.seconds > self.budget_s * (1 - _CONFIRMING)

    def _first_epoch(self) -> str:
        """Return a note if the first epoch, which starts persistent workers, gains less."""
        if self.decision.speedup is None or not self.decision.chosen.persistent_workers:
            return ""
        new, own = self.trials.first_epoch(self.decision.chosen), self.trials.first_epoch(self.own)
        return search_notes.first_epoch(self.decision.speedup.mean, new / own)

    def _without_trials(self, ruled_out: Sequence[RuledOut]) -> tuple[str, str]:
        """Return (why no other setting could be tried, why not even the own one); "" if tried."""
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
        # The smallest with a worker: its obstacle also affects all larger ones.
        return reasons[min(telling, key=lambda setting: (setting.num_workers == 0, setting))], ""

    def _pruned(self) -> tuple[tuple[str, str], ...]:
        """Return the settings that the strategy ruled out, if it reports them."""
        tell = getattr(self.strategy, "ruled_out", None)
        return () if tell is None else tuple((str(what), str(why)) for what, why in tell())

    def _predicted(self) -> float | None:
        """Return the speed-up predicted by the strategy's model, if it has one."""
        predict = getattr(self.strategy, "predicted", None)
        if predict is None:
            return None
        new, own = predict(self.decision.chosen), predict(self.own)
        return None if new is None or own is None else float(new / own)
