"""Communicates with lotus while the program is paused: trials, and how it continues."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import contextmanager, suppress
from functools import partial

from ...apply import epoch_handover
from ...common.control import deferred_interrupts, exchange
from ...common.loaders import loader_description
from ..candidates import trial_requests
from ..candidates.loading import file_offsets
from ..candidates.trials.step_emulator import Step
from ..candidates.trials.trials import Trials
from ..feeds import fed_training
from ..observation.idle_workers import wait_until_idle
from ..observation.observer import LoaderObserver, clock
from ..training.timed_training import TimedTraining
from . import trial_server
from .core_share import take_share

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from ...apply.settings_applier import Applier
    from ..observation.loader_choice import LoaderChoice
    from .trial_signals import TrialSignals
    from .tune_config import TuneConfig

    Recording = Callable[[Mapping[str, str]], AbstractContextManager[None]]

_LEAST_ALONE = 2  # steps while workers are idle
_UNCLAIMED_S = 60.0  # how long other ranks wait for the rank that runs the trials


class TrialSession:
    """Serves lotus whenever the program is paused; the pipes stay open while it trains.

    `recording` takes environment variables and returns a context that is recorded; without it,
    nothing is recorded.
    """

    def __init__(
        self,
        config: TuneConfig,
        applier: Applier,
        loaders: LoaderChoice,
        signals: TrialSignals,
        recording: Recording | None,
    ) -> None:
        self._config, self._applier, self._loaders = config, applier, loaders
        self._signals, self._recording = signals, recording
        self._link: exchange.Link | None = None  # while the program trains for a validation

    def run(
        self, iterator: Any, observer: LoaderObserver | TimedTraining, exhausted: bool
    ) -> dict[str, Any]:
        """Serve lotus; return its message on how the program continues."""
        link, self._link = self._link, None
        try:
            if link is None:
                link = exchange.Link(self._config.exchange)
        except exchange.LotusGoneError:
            return self._config.without_lotus()
        try:
            if isinstance(observer, TimedTraining):
                link.tell({"did": trial_requests.value_of(observer.reply())})
                message = self._receive(link, link.ask)
            else:
                message = self._first(link, iterator, observer, exhausted)
            while trial_requests.trains_on(message):
                why = self._why_not_train(message, observer, iterator, exhausted)
                if not why:
                    self._link = link
                    break
                link.tell({"failed": why})
                message = self._receive(link, link.ask)
            return message
        except exchange.LotusGoneError:
            shutil.rmtree(self._config.exchange, ignore_errors=True)  # lotus was killed
            return self._config.without_lotus()
        finally:
            if link is not self._link:
                link.close()

    def lotus_is_there(self) -> bool:
        """Return whether lotus still waits for the program, which trains on meanwhile."""
        return self._link is not None and self._link.is_read()

    def _first(
        self, link: exchange.Link, iterator: Any, observer: LoaderObserver, exhausted: bool
    ) -> dict[str, Any]:
        """Run the trials, or wait for the rank that does."""
        answer = link.answer()
        if answer is not None:
            return answer
        if not self._config.local_rank() and link.claim():
            return self._make_trials(link, iterator, observer, exhausted)
        answer = link.wait(_UNCLAIMED_S, clock)
        if answer is None:
            link.tell({"event": "fault", "error": "no process of rank 0 was there to tune"})
            return self._config.without_lotus()
        return answer

    def _why_not_train(
        self,
        message: dict[str, Any],
        observer: LoaderObserver | TimedTraining,
        iterator: Any,
        exhausted: bool,
    ) -> str:
        if self._config.ranks() > 1:
            return "the job has several ranks"
        if exhausted:
            return "the epoch was over"
        if message["do"] == "feed":
            return fed_training.why_not(observer, iterator, message["kind"])
        entry = trial_requests.entry_of(message)
        if epoch_handover.only_threads_change(observer.loader, iterator, entry):
            return ""
        return epoch_handover.why_not(observer.loader, iterator, entry)

    def _receive(
        self, link: exchange.Link, receive: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the message from `receive`; after an interrupt, the one that answers it."""
        try:
            return receive()
        except BaseException as error:
            deferred_interrupts.forget()
            if error is not self._signals.raised:
                raise
            link.tell({"interrupted": True})
            message = link.ask()
            while not trial_requests.ends_trials(message):  # sent before lotus knew
                message = link.ask()
            return message

    def _make_trials(
        self, link: exchange.Link, iterator: Any, observer: LoaderObserver, exhausted: bool
    ) -> dict[str, Any]:
        notes = [] if exhausted else wait_until_idle(iterator)
        bound = take_share(self._config.environ)
        trials = None
        try:
            trials = Trials(observer.loader, folder=self._config.exchange)
            ends = exhausted or self._config.apply
            endless = not ends and not epoch_handover.why_not_fed(observer.loader, iterator)
            watched = self.describe(trials, observer, notes) | {"endless": endless}
            link.tell({"watched": watched})
            with self._recorded():
                serve = partial(trial_server.serve, link, trials, lambda: self._signals.raised)
                return self._receive(link, serve)
        except exchange.LotusGoneError:
            raise
        except BaseException as error:
            deferred_interrupts.forget()
            # A fault of ours.
            link.tell({"event": "fault", "error": f"{type(error).__name__}: {error}"[:1000]})
            return self._config.without_lotus()
        finally:
            try:
                if trials is not None:
                    trials.end()
            finally:
                for task, cpus in bound:
                    with suppress(OSError):
                        os.sched_setaffinity(task, cpus)

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Record the trials, and nothing that the program does by itself."""
        if not self._config.record or self._recording is None:
            yield
            return
        with self._recording(self._config.record):
            yield

    def describe(
        self, trials: Trials, observer: LoaderObserver, notes: list[str]
    ) -> dict[str, Any]:
        """lotus.tune.program.program.Watched as a dict. Gives the trials their step."""
        loader, count = observer.loader, len(observer.steps)
        fields = dict(trials.describe())
        steady = slice(1 if count > 2 else 0, count)
        steps, cpu = observer.steps[steady], observer.cpu[steady]
        alone = observer.quiet
        if alone is not None and len(alone.steps) >= _LEAST_ALONE:
            fields["alone_s"], fields["alone_cpu_s"] = steps, cpu = alone.steps, alone.cpu
        if steps:
            threads = min(fields["threads"], len(os.sched_getaffinity(0)))  # that run at once
            trials.step = Step(_median(steps), _median(cpu), threads)
        if threading.current_thread() is not threading.main_thread():
            notes.append("the loader is iterated in a thread, so a step may be a part of one only")
        known = self._applier.loaders.find(loader)
        maker = None
        if known is not None and not known.by_user:
            forerunner = self._applier.loaders.forerunner(loader, None)
            maker = forerunner.reference() if forerunner is not None else None
        fields["loader"] |= {
            "number": self._loaders.number(loader),
            "call_site": self._loaders.site(loader) or None,
            "sampler": loader_description.sampler(maker or loader),
        }
        fields |= {
            "waits_s": observer.waits[:count],
            "steps_s": observer.steps,
            "step_cpu_s": observer.cpu,
            "helpers_s": observer.helpers_s,
            "sizes": observer.sizes[:count],
            "startup_s": observer.startup_s,
            "later_startup_s": observer.later_startup_s,
            "loop_s": observer.loop_s,
            "pid": os.getpid(),
            "name": known.name if known is not None and known.name else None,
            "notes": [*fields.get("notes", ()), *notes],
        }
        if observer.fetching is not None:
            fields["grown_bytes"] = max(observer.fetching.grown_bytes, 0)
            # The files of a stream may belong to its iterator, of which each worker has its own.
            shared = [] if fields["iterable"] else observer.fetching.shared()
            if shared:
                fields["forbidden"] = trials.forbid(file_offsets.words(shared))
        return fields


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[-middle - 1]) / 2
