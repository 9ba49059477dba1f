"""The agent of `lotus tune` in the user's program: finds the loader, watches it, takes over.

In force only where LOTUS_TUNE is: JSON with `exchange` (see exchange.py), `loader` (which one: its
number by first iteration, a name, or null for the largest), `watch` (batches; null: the usual),
`apply` (whether the program shall go on) and `record` (environment under which the trials are
recorded; empty: they are not). What is tried, and what comes of it, lotus decides outside;
candidate.py builds and measures.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import weakref
from contextlib import contextmanager, suppress
from functools import partial

from . import asking, breaks, described, exchange, going_on, nexts, positions, settings
from .ending import end
from .guard import ask, edge, mark
from .pausing import number_in, take_share, wait_until_idle
from .stretch import Stretch
from .watching import KEY, Watch, clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType
    from typing import Any

    from .settings import Applier

_DATALOADER = "torch.utils.data.dataloader"
_BATCHES, _SECONDS, _LEAST = 12, 10.0, 4  # watched: at most, at most, but at least
_LEAST_ALONE = 2  # steps beside which no worker works
_LEAST_AT_END = 2  # batches, where the loader is exhausted
_UNCLAIMED_S = 60.0  # that other ranks wait for the one that is tuned
_RANKS = ("LOCAL_RANK", "RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_WORLDS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")

active: Agent | None = None


class Agent:
    """`lotus tune` in this process."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        asked = json.loads(environ["LOTUS_TUNE"])
        self.exchange: str = asked["exchange"]
        self.which: int | str | None = asked["loader"]
        self.batches: int | None = asked["watch"]
        self.apply: bool = asked["apply"]
        self.record: dict[str, str] = asked.get("record") or {}  # environment of a recording
        self.raised: BaseException | None = None  # by a signal's handler, during trials
        self.environ = environ
        self.on = True
        self.pid = os.getpid()
        self.iterated: dict[int, tuple[weakref.ref[Any], int]] = {}  # by id: loader, number
        self.epochs: list[int] = []  # of each, by number
        self.lengths: dict[int, tuple[weakref.ref[Any], float]] = {}
        self.watch: Watch | Stretch | None = None
        self.own: dict[str, Any] = {}  # as an entry: the setting before all trials
        self.link: exchange.Link | None = None  # to lotus, while the program trains on for it
        self.said: set[str] = set()  # which loaders were, in words
        self.matched = False  # the loader that was asked for has been iterated
        self.undo: list[Callable[[], object]] = []
        self.applier: Applier = settings.install(
            {"LOTUS_SETTINGS": environ.get("LOTUS_SETTINGS") or '{"loaders": []}'}
        )

    def install(self) -> None:
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
            (loader, "_get_iterator", nexts.get_iterator),
            (base, "_reset", nexts.reset),
            (base, "__next__", nexts.next_batch),
        )
        version = sys.modules["torch"].__version__
        try:
            found = [vars(owner)[name] for owner, name, _ in plan]
        except KeyError as error:
            raise LookupError(f"torch {version} is not as lotus knows it: {error}") from error
        for (owner, name, make), before in zip(plan, found, strict=True):
            after = make(before, self)
            setattr(owner, name, after)
            self.undo.append(partial(nexts.put_back, owner, name, after, before))
        exchange.mention(self.exchange, {"event": "torch", "torch": str(version)})

    def leave(self, hooks: bool = True) -> None:
        """Do nothing more; `hooks`: nor what keeps an epoch going."""
        self.on, watch, self.watch = False, self.watch, None
        if watch is not None:
            watch.workers_go_on()
        while hooks and self.undo:
            self.undo.pop()()

    def fault(self, error: Exception) -> None:
        """Of ours: the program is not to train for hours where it was to be tuned."""
        self.leave(hooks=False)
        with suppress(Exception):
            what = f"{type(error).__name__}: {error}"
            exchange.mention(self.exchange, {"event": "fault", "error": what[:1000]})
        if not self.apply and not settings._is_worker():
            end(1)

    # Which loader.

    def started(self, loader: Any, iterator: Any, start: float) -> None:
        """An epoch of a loader began at `start`: watch it if it is the one to tune."""
        if settings._is_worker():
            self.on = False
            return
        if self.pid != os.getpid():  # forked, and a program of its own
            self.pid, self.watch = os.getpid(), None
            self.iterated, self.epochs = {}, []
        watch = self.watch
        if isinstance(watch, Stretch):
            watch.begins(loader, iterator)
            return
        number = self._number(loader)
        self.epochs[number] += 1
        if watch is not None and watch.loader is loader:
            watch.workers_go_on(iterator)  # also where another loader has become the chosen one
        # Not one that the data set of the watched loader iterates.
        inner = watch is not None and watch.asking == threading.get_ident()
        chosen = not inner and self._is_chosen(loader, number)
        again = self.epochs[number] == 2
        if self.epochs[number] == 1:
            words = described.words(loader, self._site(loader))
            again, self.said = words in self.said, {words, *self.said}
            fact = {"event": "iterated", "loader": words[:300], "chosen": chosen}
            exchange.mention(self.exchange, fact)
        if not chosen:
            # Another epoch, and the one that is meant has not come: worth a word before the end.
            if self.which is not None and not self.matched and again:
                exchange.mention(self.exchange, {"event": "unmatched"})
            return
        self.matched = True
        if watch is None or watch.loader is not loader:
            if watch is not None:
                watch.workers_go_on()
            self.watch = watch = Watch(loader)
        watch.begin(start)
        iterator.__dict__[KEY] = watch

    def _number(self, loader: Any) -> int:
        reference, number = self.iterated.get(id(loader), (None, 0))
        if reference is None or reference() is not loader:
            number = len(self.epochs)
            self.iterated[id(loader)] = (weakref.ref(loader), number)
            self.epochs.append(0)
        return number

    def _site(self, loader: Any) -> str:
        known = self.applier._find(loader)
        return "" if known is None else known.site

    def _is_chosen(self, loader: Any, number: int) -> bool:
        if isinstance(self.which, int):
            return number == self.which
        if self.which is not None:
            names = (type(loader.dataset).__name__, self._site(loader))
            return self.which in names
        there = [known.reference() for known in list(self.applier.known.values())]
        most = self._samples(loader)
        return all(self._samples(one) <= most for one in there if one is not None)

    def _samples(self, loader: Any) -> float:
        """Of an epoch; a stream that does not tell is endless."""
        reference, length = self.lengths.get(id(loader), (None, 0.0))
        if reference is None or reference() is not loader:
            found = described.length_of(loader.sampler)
            if type(found) is not int:
                found = ask(len, loader.dataset)
            length = float(found) if type(found) is int else float("inf")
            self.lengths[id(loader)] = (weakref.ref(loader), length)
        return length

    # What its program does with it.

    def asked(self, iterator: Any, watch: Watch | Stretch) -> None:
        """The program calls `next`: take over when enough was watched."""
        if watch is not self.watch:
            return
        watch.asked()
        if isinstance(watch, Stretch):
            if watch.enough():
                self.take_over(watch.iterator(), watch, watch.over)
            return
        steps = len(watch.steps)
        if self.batches is not None or self._ranks() > 1:
            enough = steps >= (self.batches or _BATCHES)
        else:
            enough = steps >= _BATCHES or (steps >= _LEAST and clock() - watch.first >= _SECONDS)
        if enough and self.on:
            # Ranks have to stop at the same step.
            if self._ranks() > 1 or not watch.quieter(iterator):
                self.take_over(iterator, watch, False)
        elif self.on and steps:
            exchange.mention(self.exchange, {"event": "watched", "batches": steps})

    def fetches(self, watch: Watch | Stretch) -> None:
        if watch is self.watch and self.on:
            watch.fetches()

    def took(self, watch: Watch | Stretch, batch: Any, start: float, now: float) -> None:
        if watch is self.watch:
            watch.took(start, now, batch)

    def exhausted(self, iterator: Any, watch: Watch | Stretch) -> None:
        """The program's call of `next` finds no more batches."""
        if watch is not self.watch or not self.on:
            return
        if isinstance(watch, Stretch):
            watch.over = True
            if watch.enough():
                self.take_over(iterator, watch, True)
        elif len(watch.steps) >= _LEAST_AT_END:
            self.take_over(iterator, watch, True)
        else:
            fact = {"event": "exhausted", "batches": len(watch.steps)}
            exchange.mention(self.exchange, fact)

    def _ranks(self) -> int:
        distributed: Any = sys.modules.get("torch.distributed")
        with suppress(Exception):
            if distributed is not None and distributed.is_initialized():
                return int(distributed.get_world_size())
        return number_in(self.environ, _WORLDS) or 1

    def _rank(self) -> int | None:
        """The process's number among those of its machine; None: no launcher tells."""
        return number_in(self.environ, _RANKS)

    # Instead of the program.

    def take_over(self, iterator: Any, watch: Watch | Stretch, exhausted: bool) -> None:
        """Let lotus try settings in place of the program, then do what it says."""
        self.on = False  # the candidates are no loaders of the program
        loader, epochs = watch.loader, self.epochs[self._number(watch.loader)]
        if iterator is not None:
            iterator.__dict__.pop(KEY, None)
        if isinstance(watch, Watch):
            self.own = going_on.as_it_is(loader)
        applying, self.applier.on = self.applier.on, False
        self.raised, taken = None, self._take_signals()
        try:
            answer = self._answer(iterator, watch, exhausted)
            if answer["do"] == "apply" and not self._is_for(answer, loader):
                answer = {"do": "leave"}
        except BaseException as error:
            if error is not self.raised:
                raise
            answer = {"do": "leave" if self.apply else "end", "code": 130}
        finally:
            self.applier.on = applying
            breaks.forget()
            for number, (ours, theirs) in taken.items():
                if signal.getsignal(number) is ours:
                    signal.signal(number, theirs)
        if answer["do"] == "end":
            end(answer.get("code", 0))
        entry, do = self.own, answer["do"]
        if do != "leave":
            entry = {name: answer[name] for name in ("loader", "setting", "iterable_safe")}
        self.leave(hooks=False)
        if do != "leave" or entry != going_on.as_it_is(loader):
            going_on.change(self.applier, loader, iterator, entry, epochs, quiet=do != "apply")
        if do == "train":
            self.watch, self.on = Stretch(loader, iterator, answer), True
        if isinstance(watch, Watch) and going_on.KEY not in iterator.__dict__:
            self.leave()  # nothing goes on by our hooks
        if self.raised is None:
            return
        _, shown = taken.get(signal.SIGINT, (None, signal.default_int_handler))
        if type(self.raised) is KeyboardInterrupt and shown is not signal.default_int_handler:
            signal.raise_signal(signal.SIGINT)  # the program has its own way to take it
        else:
            raise self.raised

    def _take_signals(self) -> dict[int, tuple[Any, Any]]:
        """Have trials end by Ctrl-C, and by what a handler of the program raises, and in order.

        Returns our handler and theirs by the signal's number.
        """
        taken: dict[int, tuple[Any, Any]] = {}
        if threading.current_thread() is not threading.main_thread():
            return taken

        def take(number: int, ours: Callable[[int, Any], object]) -> None:
            taken[number] = (ours, signal.signal(number, ours))

        for number in signal.valid_signals():
            theirs = signal.getsignal(number)
            if number == signal.SIGINT:
                if theirs not in (signal.SIG_IGN, None):
                    take(number, breaks.ours(partial(self._interrupt, breaks.Insisting())))
            elif callable(theirs):
                take(number, breaks.ours(partial(self._pass_on, theirs)))
        return taken

    def _interrupt(self, insisting: breaks.Insisting, number: int, frame: object) -> None:
        if insisting.again():  # the first one was to end the trials, which seems not to happen
            end(128 + number)
        self._stop(KeyboardInterrupt())

    def _pass_on(self, handler: Callable[..., Any], number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException as error:
            self._stop(error)

    def _stop(self, error: BaseException) -> None:
        """Raise it: now or, where that would do harm, soon."""
        mark(error)
        if self.raised is None:
            self.raised = error
            breaks.stop(error)

    def _is_for(self, answer: dict[str, Any], loader: Any) -> bool:
        """Whether a setting is for this loader: a program may start others, with other data."""
        name: str | None = answer["loader"].get("dataset")
        return name in (None, type(loader.dataset).__name__)

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Record what the trials do, and nothing that the program does by itself."""
        from . import install as tracing

        if not self.record or (tracing.active is not None and tracing.active.on):
            yield
            return
        before = {name: os.environ.get(name) for name in self.record}
        os.environ.update(self.record)  # for spawned workers
        tracer = tracing.install(os.environ)
        try:
            yield
        finally:
            tracer.uninstall()
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value

    def _answer(self, iterator: Any, watch: Watch | Stretch, exhausted: bool) -> dict[str, Any]:
        """What is to be done after all trials, or after a stretch of training."""
        link, self.link = self.link, None
        try:
            if link is None:
                link = exchange.Link(self.exchange)
        except exchange.Gone:
            return self._alone()
        try:
            answer = None
            if isinstance(watch, Stretch):
                link.tell({"did": watch.told()})
                answer = self._heard(link, link.ask)
            else:
                answer = link.answer()
            if answer is None and (self._rank() or not link.claim()):
                answer = link.wait(_UNCLAIMED_S, clock)
                if answer is None:
                    link.tell({"event": "fault", "error": "no process of rank 0 was there to tune"})
                    return self._alone()
            if answer is None:
                assert isinstance(watch, Watch)
                answer = self._tuned(link, iterator, watch, exhausted)
            while answer["do"] == "train":
                why = "the epoch was over"
                if not exhausted:
                    why = going_on.why_not(watch.loader, iterator, answer)
                if self._ranks() > 1:
                    why = "the job has several ranks"
                if not why:
                    self.link = link
                    break
                link.tell({"failed": why})
                answer = self._heard(link, link.ask)
            return answer
        except exchange.Gone:
            shutil.rmtree(self.exchange, ignore_errors=True)  # lotus was killed
            return self._alone()
        finally:
            if link is not self.link:
                link.close()

    def _alone(self) -> dict[str, Any]:
        """What is to be done where lotus has gone, or failed."""
        return {"do": "leave"} if self.apply else {"do": "end", "code": 1}

    def _heard(self, link: exchange.Link, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What lotus says, also after an interrupt: what the program is to do then."""
        try:
            return ask()
        except BaseException as error:
            breaks.forget()
            if error is not self.raised:
                raise
            link.tell({"interrupted": True})
            asked = link.ask()
            while asked["do"] not in asking.LAST:  # asked before lotus knew
                asked = link.ask()
            return asked

    def _tuned(
        self, link: exchange.Link, iterator: Any, watch: Watch, exhausted: bool
    ) -> dict[str, Any]:
        from .candidate import Candidates

        notes = [] if exhausted else wait_until_idle(iterator)
        bound = take_share(self.environ)
        candidates = None
        try:
            candidates = Candidates(watch.loader, folder=self.exchange)
            link.tell({"watched": self._watched(candidates, watch, notes)})
            with self._recorded():
                trials = asking.Asking(link, candidates, lambda: self.raised)
                return self._heard(link, trials.run)
        except exchange.Gone:
            raise
        except BaseException as error:
            breaks.forget()
            # A fault of ours.
            link.tell({"event": "fault", "error": f"{type(error).__name__}: {error}"[:1000]})
            return self._alone()
        finally:
            try:
                if candidates is not None:
                    candidates.end()
            finally:
                for task, cpus in bound:
                    with suppress(OSError):
                        os.sched_setaffinity(task, cpus)

    def _watched(self, candidates: Any, watch: Watch, notes: list[str]) -> dict[str, Any]:
        from .steps import Step

        loader, count = watch.loader, len(watch.steps)
        told = dict(candidates.describe())
        steady = slice(1 if count > 2 else 0, count)
        steps, cpu = watch.steps[steady], watch.cpu[steady]
        alone = watch.quiet
        if alone is not None and len(alone.steps) >= _LEAST_ALONE:
            told["alone_s"], told["alone_cpu_s"] = steps, cpu = alone.steps, alone.cpu
        if steps:
            threads = min(told["threads"], len(os.sched_getaffinity(0)))  # that run at once
            candidates.step = Step(_median(steps), _median(cpu), threads)
        if threading.current_thread() is not threading.main_thread():
            notes.append("the loader is iterated in a thread, so a step may be a part of one only")
        known = self.applier._find(loader)
        again = None
        if known is not None and not known.by_user:
            again = self.applier._before(loader, None)
        maker = (again.reference() if again is not None else None) or loader
        told["loader"] |= {
            "number": self._number(loader),
            "call_site": self._site(loader) or None,
            "sampler": described.sampler(maker),
        }
        told["waits_s"], told["steps_s"] = watch.waits[:count], watch.steps
        told["step_cpu_s"], told["sizes"] = watch.cpu, watch.sizes[:count]
        told["startup_s"], told["pid"] = watch.startup_s, os.getpid()
        told["notes"] = [*told.get("notes", ()), *notes]
        if watch.fetching is not None:
            told["grown_bytes"] = max(watch.fetching.grown_bytes, 0)
            # The files of a stream may be its iterator's, which each worker has of its own.
            shared = [] if told["iterable"] else watch.fetching.shared()
            if shared:
                told["forbidden"] = candidates.forbid(positions.words(shared))
        return told


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[-middle - 1]) / 2


def install() -> None:
    """Act in this process as LOTUS_TUNE says."""
    global active
    if active is None:
        active = Agent(dict(os.environ))
        active.install()
