"""Candidate loaders: the program's own loader with other settings, measured in its process.

What a program offers that is tuned (lotus/tune/trying.py), in plain dicts: `lotus.tuning` asks for
it over a pipe, `lotus.tune(loader)` directly. A candidate shares data set, collate_fn and
worker_init_fn with the program's loader, which it leaves alone, as it does the program's
generators: indices are drawn in a forked child, and without workers all is done in one.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from . import assigning, described, epochs, positions, processes, reaping
from .forked import once
from .guard import ask
from .indices import Cycle, draw
from .loading import Loading, accelerator, copy_of
from .running import Away, Here
from .steps import StandIn, Step, device_in_use
from .watch import Failed, held, interrupts, let_go, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    _Setting = dict[str, Any]
    _Key = tuple[Any, ...]
    _Candidate = Here | Away

__all__ = ["Candidates", "Failed", "Forbidden", "Step"]

_PATIENCE_S = 2.0  # for workers that are asked to end
_LENGTH_S = 60.0
_FLAGS = ("pin_memory", "persistent_workers")
_NAMES = (
    "num_workers",
    "prefetch_factor",
    "pin_memory",
    "persistent_workers",
    "start_method",
    "in_order",
    "threads",
)


class Forbidden(Failed):
    """Nothing may be tried any more in this process."""


class Candidates:
    """All candidates of one loader. A setting is a dict as lotus.tune.space.Setting.as_json.

    `step` stands for what the program does between two batches: a Step, by work of the same
    size, or a function that is called with each batch; None: nothing. `say` is told, in
    sentences, what is unusual; `folder` is where files go. All methods raise Failed where a
    candidate does not work; it is closed then, with all that it had started. Anything else that
    is raised, as KeyboardInterrupt or by a signal's handler of the program, closes it too and
    goes on up.
    """

    def __init__(
        self, loader: Any, *, say: Callable[[str], object] | None = None, folder: str = ""
    ) -> None:
        self.loader, self.folder = loader, folder
        self._say = say or (lambda text: None)
        self._said: set[str] = set()
        self._step: Step | Callable[[Any], object] | None = None
        self._consumer: StandIn | Callable[[Any], object] | None = None
        self._cycle: Cycle | None = None
        self._open: dict[_Key, _Candidate] = {}
        self._helpers = reaping.Helpers()
        self._files = positions.Trial()
        self._forbidden = ""

    @property
    def step(self) -> Step | Callable[[Any], object] | None:
        return self._step

    @step.setter
    def step(self, step: Step | Callable[[Any], object] | None) -> None:
        """Set it while no candidate is open: how fast this thread works is measured."""
        self._step = step
        if isinstance(step, Step):
            own = self.loader
            shares = bool(own.num_workers) and not own.pin_memory
            self._consumer = StandIn(step, bool(own.pin_memory), shares)
        else:
            self._consumer = step

    def say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)

    def forbid(self, why: str) -> str:
        """Let nothing be tried from now on: all that asks for it raises Forbidden."""
        self._forbidden = why
        return why

    def _begin(self) -> None:
        if self._forbidden:
            raise Forbidden(self._forbidden)
        self._files.begin()

    def _unshared(self) -> None:
        """Raise Forbidden where what was begun has moved files of this process."""
        those = self._files.moved()
        if not those:
            return
        for key in list(self._open):
            self._open.pop(key).shut(0)
        self._files.put_back()
        raise Forbidden(self.forbid(positions.words(those)))

    def describe(self) -> dict[str, Any]:
        """The fields of lotus.tune.trying.Watched that a loader can tell.

        `loader` lacks `number` and `call_site`.
        """
        loader: Any = self.loader
        torch: Any = sys.modules["torch"]
        workers = loader.num_workers
        own = {
            "num_workers": workers,
            "prefetch_factor": loader.prefetch_factor if workers else None,
            "pin_memory": bool(loader.pin_memory),
            "persistent_workers": bool(loader.persistent_workers),
            "start_method": assigning.start_method(loader) if workers else None,
            # What torch does by itself is what a setting leaves open.
            "in_order": None if getattr(loader, "in_order", True) else False,
        }
        notes = []
        if not processes.tells_queueing():
            notes.append("this kernel does not tell for how long a worker had no core")
        return {
            "loader": {
                "dataset": type(loader.dataset).__name__,
                "dataset_length": described.length(loader),
                "sampler": described.sampler(loader),
            },
            "setting": own,
            "pid": os.getpid(),
            "torch": str(torch.__version__),
            "iterable": described.is_iterable(loader),
            "batch_size": loader.batch_size,
            "batches": self._batches(),
            "accelerator": accelerator(),
            "threads": int(torch.get_num_threads()),
            "in_order": hasattr(loader, "in_order"),
            "notes": notes,
        }

    def _batches(self) -> int | None:
        """Of an epoch; asked in a child, as code of the program tells it and torch notes it."""

        def asked() -> int | None:
            told = ask(len, self.loader)
            return told if type(told) is int else None

        try:
            with held(signal.SIGCHLD):
                batches: int | None = once(asked, _LENGTH_S, "the loader's length")
        except Failed:
            return None
        return batches

    def open(self, setting: _Setting, limit_s: float) -> dict[str, Any]:
        """Make a candidate and take its first batch: lotus.tune.trying.Opened as a dict.

        That may take `limit_s`. One of this setting that is open is closed before.
        """
        self.close(setting)
        self._begin()
        with held(signal.SIGCHLD):
            try:
                made = self._copy(setting)
                loading = Loading(made, self._cycle, self.say, self.folder)
                candidate = Here(loading) if made.num_workers else Away(loading)
                self._open[_key(setting)] = candidate
                opened = candidate.open(limit_s)
                self._unshared()
                return opened
            except BaseException as error:
                failed = self._give_up(setting, error)
            finally:
                self._helpers.unsettle()
            raise failed

    def _copy(self, setting: _Setting) -> Any:
        _refuse_pipes(self.loader)
        if self._cycle is None and not described.is_iterable(self.loader):
            batches, whole = draw(self.loader._index_sampler)
            self._cycle = Cycle(batches)
            if not whole:
                self.say(f"all candidates read the first {len(batches)} batches of an epoch only")
        if not setting["num_workers"] and setting.get("pin_memory") and device_in_use() is not None:
            # A forked child cannot use it.
            self.say("without workers the time that pinning takes is not measured")
            setting = {**setting, "pin_memory": False}
        return copy_of(self.loader, setting, self._cycle)

    def block(
        self,
        setting: _Setting,
        *,
        seconds: float,
        least: int,
        step: bool,
        limit_s: float,
        discard: int | None = None,
    ) -> dict[str, Any]:
        """Measure an open candidate: lotus.tune.trying.Block as a dict.

        `limit_s` is how long a batch may take. It also ends the block: with fewer batches than
        asked for, if any were counted until then.
        """
        candidate = self._open.get(_key(setting))
        if candidate is None:
            raise Failed("it is not open")
        if discard is None:
            discard = setting["num_workers"] * (setting.get("prefetch_factor") or 2)
        asked = {"seconds": seconds, "least": least, "discard": discard}
        consumer = self._consumer if step else None
        self._begin()
        with held(signal.SIGCHLD):
            try:
                block = candidate.block(limit_s, consumer, **asked)
                if consumer is None or isinstance(consumer, StandIn):
                    self._unshared()  # else it may have been the program's step
                return block
            except BaseException as error:
                failed = self._give_up(setting, error)
            raise failed

    def close(self, setting: _Setting) -> float:
        """End a candidate. Returns the seconds that it took, 0 where it is not open.

        Its workers end what they are at, for two seconds at most; then they are killed.
        """
        candidate = self._open.pop(_key(setting), None)
        if candidate is None:
            return 0.0
        before = time.perf_counter()
        candidate.shut(_PATIENCE_S)
        return time.perf_counter() - before

    def _give_up(self, setting: _Setting, error: BaseException) -> Failed:
        """Close a candidate at once; what is to be raised, out of the `except` that caught `error`.

        There it would keep the frames alive in which the candidate is.
        """
        candidate = self._open.pop(_key(setting), None)
        dead, goes_up = "", interrupts(error)  # asked before its frames are cleared
        if candidate is not None:
            dead = candidate.dead(error)
            let_go(error)
            candidate.shut(0)
        if goes_up:
            raise error
        if isinstance(error, Forbidden):
            return error
        if isinstance(error, Failed):
            return Failed(dead or str(error))
        return Failed(dead or words(error))

    def same_samples(self, setting: _Setting, limit_s: float) -> dict[str, Any]:
        """Whether an epoch has the same samples with the number of workers of `setting`.

        lotus.tune.trying.Same as a dict, found within about `limit_s`.
        """
        same: dict[str, Any] = {"why": "", "epochs": []}
        if not described.is_iterable(self.loader):
            return same  # the main process chooses them
        own = self.describe()["setting"]
        if own["num_workers"] == setting["num_workers"]:
            return same
        _refuse_pipes(self.loader)
        self._begin()
        with held(signal.SIGCHLD):
            try:
                found = epochs.compare(self.loader, own, setting, limit_s)
                self._unshared()
                return found
            finally:
                self._helpers.unsettle()

    def end(self) -> None:
        """Close all candidates, and end what was started for them."""
        try:
            for key in list(self._open):
                candidate = self._open.pop(key)
                candidate.shut(0)
        finally:
            self._helpers.end()


def _key(setting: _Setting) -> _Key:
    """The same for settings of which torch makes the same loader."""
    if not setting["num_workers"]:
        return (0, setting.get("pin_memory", False))
    made = {**setting, "prefetch_factor": setting.get("prefetch_factor") or 2}
    return tuple(made.get(name) or False if name in _FLAGS else made.get(name) for name in _NAMES)


def _refuse_pipes(loader: Any) -> None:
    data: Any = sys.modules["torch.utils.data"]
    for name in ("IterDataPipe", "MapDataPipe"):
        kind = getattr(data, name, None)
        if kind is not None and isinstance(loader.dataset, kind):
            raise Failed("its data set is a data pipe, which torch changes when it is iterated")
