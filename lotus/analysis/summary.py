"""Everything that a report shows of a run, computed once; reporters only format it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.batches import batch_times, sample_counts
from lotus.analysis.batches.epoch_coverage import Passes, passes_of
from lotus.analysis.common.columns import float_column, int_column, ratio, total
from lotus.analysis.common.remade_loaders import merged
from lotus.analysis.common.run_contents import Partials, one_process
from lotus.analysis.common.scope import RunLike, Scope, iterated, scopes, table
from lotus.analysis.machine.device_share import DeviceShare, device_share
from lotus.analysis.machine.machine_state import MachineState, machine_state
from lotus.analysis.machine.undelayed_steps import undelayed_step
from lotus.analysis.machine.unmeasured_run_delay import without_core
from lotus.analysis.observations.blocked_time import blocked_time
from lotus.analysis.observations.loop_standstill import LoopStandstill, standstill
from lotus.analysis.observations.own_code import HotFunction, hot_lines
from lotus.analysis.observations.step_stacks import IN_PAUSE, stacks_in_pauses
from lotus.analysis.ranks.awaited_rank import HeldUp, held_up
from lotus.analysis.ranks.rank_run import RankRun
from lotus.analysis.ranks.rank_verdict import RankSummary, rank_summary
from lotus.analysis.samples.operation_statistics import (
    fetch_sums,
    making_time,
    operation_table,
    worker_time_table,
)
from lotus.analysis.samples.slow_batches import slow_batches
from lotus.analysis.samples.slow_samples import slowest_samples
from lotus.analysis.verdict.account import Account, account
from lotus.analysis.verdict.advice.advice import PROGRAM
from lotus.analysis.verdict.advice.circumstances import circumstances_of
from lotus.analysis.verdict.causes.cause_row import STEP
from lotus.analysis.verdict.causes.step.uneven_steps import LONG_STEPS
from lotus.analysis.verdict.killed_worker_remarks import killed_worker_remarks
from lotus.analysis.verdict.rank_cause import with_awaited_rank, with_straggler
from lotus.analysis.verdict.run_time import RunTime, run_time
from lotus.analysis.verdict.standstill_verdict import with_standstill
from lotus.analysis.verdict.time_outside import with_outside
from lotus.analysis.verdict.verdict import STANDSTILL, Verdict, judge
from lotus.analysis.verdict.worker_balance import idle_share, rank_table, worker_table
from lotus.common.terminal.progress import Advance
from lotus.common.text import redaction
from lotus.common.text.formatting import command
from lotus.format.process_reports import FAULT

# A data set that makes loaders of its own may make thousands.
MOST_LOADERS = 32
_LONG_NS = 1e9
_HOLDS_UP = 0.1  # of all loops: where less is waited for another loader, it does not come first
_LITTLE = 0.25  # of the long steps of another loader
_CLEARLY = 1.5  # times as much waiting puts a loader before the one with the most samples
THRESHOLD_NS = 100e6  # a batch that is waited for so long is noticed


@dataclass(frozen=True)
class LoaderSummary:
    """One loader, all ranks and epochs. Times are ns; tables are documented where they are made.

    Where all ranks wait for the data of one, the verdict and the limits of `times` are that rank's.
    """

    scope: Scope
    verdict: Verdict
    held_up: HeldUp | None
    times: dict[str, float]
    phases: dict[str, float]  # waits by phase, nanoseconds; they add up to wait_ns
    operations: pd.DataFrame
    other_time: pd.DataFrame
    blocked: pd.DataFrame
    books: pd.DataFrame
    slowest: pd.DataFrame
    slow_batches: pd.DataFrame
    batches: pd.DataFrame
    order: dict[str, float]
    account: Account
    ranks: pd.DataFrame
    epochs: pd.DataFrame
    passes: Passes
    coverage: dict[str, float]
    core_shared: float  # as `batch_making.core_shared` returns it
    empty_workers: int  # as `data_shares` returns it
    counted: str  # what its samples are, as `sample_counts` returns it
    by_first_dimension: bool
    machine: MachineState
    device: DeviceShare | None = None  # None: none was timed

    @cached_property
    def workers(self) -> pd.DataFrame:
        """The table of `worker_table`; the end of `lotus trace` does not show it."""
        return worker_table(self.scope, self.account)

    @cached_property
    def longest_epoch_s(self) -> float | None:
        """Seconds of the longest epoch; None if none came to its end, as each may be longer."""
        whole = self.epochs[self.epochs["exhausted"].astype(bool)]
        return float(whole["loop_ns"].max()) / 1e9 if len(whole) else None


@dataclass(frozen=True)
class Summary:
    """A run. The loader that it loses most time to comes first, else that with the most samples."""

    path: str
    manifest: Mapping[str, Any]
    threshold_ns: float
    loaders: list[LoaderSummary]
    loaders_left_out: int  # iterated, but beyond MOST_LOADERS
    open_waits: pd.DataFrame  # Run.open_waits of a second or more
    lost: pd.DataFrame
    unseen: list[Mapping[str, Any]]
    notes: list[str]
    ranks: RankSummary | None = None  # None: one process alone
    time: RunTime | None = None  # of all of the run; None: not known
    hot_in_pauses: Sequence[HotFunction] = ()  # the program's lines between loops, as hot_lines
    no_stacks: str = ""  # as `Run.no_stacks`
    still: LoopStandstill | None = None  # of the first loader, until the program was ended

    @cached_property
    def verdict(self) -> Verdict | None:
        """The verdict on the first loader, unless more time is spent outside of all loops."""
        if not self.loaders:
            return None
        judged = self._with_program(self.loaders[0].verdict)
        stands = with_standstill(judged, self.still, self.loaders[0].times["loop_ns"])
        if stands.kind == STANDSTILL:
            return stands
        judged = with_straggler(stands, self.ranks)
        program, lines = f"-- {self.program}", self.hot_in_pauses
        waits = len(self.open_waits) > 0
        return with_outside(judged, self.time, program, lines, self.no_stacks, waits)

    def _with_program(self, judged: Verdict) -> Verdict:
        """Return the verdict with the program in the commands of its advice."""
        unnamed, named = f"-- {PROGRAM}", f"-- {self.program}"
        causes = [
            replace(cause, advice=cause.advice.replace(unnamed, named)) for cause in judged.causes
        ]
        return replace(judged, causes=causes)

    @cached_property
    def program(self) -> str:
        """The command that was traced; PROGRAM if all of it or parts are hidden."""
        words = [str(word) for word in self.manifest.get("command") or []]
        complete = bool(words) and not any(redaction.HIDDEN in word for word in words)
        return command(words) if complete else PROGRAM


def summarise(
    run: RunLike,
    threshold_ns: float = THRESHOLD_NS,
    slowest: int = 10,
    loader: int | None = None,
    advance: Advance = lambda done, whole: None,
    partials: Partials = one_process,
) -> Summary:
    """Compute all that is shown. `threshold_ns`: batches above it are counted.

    `slowest`: how many samples, and how many slow batches, to list. `loader`: one to have among the
    first MOST_LOADERS. `advance` is told how many of how many pieces of the run are read, and
    `partials` reads them.
    """
    run = merged(run)
    loaders = _by_waiting(run, iterated(run))
    if loader in loaders[MOST_LOADERS:]:
        loaders.insert(0, loader)
    chosen = list(dict.fromkeys(loaders))[:MOST_LOADERS]
    summaries = _by_loss(
        [
            _loader(run, scope, threshold_ns, slowest)
            for scope in scopes(run, chosen, advance, partials)
        ]
    )
    summaries = [_with_fault(loader, table(run, "lost")) for loader in summaries]
    summaries = [_with_killed_workers(loader, run) for loader in summaries]
    stills = [standstill(run, loader.scope) for loader in summaries]
    first = next((place for place, still in enumerate(stills) if still is not None), 0)
    summaries = [*summaries[first : first + 1], *summaries[:first], *summaries[first + 1 :]]
    last = summaries[0].held_up if summaries else None
    return Summary(
        path=str(getattr(run, "path", "")),
        manifest=run.manifest,
        threshold_ns=threshold_ns,
        loaders=summaries,
        loaders_left_out=len(set(loaders)) - len(chosen),
        open_waits=_open_waits(run),
        lost=table(run, "lost"),
        unseen=list(getattr(run, "unseen", None) or []),
        notes=_notes(run),
        ranks=rank_summary(run),
        time=run_time(run if last is None else RankRun(run, last.rank)),
        hot_in_pauses=hot_lines(stacks_in_pauses(run), IN_PAUSE),
        no_stacks=str(getattr(run, "no_stacks", "")),
        still=stills[first] if stills else None,
    )


def _with_fault(loader: LoaderSummary, lost: pd.DataFrame) -> LoaderSummary:
    """Return the summary with a sentence on a fault that ended its recording, as a full disk."""
    if not len(lost):
        return loader
    mine = np.isin(int_column(lost, "pid"), int_column(loader.scope.epochs, "pid"))
    faults = [str(what) for what in lost["what"][mine] if str(what).startswith(FAULT)]
    if not faults:
        return loader
    only_a_part = (
        f"lotus stopped recording before the loop ended ({faults[0].removeprefix(FAULT)}): all "
        "that is said here is of the part before."
    )
    judged = replace(loader.verdict, flaws=(only_a_part, *loader.verdict.flaws))
    return replace(loader, verdict=judged)


def _with_killed_workers(loader: LoaderSummary, run: RunLike) -> LoaderSummary:
    """Return the summary with a remark on workers that a signal ended, as for lack of memory."""
    remarks = killed_worker_remarks(run, loader.scope)
    if not remarks:
        return loader
    flaws = (*remarks, *loader.verdict.flaws)
    return replace(loader, verdict=replace(loader.verdict, flaws=flaws))


def _by_waiting(run: RunLike, loaders: list[int]) -> list[int]:
    """Put first the loader that the run waited for most, if the wait is a relevant part of the run.

    A validation of a few samples may hold up a run more than the training does.
    """
    waits, epochs = table(run, "waits"), table(run, "epochs")
    if len(loaders) < 2 or not len(waits):
        return loaders
    # One that is iterated in other processes, as in workers, is part of what another one waits for.
    first = int_column(waits, "loader") == loaders[0]
    beside = np.isin(int_column(waits, "pid"), int_column(waits, "pid")[first])
    waits = waits[beside]
    mine = pd.Series(float_column(waits, "wait_ns")).groupby(int_column(waits, "loader")).sum()
    begun = pd.Series(float_column(epochs, "iter_ns")).groupby(int_column(epochs, "loader")).sum()
    waited = mine.add(begun, fill_value=0.0).reindex(loaders, fill_value=0.0)
    steps = float(np.nansum(float_column(waits, "step_ns")))
    most = loaders[int(waited.to_numpy().argmax())]
    if not waited[most] > _HOLDS_UP * (float(waited.sum()) + steps):
        return loaders
    if waited[most] < _CLEARLY * waited[loaders[0]]:
        return loaders  # as good as equal: the one with the most samples is what a user expects
    return [most, *(loader for loader in loaders if loader != most)]


def _by_loss(loaders: list[LoaderSummary]) -> list[LoaderSummary]:
    """Put first the loader whose steps lose clearly more than the first one's loop does.

    Where a validation within the step waits most, the outer step may lose more; or the validation
    itself takes far longer than it waits.
    """
    if len(loaders) < 2:
        return loaders
    pids = int_column(loaders[0].scope.epochs, "pid")
    beside = [np.isin(int_column(loader.scope.epochs, "pid"), pids).any() for loader in loaders]
    losses = [_lost_ns(each) if its else 0.0 for each, its in zip(loaders, beside, strict=True)]
    most = losses.index(max(losses))
    if losses[most] < _CLEARLY * losses[0] or not _is_slowed(loaders[most].verdict):
        long = [
            _in_long_steps_ns(each.verdict) if its else 0.0
            for each, its in zip(loaders, beside, strict=True)
        ]
        most = long.index(max(long))
        if losses[0] >= _LITTLE * long[most]:
            return loaders
    return [loaders[most], *loaders[:most], *loaders[most + 1 :]]


def _in_long_steps_ns(judged: Verdict) -> float:
    """Return the time of long steps, as with a validation, where they come first; else 0.0."""
    first = judged.causes[0] if judged.causes else None
    return first.ns if first is not None and first.kind == LONG_STEPS.kind else 0.0


def _lost_ns(loader: LoaderSummary) -> float:
    waited = loader.times["iter_ns"] + loader.times["wait_ns"]
    judged = loader.verdict
    return waited + (judged.lost_in_steps_ns if _is_slowed(judged) else 0.0)


def _is_slowed(judged: Verdict) -> bool:
    """Return True if what slows the steps comes first."""
    return bool(judged.causes) and judged.causes[0].part == STEP and judged.lost_in_steps_ns > 0


def _notes(run: RunLike) -> list[str]:
    """Return the remarks of the run, and what was not measured that a verdict needs."""
    unmeasured = without_core({name: table(run, name) for name in ("batches", "waits")})
    notes = [str(note) for note in getattr(run, "notes", None) or []]
    return [*notes, *([unmeasured] if unmeasured else [])]


def _open_waits(run: RunLike) -> pd.DataFrame:
    waits = table(run, "open_waits")
    return waits[float_column(waits, "wait_ns") >= _LONG_NS].reset_index(drop=True)


def _loader(run: RunLike, scope: Scope, threshold_ns: float, slowest: int) -> LoaderSummary:
    loop_account = account(scope)
    ranks = rank_table(scope, loop_account)
    last = held_up(scope, ranks)
    judged_scope = scope if last is None else _of_rank(run, scope, last.rank)
    judged_account = loop_account if last is None else account(judged_scope)
    judged_ranks = ranks if last is None else rank_table(judged_scope, judged_account)
    circumstances = circumstances_of(judged_scope, judged_account.use, judged_account.shares)
    verdict = judge(judged_account, circumstances)
    if last is not None:
        verdict = replace(verdict, flaws=(last.sentence(), *verdict.flaws))
        verdict = with_awaited_rank(verdict, last)
    return LoaderSummary(
        scope=scope,
        verdict=verdict,
        held_up=last,
        times=_times(scope, loop_account, ranks)
        | _limits(judged_scope, judged_account, judged_ranks),
        phases=loop_account.phases,
        operations=operation_table(scope),
        other_time=worker_time_table(scope),
        blocked=blocked_time(run, scope),
        books=fetch_sums(scope),
        slowest=slowest_samples(scope, slowest),
        slow_batches=slow_batches(scope, slowest),
        batches=batch_times.batch_table(scope, threshold_ns),
        order=batch_times.order(scope),
        account=loop_account,
        ranks=ranks,
        epochs=_epochs(loop_account),
        passes=passes_of(scope),
        coverage=batch_times.coverage(scope),
        core_shared=circumstances.shared,
        empty_workers=circumstances.shares.empty,
        counted=sample_counts.counted(scope),
        by_first_dimension=sample_counts.by_first_dimension(scope),
        machine=machine_state(judged_scope, judged_account.use),
        device=device_share(scope),
    )


def _of_rank(run: RunLike, scope: Scope, rank: int) -> Scope:
    """Return a rank's part of a scope, with the cores that a rank has of those of the job."""
    whole = scope.calls.contents  # its pieces are read again
    (part,) = scopes(RankRun(run, rank), [scope.loader], whole.advance, whole.partials)
    return replace(part, ranks=scope.ranks, cores=scope.cores)


