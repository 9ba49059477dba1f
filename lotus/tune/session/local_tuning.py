"""`lotus.tune(loader)`: a search in the user's own process."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, cast

from lotus.common.errors import LotusError
from lotus.inside.tune.candidates.trial_requests import Close, Measure, Open, Opened, Reply, Request
from lotus.recording.inside_package import load_inside
from lotus.settings.space import Setting
from lotus.tune.program.program import TrialError, TrialsForbiddenError
from lotus.tune.program.remote_program import RemoteProgram, watched_from
from lotus.tune.search import trial_recording
from lotus.tune.search.check import checked_result
from lotus.tune.search.default_space import plain
from lotus.tune.search.outcome.result import Result
from lotus.tune.search.search import OBJECTIVES, SearchPlan, search

# Limits on running the own setting with the user's step, to measure the step.
_WATCH_BATCHES, _WATCH_PART, _WATCH_S = 8, 0.02, 1.0
_FIRST_BATCH_S = 60.0
_running = threading.Lock()


def tune(
    loader: Any,
    *,
    step: float | Callable[[Any], object] | None = None,
    budget: float = 60.0,
    strategy: str = "lotus",
    objective: str | None = None,
    vary: Collection[str] = (),
    seed: int = 0,
) -> Result:
    """Search the settings of `loader` for about `budget` seconds.

    See `lotus.tune.Package.__call__`. Raises LotusError if the loader cannot be tuned or an
    argument is not valid.
    """
    objective = _objective(objective, step)
    torch: Any = sys.modules.get("torch.utils.data")
    if torch is None or not isinstance(loader, torch.DataLoader):
        raise LotusError(
            f"a {type(loader).__name__} cannot be tuned: give a torch.utils.data.DataLoader"
        )
    if isinstance(budget, bool) or not isinstance(budget, (int, float)):
        raise LotusError(f"budget={budget!r}: give seconds")
    # A search changes state of the whole process: environment and socket directory.
    if not _running.acquire(blocking=False):
        raise LotusError("another lotus.tune() is running in this process; wait for its end")
    try:
        return _tuned(loader, step, budget, strategy, objective, vary, seed)
    finally:
        _running.release()


def _tuned(
    loader: Any,
    step: float | Callable[[Any], object] | None,
    budget: float,
    strategy: str,
    objective: str,
    vary: Collection[str],
    seed: int,
) -> Result:
    began = time.monotonic()
    program = LocalProgram(loader, step if objective == "train" else None)
    try:
        with _interrupts_kept(), trial_recording.here() as run:
            program.watch(budget, vary)
            left = budget - (time.monotonic() - began)
            plan = SearchPlan(
                strategy=strategy,
                budget_s=max(left, min(budget, 0.1)),
                objective=objective,
                seed=seed,
                vary=vary,
            )
            result = search(program, plan)
            result = trial_recording.with_operations(result, run, program.workers)
    finally:
        program.end()
    if not callable(step) or result.speedup is None:  # else trials called the real step
        result = checked_result.without_check(
            result, "a call of lotus.tune has no training to go on"
        )
    return dataclasses.replace(
        result, make=program.made, notes=(*result.notes, *dict.fromkeys(program.warnings))
    )


@contextlib.contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Raise KeyboardInterrupt only while waiting for trials, but a second one at once.

    Elsewhere it could be lost in torch's code or interrupt it halfway.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    breaks: Any = importlib.import_module("_lotus_inside.common.control.deferred_interrupts")
    insisting = breaks.Insisting()

    def interrupt(number: int, frame: object) -> None:
        if insisting.again():
            raise KeyboardInterrupt
        breaks.stop(KeyboardInterrupt())

    signal.signal(signal.SIGINT, breaks.ours(interrupt))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        breaks.forget()


def _objective(objective: str | None, step: object) -> str:
    if objective is None:
        return "throughput" if step is None else "train"
    if objective not in OBJECTIVES:
        raise LotusError(f"objective {objective!r} is not one of {', '.join(OBJECTIVES)}")
    if objective == "train" and step is None:
        raise LotusError(
            'objective="train" needs a step: step=SECONDS or step=FUNCTION, called with a batch'
        )
    return objective


class LocalProgram(RemoteProgram):
    """A lotus.tune.program.program.PausedProgram in this process, with the user's own loader.

    Budgets and limits are seconds. Raises LotusError if the loader cannot be tuned.
    """

    def __init__(self, loader: Any, step: float | Callable[[Any], object] | None) -> None:
        load_inside()
        self._inside: Any = importlib.import_module("_lotus_inside.tune.candidates.trials.trials")
        self._requests: Any = importlib.import_module(
            "_lotus_inside.tune.candidates.trial_requests"
        )
        self._loader = loader
        self._step = step
        self.warnings: list[str] = []  # remarks on anything unusual
        self._trials = self._inside.Trials(loader, say=self.warnings.append)
        self._ready: dict[Setting, Opened] = {}  # opened before the search began
        try:
            super().__init__(watched_from(self._trials.describe()))
        except BaseException:
            self.end()
            raise

    def watch(self, budget_s: float, vary: Collection[str] = ()) -> None:
        """Measure the duration of the step. The own setting stays open for a search by `vary`."""
        if self._step is None:
            return
        if callable(self._step):
            self._watch_function(self._step, budget_s, vary)
        else:
            self._watch_seconds(self._step)

    def _watch_seconds(self, step: float) -> None:
        if isinstance(step, bool) or not isinstance(step, (int, float)) or not 0 <= step < math.inf:
            raise LotusError(f"step={step!r}: give seconds, or a function of a batch")
        steps = importlib.import_module("_lotus_inside.tune.candidates.trials.step_emulator")
        cpu = 0.0 if self.watched.accelerator else float(step)
        self._trials.step = steps.Step(float(step), cpu, 1)
        self.watched = dataclasses.replace(
            self.watched, steps_s=(float(step),), step_cpu_s=(cpu,), sizes=()
        )

    def _watch_function(
        self, function: Callable[[Any], object], budget_s: float, vary: Collection[str]
    ) -> None:
        spent: list[float] = []

        def step(batch: Any) -> None:
            start = time.process_time()
            function(batch)
            spent.append(time.process_time() - start)

        own = dataclasses.replace(plain(self.watched.setting, vary), persistent_workers=False)
        self._trials.step = step
        try:
            limit_s = max(_FIRST_BATCH_S, budget_s)
            opened = self.perform(own, Open(limit_s))
            seconds = min(budget_s * _WATCH_PART, _WATCH_S)
            request = Measure(seconds, _WATCH_BATCHES, step=True, limit_s=limit_s, discard=0)
            block = self.perform(own, request)
        except TrialsForbiddenError as error:
            self.watched = dataclasses.replace(self.watched, forbidden=str(error))
            return
        except TrialError as error:
            raise LotusError(f"the loader cannot be tuned as it is, because {error}") from None
        finally:
            self._trials.step = function
        self._ready[own] = opened
        self.watched = dataclasses.replace(
            self.watched,
            waits_s=block.waits_s,
            steps_s=block.steps_s,
            step_cpu_s=tuple(spent[-len(block.steps_s) :]),
            sizes=block.sizes,
            startup_s=opened.first_batch_s,
        )

    def perform(self, setting: Setting, request: Request[Reply]) -> Reply:
        if isinstance(request, Open):
            ready = self._ready.pop(setting, None)
            if ready is not None:
                return cast("Reply", ready)
            while self._ready:  # the search opens another setting first
                self.perform(self._ready.popitem()[0], Close())
        return super().perform(setting, request)

    def end(self) -> None:
        """End all candidates and their processes."""
        self._trials.end()

    def _send(self, message: dict[str, Any]) -> Any:
        try:
            return self._requests.serve(self._trials, message)
        except self._inside.ForbiddenError as error:
            raise TrialsForbiddenError(str(error)) from None
        except self._inside.CandidateError as error:
            raise TrialError(str(error)) from None

    def made(self, setting: Setting) -> Any:
        """Return a copy of the user's loader with another setting.

        Raises LotusError if the loader refuses the setting.
        """
        assigning = importlib.import_module("_lotus_inside.apply.loader_attributes")
        entry = {"setting": setting.normal().as_json(), "iterable_safe": True}
        try:
            attributes = assigning.resolve(entry, self._loader, assigning.attributes(self._loader))
        except assigning.SettingRefusedError as error:
            raise LotusError(
                f"{setting} cannot be applied to the loader, because {error}"
            ) from None
        made = copy.copy(self._loader)
        made.__dict__["_iterator"] = None  # it must not share workers with the original
        assigning.assign(made, attributes)
        if setting.threads is not None and setting.num_workers:
            made.worker_init_fn = WithThreads(setting.threads, made.worker_init_fn)
        return made


class WithThreads:
    """A worker_init_fn that fixes the threads of torch, OpenMP and cv2 before the user's own."""

    def __init__(self, threads: int, function: Callable[[int], object] | None) -> None:
        self.threads, self.function = threads, function

    def __call__(self, worker: int) -> None:
        load_inside()
        importlib.import_module("_lotus_inside.common.loaders.worker_threads").fix_threads(
            self.threads
        )
        if self.function is not None:
            self.function(worker)
