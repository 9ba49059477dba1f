"""Open candidates: with workers in this process, without them in a forked child."""

from __future__ import annotations

import os
import pickle
import time
from functools import partial
from multiprocessing import connection

from . import blocks
from .forked import Forked
from .loading import Loading
from .processes import Usage, resident_bytes
from .steps import StandIn
from .watch import Watch, end_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    _Step = StandIn | Callable[[Any], object] | None

BATCH = "a batch"
OPENING = "its start, with the first batch,"
# A child gives up by itself, as long as Python runs in it.
_MORE_S = 5.0
_DYING_S, _TELLING_S, _PAUSE_S = 0.5, 5.0, 0.002


class Here:
    """A candidate whose workers are this process's own."""

    def __init__(self, loading: Loading) -> None:
        self._loading = loading

    def open(self, limit_s: float) -> dict[str, Any]:
        """lotus.tune.trying.Opened, as a dict."""
        watch = Watch(limit_s, OPENING)
        before = time.perf_counter()
        iter_s = watch.run(partial(self._loading.first, watch))
        return {
            "first_batch_s": time.perf_counter() - before,
            "iter_s": iter_s,
            "workers": [one.pid for one in self._loading.workers()],
        }

    def block(self, limit_s: float, step: _Step, **asked: Any) -> dict[str, Any]:
        """lotus.tune.trying.Block, as a dict."""
        watch = Watch(limit_s, BATCH)
        self._loading.limit(watch)
        if isinstance(step, StandIn):
            step = step.run
        return watch.run(partial(blocks.measure, self._loading, watch, step=step, **asked))

    def take(self, limit_s: float) -> tuple[float, int, float, float]:
        """One batch: seconds in `next`, samples, CPU seconds, seconds without a core."""
        watch = Watch(limit_s, BATCH)
        usage = self._loading.usage
        usage.reset()
        self._batch, wait_s, _ = watch.run(partial(self._loading.take, watch))
        return wait_s, self._loading.samples(self._batch), usage.cpu_s, usage.queued_s

    def last(self) -> bytes:
        return pickle.dumps(self._batch)

    def dead(self, error: BaseException) -> str:
        """What became of a worker that is dead; "" where none is."""
        workers = self._loading.workers()
        cut = isinstance(error, (ConnectionError, EOFError)) and "Caught " not in str(error)
        if workers and (cut or isinstance(error, OSError)):
            # Its connection was cut, a moment before it is dead, or a longer one if it tells more.
            within_s = _TELLING_S if cut else _DYING_S
            ready = connection.wait([one.sentinel for one in workers], within_s)
            until = time.monotonic() + _DYING_S  # its descriptors close a moment before it is dead
            for one in workers:
                while one.sentinel in ready and one.exitcode is None and time.monotonic() < until:
                    time.sleep(_PAUSE_S)
        codes = [one.exitcode for one in workers]
        said = (end_words(code, self._loading.iterable) for code in codes if code is not None)
        return next((text for text in said if text), "")

    def shut(self, patience_s: float) -> None:
        self._loading.shut(patience_s)


class _Told(Usage):
    """Made of what the child tells."""

    def start(self, pids: Iterable[int]) -> None:
        pass

    def add(self, often: bool = False) -> None:
        pass


class Away:
    """A candidate without workers: its data set runs in a child."""

    def __init__(self, loading: Loading) -> None:
        here = Here(loading)

        def serve(question: tuple[str, dict[str, Any]]) -> Any:
            name, arguments = question
            return getattr(here, name)(**arguments)

        self._child = Forked(serve)
        # What `blocks.measure` wants of a Loading:
        self.loader = loading.loader
        self.usage = _Told()
        self._samples = 0
        self._batch: Any = None

    def open(self, limit_s: float) -> dict[str, Any]:
        opened = self._ask("open", limit_s, OPENING, limit_s=limit_s)
        return {**opened, "workers": []}

    def block(self, limit_s: float, step: _Step, **asked: Any) -> dict[str, Any]:
        if step is None or isinstance(step, StandIn):
            # No batch longer than the limit, nor all of them: the last one may begin just before.
            asked.update(limit_s=limit_s, step=step)
            block = self._ask("block", 2 * limit_s, "a block of batches", **asked)
        else:  # a function of the program runs in the program, on a batch of the child's
            block = blocks.measure(self, Watch(limit_s, BATCH), step=step, **asked)
        return {**block, "main_cpu_s": 0.0, "main_bytes": resident_bytes(os.getpid())}

    def take(self, watch: Watch) -> tuple[Any, float, float]:
        """As Loading's; the batch is the first one each time."""
        limit_s = watch.limit_s
        told = self._ask("take", limit_s, BATCH, limit_s=limit_s)
        wait_s, self._samples, cpu_s, queued_s = told
        self.usage.cpu_s += cpu_s
        self.usage.queued_s += queued_s
        if self._batch is None:
            self._batch = pickle.loads(self._ask("last", limit_s, "sending a batch"))
        return self._batch, wait_s, 0.0

    def samples(self, batch: Any) -> int:
        return self._samples

    def pids(self) -> list[int]:
        return [self._child.pid]

    def dead(self, error: BaseException) -> str:
        return ""  # it is said already

    def shut(self, patience_s: float) -> None:
        self._child.end()

    def _ask(self, name: str, within_s: float, what: str, **arguments: Any) -> Any:
        return self._child.ask((name, arguments), within_s + _MORE_S, what)
