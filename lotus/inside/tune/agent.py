"""The agent of `lotus tune` in the user's program: observes the loader and pauses for trials.

Active only if LOTUS_TUNE is set: see session/tune_config.py. lotus itself decides which settings to
try and how the program continues; candidates/trials.py makes the loaders and measures them.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from functools import partial

from ..apply import epoch_handover, settings_applier
from ..common import guard, patching
from ..common.control import exchange
from ..common.guard import edge
from ..common.process_identity import is_worker
from . import iterator_hooks
from .feeds import endless_indices, switched_fetches, unsent_batches
from .feeds.fed_training import FedTraining
from .feeds.switched_alternatives import SwitchedAlternatives
from .feeds.switched_cache import SwitchedCache
from .observation.loader_choice import LoaderChoice
from .observation.observer import KEY, LoaderObserver, clock
from .session.program_end import end
from .session.trial_signals import TrialSignals
from .session.tune_config import TuneConfig
from .training.live_validation import LiveValidation
from .training.thread_validation import ThreadValidation
from .training.timed_training import TimedTraining

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ..apply.settings_applier import Applier
    from .session.trial_session import Recording, TrialSession

_DATALOADER = "torch.utils.data.dataloader"
_BATCHES, _SECONDS, _LEAST = (
    12,
    10.0,
    4,
)  # limits of the observation: batches, seconds, least batches
_LEAST_AT_END = 2  # batches, if the loader is exhausted

active: Agent | None = None


class Agent:
    """`lotus tune` in this process."""

    def __init__(self, environ: Mapping[str, str], recording: Recording | None = None) -> None:
        """See TrialSession for `recording`."""
        self.config = TuneConfig(environ)
        self.on = True
        self.pid = os.getpid()
        self.observer: LoaderObserver | TimedTraining | None = None
        self.own: dict[str, Any] = {}  # entry with the setting before all trials
        self.undo: list[Callable[[], object]] = []
        self.applier: Applier = settings_applier.install(
            {"LOTUS_SETTINGS": environ.get("LOTUS_SETTINGS") or '{"loaders": []}'}
        )
        self.loaders = LoaderChoice(self.config.loader, self.applier)
        self.signals = TrialSignals()
        self.switched: switched_fetches.SwitchedFetches | None = None
        self._recording = recording
        self._session: TrialSession | None = None
        self._described: set[str] = set()  # descriptions of loaders that were reported
        self._matched = False  # the loader to tune has been iterated

    def install(self) -> None:
        """Hook torch, now or once it is imported."""
        module = sys.modules.get(_DATALOADER)
        if module is not None:
            self._hook(module)
        else:  # the applier's own hooks come first
            self.applier.waiting.setdefault(_DATALOADER, []).append(self._hook)

    def _hook(self, module: Any) -> None:
        agent: Any = self
        edge(agent, self._hook_torch, module)

    def _hook_torch(self, module: Any) -> None:
        loader, base = module.DataLoader, module._BaseDataLoaderIter
        plan: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
            (loader, "_get_iterator", iterator_hooks.get_iterator),
            (base, "_reset", iterator_hooks.reset),
            (base, "__next__", iterator_hooks.next_batch),
        )
        version = sys.modules["torch"].__version__
        missing = [name for owner, name, _ in plan if name not in vars(owner)]
        if missing:
            raise LookupError(f"torch {version} is not as lotus knows it: {missing[0]!r}")
        for owner, name, make in plan:
            around = partial(make, agent=self)
            self.undo.append(patching.listen(owner, name, "trials", around))
        if self.config.feed:
            errors = guard.exception_wrapper
            for owner, name, other in (
                (module._DatasetKind, "create_fetcher", unsent_batches.create_fetcher),
                (module._utils.worker, "ExceptionWrapper", errors),
            ):
                self.undo.append(patching.listen(owner, name, "trials", other))
        path = os.path.join(self.config.exchange, "switch")
        if self.config.choices:
            self.applier.hook_transforms(module)
            self.switched = SwitchedAlternatives(self.applier, self.config.choices, path)
        elif self.config.cache is not None:
            self.applier.hook_samples(module)
            self.switched = SwitchedCache(self.applier, self.config.cache, path)
        switched_fetches.active = self.switched
        self._mention({"event": "torch", "torch": str(version)})

    def _mention(self, event: Mapping[str, object]) -> None:
        exchange.mention(self.config.exchange, event)

    def leave(self, hooks: bool = True) -> None:
        """Stop observing; with `hooks`, also remove the hooks, which an epoch may need."""
        self.on, observer, self.observer = False, self.observer, None
        if observer is not None:
            observer.release_workers()
        while hooks and self.undo:
            self.undo.pop()()

    def fault(self, error: Exception) -> None:
        """End the program after an error in lotus: it must not train for hours instead."""
        self.leave(hooks=False)
        with suppress(Exception):
            what = f"{type(error).__name__}: {error}"
            self._mention({"event": "fault", "error": what[:1000]})
        if not self.config.apply and not is_worker():
            end(1)

    # Events of the program, from iterator_hooks.py.

    def epoch_begins(self, loader: Any, iterator: Any, start: float) -> None:
        """An epoch of a loader began at `start`: observe the loader if it is the one to tune."""
        if is_worker():
            self.on = False
            return
        if self.pid != os.getpid():  # forked, and a program of its own
            if isinstance(self.observer, TimedTraining):
                self.observer.release_workers()
            self.pid, self.observer = os.getpid(), None
            self.loaders.forget()
        observer = self.observer
        if isinstance(observer, TimedTraining):
            observer.epoch_begins(loader, iterator)
            return
        epochs = self.loaders.begin_epoch(loader)
        if observer is not None and observer.loader is loader:
            observer.release_workers(iterator)  # even if another loader is now the chosen one
        # A loader inside the data set of the observed one is not chosen.
        inner = observer is not None and observer.in_next == threading.get_ident()
        chosen = not inner and self.loaders.is_chosen(loader)
        again = epochs == 2
        if epochs == 1:
            words = self.loaders.words(loader)
            again, self._described = words in self._described, {words, *self._described}
            self._mention({"event": "iterated", "loader": words[:300], "chosen": chosen})
        if not chosen:
            # A second epoch without the loader to tune: report that before the end.
            if self.config.loader is not None and not self._matched and again:
                self._mention({"event": "unmatched"})
            return
        self._matched = True
        if observer is None or observer.loader is not loader:
            if observer is not None:
                observer.release_workers()
            self.observer = observer = LoaderObserver(loader)
        observer.begin(start)
        iterator.__dict__[KEY] = observer

    def next_called(self, iterator: Any, observer: LoaderObserver | TimedTraining) -> None:
        """Handle a call of `next`: take over once enough was observed."""
        if observer is not self.observer:
            return
        observer.next_called()
        if isinstance(observer, TimedTraining):
            if observer.enough():
                self.take_over(observer.iterator(), observer, observer.over)
            return
        steps, several = len(observer.steps), self.config.ranks() > 1
        if self.config.batches is not None or several:  # ranks have to pause at the same step
            enough = steps >= (self.config.batches or _BATCHES)
        else:
            late = clock() - observer.first >= _SECONDS
            enough = steps >= _BATCHES or (steps >= _LEAST and late)
        if enough and self.on:
            if several or not observer.quieter(iterator):
                self.take_over(iterator, observer, False)
        elif self.on and steps:
            self._mention({"event": "watched", "batches": steps})

    def fetch_begins(self, observer: LoaderObserver | TimedTraining) -> None:
        """The program's call of `next` begins to do its work."""
        if observer is self.observer and self.on:
            observer.fetch_begins()

    def batch_received(
        self, observer: LoaderObserver | TimedTraining, batch: Any, start: float, now: float
    ) -> None:
        """The program's call of `next` returns a batch."""
        if observer is self.observer:
            observer.batch_received(start, now, batch)

    def exhausted(self, iterator: Any, observer: LoaderObserver | TimedTraining) -> None:
        """The program's call of `next` finds no more batches."""
        if observer is not self.observer or not self.on:
            return
        if isinstance(observer, TimedTraining):
            observer.epoch_ended()
            if observer.enough():
                self.take_over(iterator, observer, True)
        elif observer.ended() >= _LEAST_AT_END and not self.config.feed:
            self.take_over(iterator, observer, True)
        else:
            self._mention({"event": "exhausted", "batches": len(observer.steps)})

    # Trials while the program is paused.

    def take_over(
        self, iterator: Any, observer: LoaderObserver | TimedTraining, exhausted: bool
    ) -> None:
        """Pause the program for trials, then continue as lotus says."""
        self.on = False  # candidates are not loaders of the program
        loader, epochs = observer.loader, self.loaders.epochs(observer.loader)
        if iterator is not None:
            iterator.__dict__.pop(KEY, None)
        if isinstance(observer, LoaderObserver):
            self.own = epoch_handover.as_it_is(loader)
        else:
            observer.release_workers()
        applying, self.applier.on = self.applier.on, False
        self.signals.take()
        try:
            message = self.session().run(iterator, observer, exhausted)
            if message["do"] == "apply" and not _is_for(message, loader):
                message = {"do": "leave"}
        except BaseException as error:
            if error is not self.signals.raised:
                raise
            message = {"do": "leave" if self.config.apply else "end", "code": 130}
        finally:
            self.applier.on = applying
            self.signals.give_back()
        if message["do"] == "end":
            end(message.get("code", 0))
        if message["do"] == "feed":
            self._feed(message, iterator, observer)
            return
        self._go_on(message, iterator, loader, epochs)
        # An epoch that was changed needs our hooks, even if the program has begun another one.
        changed = isinstance(observer, LiveValidation) or (
            iterator is not None and epoch_handover.KEY in iterator.__dict__
        )
        if self.observer is None and not changed:
            self.leave()
        self.signals.raise_again()

    def session(self) -> TrialSession:
        """Return the session with lotus; its modules are imported when the program is paused."""
        from .session.trial_session import TrialSession

        if self._session is None:
            self._session = TrialSession(
                self.config, self.applier, self.loaders, self.signals, self._recording
            )
        return self._session

    def _feed(
        self, message: dict[str, Any], iterator: Any, observer: LoaderObserver | TimedTraining
    ) -> None:
        """Let the program train on with data of one kind."""
        from .candidates import trial_requests

        request: Any = trial_requests.request_from(message)[1]
        self.leave(hooks=False)
        if not isinstance(observer, FedTraining):
            observer = FedTraining(observer.loader, iterator)
        observer.feed(iterator, request)
        self.observer, self.on = observer, True
        self.signals.raise_again()

    def _go_on(self, message: dict[str, Any], iterator: Any, loader: Any, epochs: int) -> None:
        """Give the program's loader the setting with which it continues."""
        from .candidates import trial_requests

        do = message["do"]
        entry = self.own if do == "leave" else trial_requests.entry_of(message)
        self.leave(hooks=False)
        if do == "train" and epoch_handover.only_threads_change(loader, iterator, entry):
            self._train(ThreadValidation, message, loader, iterator, entry)
            return
        if do == "train" and not self.config.apply:
            endless_indices.never_end(loader, iterator, self.session().lotus_is_there)
        if do != "leave" or entry != epoch_handover.as_it_is(loader):
            quiet = do != "apply"
            epoch_handover.change(self.applier, loader, iterator, entry, epochs, quiet=quiet)
        if do == "train":
            self._train(LiveValidation, message, loader, iterator, entry)

    def _train(
        self,
        validation: type[LiveValidation | ThreadValidation],
        message: dict[str, Any],
        loader: Any,
        iterator: Any,
        entry: dict[str, Any],
    ) -> None:
        """Let the program train on, and time it."""
        from .candidates import trial_requests

        request: Any = trial_requests.request_from(message)[1]
        threads = entry["setting"].get("torch_threads")
        self.observer, self.on = validation(loader, iterator, request, threads), True
        if isinstance(self.observer, ThreadValidation) and not self.config.apply:
            self.observer.watch(self._end_unless_trained)

    def _end_unless_trained(self, observer: ThreadValidation) -> None:
        """End the program, in a thread of ours, if it does something else than to train."""
        if observer is self.observer and observer.is_left():
            self.observer = None
            edge(self, self.take_over, None, observer, True)


def _is_for(message: dict[str, Any], loader: Any) -> bool:
    """Return whether a setting is for this loader; other programs it starts have other data."""
    name: str | None = message["loader"].get("dataset")
    return name in (None, type(loader.dataset).__name__)


def install(recording: Recording) -> None:
    """Install the agent as LOTUS_TUNE says; see TrialSession for `recording`."""
    global active
    if active is None:
        active = Agent(dict(os.environ), recording)
        active.install()
