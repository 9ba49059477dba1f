"""Trials: the program's own loader with other settings, measured in its process.

Does what trial_requests.py defines: `lotus.tune.session.subprocess_tuning` requests it over a pipe,
`lotus.tune(loader)` directly. A candidate loader shares data set, collate_fn and worker_init_fn
with the program's loader, which stays as it is, and so do the program's generators: indices are
drawn in a forked child, and a candidate without workers runs in one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace

from ...apply import loader_attributes
from ...common import loader_description
from ...common.guard import ask
from . import file_offsets, stream_epochs, teardown, worker_processes
from .candidate_loader import Loading, accelerator, copy_of
from .forked_child import once
from .index_replay import Cycle, draw
from .open_candidates import ForkedCandidate, LocalCandidate
from .step_emulator import StandIn, Step, device_in_use
from .trial_requests import EpochComparison
from .watchdog import Failed, held, interrupts, let_go, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .trial_requests import Block, Close, CompareEpochs, Measure, Open, Opened

    _Setting = dict[str, Any]
    _Key = tuple[Any, ...]
    _Candidate = LocalCandidate | ForkedCandidate

__all__ = ["Failed", "Forbidden", "Step", "Trials"]

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


class Trials:
    """Trials of candidates of one loader.

    A setting is a dict as lotus.settings.space.Setting.as_json.

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
        self._reported: set[str] = set()
        self._step: Step | Callable[[Any], object] | None = None
        self._consumer: StandIn | Callable[[Any], object] | None = None
        self._cycle: Cycle | None = None
        self._open: dict[_Key, _Candidate] = {}
        self._helpers = teardown.Helpers()
        self._files = file_offsets.Trial()
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
        if text not in self._reported:
            self._reported.add(text)
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
        raise Forbidden(self.forbid(file_offsets.words(those)))

    def describe(self) -> dict[str, Any]:
        """The fields of lotus.tune.program.program.Watched that a loader can tell.

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
            "start_method": loader_attributes.start_method(loader) if workers else None,
            # What torch does by itself is what a setting leaves open.
            "in_order": None if getattr(loader, "in_order", True) else False,
        }
        notes = []
        if not worker_processes.tells_queueing():
            notes.append("this kernel does not tell for how long a worker had no core")
        return {
            "loader": {
                "dataset": type(loader.dataset).__name__,
                "dataset_length": loader_description.length(loader),
                "sampler": loader_description.sampler(loader),
            },
            "setting": own,
            "pid": os.getpid(),
            "torch": str(torch.__version__),
            "iterable": loader_description.is_iterable(loader),
            "batch_size": loader.batch_size,
            "batches": self._batches(),
            "accelerator": accelerator(),
            "threads": int(torch.get_num_threads()),
            "in_order": hasattr(loader, "in_order"),
            "notes": notes,
        }

    def _batches(self) -> int | None:
        """Of an epoch; asked in a child, as code of the program tells it and torch notes it."""

        def length() -> int | None:
            batches = ask(len, self.loader)
            return batches if type(batches) is int else None

        try:
            with held(signal.SIGCHLD):
                batches: int | None = once(length, _LENGTH_S, "the loader's length")
        except Failed:
            return None
        return batches

    def open(self, setting: _Setting, request: Open) -> Opened:
        """Make a candidate and take its first batch. One that is open is closed before."""
        self._close(setting)
        self._begin()
        with held(signal.SIGCHLD):
            try:
                made = self._copy(setting)
                loading = Loading(made, self._cycle, self.say, self.folder)
                candidate = (
                    LocalCandidate(loading) if made.num_workers else ForkedCandidate(loading)
                )
                self._open[_key(setting)] = candidate
                opened = candidate.open(request)
                self._unshared()
                return opened
            except BaseException as error:
                failed = self._give_up(setting, error)
            finally:
                self._helpers.unsettle()
            raise failed

    def _copy(self, setting: _Setting) -> Any:
        _refuse_pipes(self.loader)
        if self._cycle is None and not loader_description.is_iterable(self.loader):
            batches, whole = draw(self.loader._index_sampler)
            self._cycle = Cycle(batches)
            if not whole:
                self.say(f"all candidates read the first {len(batches)} batches of an epoch only")
        if not setting["num_workers"] and setting.get("pin_memory") and device_in_use() is not None:
            # A forked child cannot use it.
            self.say("without workers the time that pinning takes is not measured")
            setting = {**setting, "pin_memory": False}
        return copy_of(self.loader, setting, self._cycle)

    def measure(self, setting: _Setting, request: Measure) -> Block:
        """Measure an open candidate."""
        candidate = self._open.get(_key(setting))
        if candidate is None:
            raise Failed("it is not open")
        if request.discard is None:
            ready = setting["num_workers"] * (setting.get("prefetch_factor") or 2)
            request = replace(request, discard=ready)
        consumer = self._consumer if request.step else None
        self._begin()
        with held(signal.SIGCHLD):
            try:
                block = candidate.measure(request, consumer)
                if consumer is None or isinstance(consumer, StandIn):
                    self._unshared()  # else it may have been the program's step
                return block
            except BaseException as error:
                failed = self._give_up(setting, error)
            raise failed

    def close(self, setting: _Setting, request: Close) -> float:
        """End a candidate. Returns the seconds that it took, 0 where it is not open.

        Its workers may take two seconds to end; then they are killed.
        """
        return self._close(setting)

    def _close(self, setting: _Setting) -> float:
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

    def compare_epochs(self, setting: _Setting, request: CompareEpochs) -> EpochComparison:
        """Whether an epoch has the same samples with the number of workers of `setting`."""
        if not loader_description.is_iterable(self.loader):
            return EpochComparison("")  # the main process chooses them
        own = self.describe()["setting"]
        if own["num_workers"] == setting["num_workers"]:
            return EpochComparison("")
        _refuse_pipes(self.loader)
        self._begin()
        with held(signal.SIGCHLD):
            try:
                comparison = stream_epochs.compare(self.loader, own, setting, request.limit_s)
                self._unshared()
                return comparison
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
