"""Measures the program's loader with other settings in the program's process.

Implements the requests of trial_requests.py. `lotus.tune.session.subprocess_tuning` sends them
through a pipe, `lotus.tune(loader)` calls it directly. A candidate loader shares data set,
collate_fn and worker_init_fn with the program's loader. That loader and the program's generators
stay unchanged: indices are drawn in a forked child, and a candidate without workers runs in one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace

from ....apply import loader_attributes
from ....common.guard import ask
from ....common.loaders import loader_description
from ....common.loaders.worker_needs import workers_needed_at
from ..loading import file_offsets, stream_epochs
from ..loading.candidate_loader import Loading, accelerator, copy_of
from ..loading.index_replay import Cycle, draw
from ..processes import teardown, worker_processes
from ..processes.forked_child import once
from ..processes.watchdog import CandidateError, held, interrupts, let_go, words
from ..trial_requests import EpochComparison
from .open_candidates import ForkedCandidate, LocalCandidate
from .step_emulator import Step, StepEmulator, device_in_use

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..trial_requests import Close, CompareEpochs, Measure, Open, Opened, TrialBlock

    _Setting = dict[str, Any]
    _Key = tuple[Any, ...]
    _Candidate = LocalCandidate | ForkedCandidate

__all__ = ["CandidateError", "ForbiddenError", "Step", "Trials"]

_PATIENCE_S = 2.0  # for workers that are asked to exit
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


class ForbiddenError(CandidateError):
    """No more trials are allowed in this process."""


class Trials:
    """Trials of candidates of one loader.

    A setting is a dict as lotus.settings.space.Setting.as_json.

    `step` replaces the training step between two batches: a Step is emulated by the same amount of
    work, a function is called with each batch, and None does nothing. `say` gets notes about
    unusual conditions; `folder` is for files. All methods raise CandidateError if a candidate does
    not work, after closing it and everything that it has started. Any other exception, such as
    KeyboardInterrupt or one of the program's signal handlers, closes it too and propagates.
    """

    def __init__(
        self, loader: Any, *, say: Callable[[str], object] | None = None, folder: str = ""
    ) -> None:
        self.loader, self.folder = loader, folder
        self._say = say or (lambda text: None)
        self._reported: set[str] = set()
        self._step: Step | Callable[[Any], object] | None = None
        self._step_work: StepEmulator | Callable[[Any], object] | None = None
        self._cycle: Cycle | None = None
        self._open: dict[_Key, _Candidate] = {}
        self._helpers = teardown.HelperProcesses()
        self._files = file_offsets.Trial()
        self._forbidden = ""

    @property
    def step(self) -> Step | Callable[[Any], object] | None:
        return self._step

    @step.setter
    def step(self, step: Step | Callable[[Any], object] | None) -> None:
        """Set it while no candidate is open, as this measures the speed of this thread."""
        self._step = step
        if isinstance(step, Step):
            own = self.loader
            shares = bool(own.num_workers) and not own.pin_memory
            self._step_work = StepEmulator(step, bool(own.pin_memory), shares)
        else:
            self._step_work = step

    def say(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._say(text)

    def forbid(self, why: str) -> str:
        """Forbid trials: from now on all requests raise ForbiddenError."""
        self._forbidden = why
        return why

    def _begin(self) -> None:
        if self._forbidden:
            raise ForbiddenError(self._forbidden)
        self._files.begin()

    def _unshared(self) -> None:
        """Raise ForbiddenError if the trial has moved the position of this process's open files."""
        those = self._files.moved()
        if not those:
            return
        for key in list(self._open):
            self._open.pop(key).shut(0)
        self._files.put_back()
        raise ForbiddenError(self.forbid(file_offsets.words(those)))

    def describe(self) -> dict[str, Any]:
        """Return the fields of lotus.tune.program.program.Watched that depend on the loader only.

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
            # None stands for torch's default.
            "in_order": None if getattr(loader, "in_order", True) else False,
        }
        notes = []
        if not worker_processes.tells_queueing():
            notes.append("this kernel does not tell for how long a worker had no core")
        needed_at = workers_needed_at(loader) if workers else ""
        if needed_at:
            notes.append(f"nothing without workers is tried: {needed_at} works in workers only")
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
            "workers_needed_at": needed_at,
            "notes": notes,
        }

    def _batches(self) -> int | None:
        """Return the batches of an epoch; computed in a child, as it runs code of the program."""

        def length() -> int | None:
            batches = ask(len, self.loader)
            return batches if type(batches) is int else None

        try:
            with held(signal.SIGCHLD):
                batches: int | None = once(length, _LENGTH_S, "the loader's length")
        except CandidateError:
            return None
        return batches

    def open(self, setting: _Setting, request: Open) -> Opened:
        """Open a candidate and take its first batch; close it before if it is open."""
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
        self._draw()
        pinned = _pinned_where_possible(setting)
        if pinned is not setting:
            self.say("without workers the time that pinning takes is not measured")
        return copy_of(self.loader, pinned, self._cycle)

    def _draw(self) -> None:
        """Draw the indices of an epoch, unless that was done."""
        if self._cycle is None and not loader_description.is_iterable(self.loader):
            batches, whole = draw(self.loader._index_sampler)
            self._cycle = Cycle(batches)
            if not whole:
                self.say(f"all candidates read the first {len(batches)} batches of an epoch only")

    def measure(self, setting: _Setting, request: Measure) -> TrialBlock:
        """Measure an open candidate."""
        candidate = self._open.get(_key(setting))
        if candidate is None:
            raise CandidateError("it is not open")
        if request.discard is None:
            ready = setting["num_workers"] * (setting.get("prefetch_factor") or 2)
            request = replace(request, discard=ready)
        step_work = self._step_work if request.step else None
        self._begin()
        with held(signal.SIGCHLD):
            try:
                block = candidate.measure(request, step_work)
                if step_work is None or isinstance(step_work, StepEmulator):
                    self._unshared()  # else the program's step may have moved them
                return block
            except BaseException as error:
                failed = self._give_up(setting, error)
            raise failed

    def close(self, setting: _Setting, request: Close) -> float:
        """End a candidate. Return the seconds that it took, 0 if it is not open.

        Workers that do not exit within two seconds are killed.
        """
        return self._close(setting)

    def _close(self, setting: _Setting) -> float:
        candidate = self._open.pop(_key(setting), None)
        if candidate is None:
            return 0.0
        before = time.perf_counter()
        candidate.shut(_PATIENCE_S)
        return time.perf_counter() - before

    def _give_up(self, setting: _Setting, error: BaseException) -> CandidateError:
        """Close a candidate at once; return the exception to raise after the `except` block.

        Inside the block, it would keep the frames that refer to the candidate alive.
        """
        candidate = self._open.pop(_key(setting), None)
        dead, goes_up = "", interrupts(error)  # asked before its frames are cleared
        if candidate is not None:
            dead = candidate.dead(error)
            let_go(error)
            candidate.shut(0)
        if goes_up:
            raise error
        if isinstance(error, ForbiddenError):
            return error
        if isinstance(error, CandidateError):
            return CandidateError(dead or str(error))
        return CandidateError(dead or words(error))

    def compare_epochs(self, setting: _Setting, request: CompareEpochs) -> EpochComparison:
        """Compare the samples of an epoch with the number of workers of `setting`."""
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
    """Return a key that is the same for settings with which torch makes the same loader."""
    if not setting["num_workers"]:
        return (0, setting.get("pin_memory", False))
    made = {**setting, "prefetch_factor": setting.get("prefetch_factor") or 2}
    return tuple(made.get(name) or False if name in _FLAGS else made.get(name) for name in _NAMES)


def _refuse_pipes(loader: Any) -> None:
    data: Any = sys.modules["torch.utils.data"]
    for name in ("IterDataPipe", "MapDataPipe"):
        kind = getattr(data, name, None)
        if kind is not None and isinstance(loader.dataset, kind):
            raise CandidateError(
                "its data set is a data pipe, which torch changes when it is iterated"
            )


def _pinned_where_possible(setting: _Setting) -> _Setting:
    """Return it without pinned memory where a forked child makes batches, which cannot pin."""
    if not setting["num_workers"] and setting.get("pin_memory") and device_in_use() is not None:
        return {**setting, "pin_memory": False}
    return setting