def _times(scope: Scope, loop_account: Account, ranks: pd.DataFrame) -> dict[str, float]:
    """Return the loop in numbers: sums over epochs and ranks; samples_per_s is of all ranks."""
    epochs = loop_account.epochs
    longest = float(ranks["loop_ns"].max()) if len(ranks) else 0.0
    samples = float(ranks["samples"].sum())
    startup = float_column(epochs, "startup_ns")
    return {
        "loop_ns": loop_account.loop_ns,
        "iter_ns": loop_account.iter_ns,
        "wait_ns": loop_account.wait_ns,
        "step_ns": loop_account.step_ns,
        "tail_ns": loop_account.tail_ns,
        "startup_mean_ns": float(np.nanmean(startup)) if (~np.isnan(startup)).any() else np.nan,
        "startup_first_ns": float(startup[0]) if len(startup) else np.nan,
        "state_dict_ns": total(float_column(scope.epochs, "state_dict_ns")),
        "shutdown_mean_ns": total(float_column(epochs, "shutdown_ns")) / max(len(epochs), 1),
        "epochs": int(epochs["epoch"].nunique()),
        "batches": int(epochs["waits"].sum()),
        "samples": int(samples),
        "samples_per_s": samples / longest * 1e9 if longest > 0 else np.nan,
        "workers_idle_share": idle_share(scope),
    }


