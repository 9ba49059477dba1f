"""Reduces the pieces of a run in several processes: of this machine, or of a dask cluster.

Each piece becomes a partial result wherever it is read, and the partial results are added in the
order of the pieces, so that a report is the same whoever read them.
"""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lotus.analysis.common.run_contents import (
    Change,
    ChangedParts,
    Partial,
    Partials,
    Parts,
    one_process,
    partial_of,
)
from lotus.common.errors import LotusError
from lotus.common.version import __version__
from lotus.reading.run import Run, load
from lotus.reading.tables import table_pieces

ONE, PROCESSES, DASK = ("one", "processes", "dask")
# With at least so many samples and operations, and enough cores, processes are started by default:
# each first reads the batches, which takes a third as long as one process takes in all.
LARGE = 1 << 25
MANY_CORES = 4
_PIECES = 4  # of a task: some MB of partial results


def chosen(backend: str | None, scheduler: str | None) -> Callable[[Run], Partials]:
    """Return how to read a run, or each of several, by a user's choice; None: as is best.

    Raises LotusError.
    """
    if (scheduler is not None) != (backend == DASK):
        raise LotusError(
            "--backend dask and --scheduler go together, as: "
            "--backend dask --scheduler tcp://HOST:8786"
        )
    if backend == DASK and scheduler is not None:
        partials = of_cluster(scheduler)
    elif backend == PROCESSES:
        partials = of_processes(len(os.sched_getaffinity(0)))
    elif backend == ONE:
        partials = one_process
    else:
        return _as_is_best
    return lambda run: partials


def _as_is_best(run: Run) -> Partials:
    cores = len(os.sched_getaffinity(0))
    if cores >= MANY_CORES and table_pieces.whole(run) >= LARGE:
        try:
            return of_processes(cores)
        except LotusError:  # joblib is missing: not all that is installed has what it asks for
            return one_process
    return one_process


def of_processes(count: int) -> Partials:
    """Read with so many processes of this machine. Raises LotusError without joblib."""
    joblib = _joblib()

    def parallel() -> Any:
        return joblib.Parallel(
            count, "loky", return_as="generator", batch_size=1, pre_dispatch="2*n_jobs"
        )

    return lambda parts: _read(parts, parallel)


def of_cluster(address: str) -> Partials:
    """Read with the workers of the dask cluster at this address. Raises LotusError.

    They need this version of lotus, and the run at the same path.
    """
    joblib = _joblib()
    try:
        import distributed
    except ImportError:
        raise LotusError(
            "--backend dask needs dask, which is not installed: pip install 'lotus-profiler[dask]'"
        ) from None
    try:
        client = distributed.Client(address, set_as_default=False)
    except (OSError, ValueError) as error:
        raise LotusError(
            f"no scheduler of dask answers at {address} ({error}); without a cluster this machine "
            "reads the run: leave out --backend and --scheduler"
        ) from None

    def parallel() -> Any:
        with joblib.parallel_config(backend="dask", client=client):
            return joblib.Parallel(-1, return_as="generator", batch_size=1, pre_dispatch="2*n_jobs")

    return lambda parts: _read(parts, parallel)


def _joblib() -> Any:
    try:
        import joblib
    except ImportError:
        raise LotusError(
            "several processes need joblib, which is not installed: pip install joblib; "
            "without it: --backend one"
        ) from None
    return joblib


@dataclass(frozen=True)
class _RunSource:
    """The information from which another process can read the parts of a run."""

    version: str
    path: str
    trust: bool
    rows: int
    contents: tuple[int, ...]  # its length: a run may have been recorded anew
    changes: tuple[Change, ...]

    def parts(self) -> Parts:
        """Return the parts. Raises LotusError if they are not those of the calling process."""
        if self.version != __version__:
            raise LotusError(
                f"a worker has lotus {__version__}, and this is {self.version}: install one version"
            )
        parts: Parts = _opened(self.path, self.trust, self.rows, self.contents)
        for change in self.changes:
            parts = ChangedParts(parts, change)
        return parts


@lru_cache(maxsize=1)
def _opened(path: str, trust: bool, rows: int, contents: tuple[int, ...]) -> table_pieces.Pieces:
    run = load(path, trust)
    if _contents(run) != contents:
        raise LotusError(f"{path} changed while it was read, or a worker sees another run there")
    return table_pieces.Pieces(run, rows)


def _contents(run: Run) -> tuple[int, ...]:
    start = run.manifest.get("start_ns")
    return (start if isinstance(start, int) else 0, table_pieces.whole(run), len(run.batches))


def _source(parts: Parts) -> _RunSource | None:
    """Return how to read the parts elsewhere; None: they are in this process alone."""
    changes: list[Change] = []
    while isinstance(parts, ChangedParts):
        changes.insert(0, parts.change)
        parts = parts.parts
    if not isinstance(parts, table_pieces.Pieces) or not isinstance(parts.run, Run):
        return None
    run = parts.run
    if run.manifest.get("state") != "ended":  # it may grow
        return None
    path, rows = str(run.path.absolute()), parts.rows
    return _RunSource(__version__, path, run.trusted, rows, _contents(run), tuple(changes))


def _read(parts: Parts, parallel: Callable[[], Any]) -> Iterator[Partial]:
    source = _source(parts)
    if source is None:
        yield from one_process(parts)
        return
    firsts = range(0, len(parts), _PIECES)
    ranges = (range(first, min(first + _PIECES, len(parts))) for first in firsts)
    # In the form of joblib.delayed's.
    tasks: Iterator[tuple[Any, ...]] = ((_partials, (source, places), {}) for places in ranges)
    try:
        # A worker keeps the mask: Ctrl-C is for this process, which ends them.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            results = parallel()(tasks)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for some in results:
            yield from some
    except ModuleNotFoundError as error:
        raise LotusError(f"a worker cannot import lotus ({error}): install lotus there") from None


def _partials(source: _RunSource, places: range) -> list[Partial]:
    """Return what a worker sends of some parts."""
    parts = source.parts()
    return [partial_of(parts, place) for place in places]