def _limits(scope: Scope, loop_account: Account, ranks: pd.DataFrame) -> dict[str, float]:
    """Return the rate of all ranks with data always ready, and the rate of making batches alone.

    Both are as measured beside each other, without waits; of steps that compute in several threads
    and lack cores, by those that lacked none, if there are any. `scope`: of all ranks, or of the
    one for which the others wait.
    """
    several = max(len(scope.ranks), 1)
    samples = float(ranks["samples"].sum())
    made = float_column(scope.batches, "size")[float_column(scope.batches, "fetch_ns") > 0]
    fetching = making_time(scope) / max(scope.num_workers, 1)
    steps = loop_account.step_ns - loop_account.own_ns
    crowded = bool(scope.num_workers) and loop_account.use.step.crowded
    if crowded and (free := undelayed_step(scope.waits)) is not None:
        steps = min(steps, free.all_took_ns)
    return {
        "step_limit_samples_per_s": ratio(samples * 1e9 * several, steps),
        "input_limit_samples_per_s": ratio(total(made) * 1e9 * several, fetching),
    }


def _epochs(loop_account: Account) -> pd.DataFrame:
    """Return one row per rank and epoch: the sums of `loop_times`, start-up and shut-down."""
    names = ["rank", "epoch", "waits", "loop_ns", "iter_ns", "startup_ns", "wait_ns", "step_ns"]
    names += ["tail_ns", "shutdown_ns", "exhausted"]
    return loop_account.epochs[names].sort_values(["rank", "epoch"]).reset_index(drop=True)
