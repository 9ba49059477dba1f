"""Finds the data of a figure: a run's loader, its counters and its functions."""

from typing import Any

from lotus.analysis.counters.function_profile import MapSummary
from lotus.analysis.summary import LoaderSummary
from lotus.common.errors import LotusError
from lotus.reporters.run import cached_results


def loader(run: Any, number: int | None) -> LoaderSummary:
    """Return the loader with this number, or with the most samples. Raises LotusError."""
    _is_run(run)
    summary = cached_results.summary(run)
    if not summary.loaders:
        raise LotusError(
            "no DataLoader was iterated in this run, so there is nothing to draw; "
            "record one with: lotus trace -- python train.py"
        )
    for loader_summary in summary.loaders:
        if number is None or loader_summary.scope.loader == number:
            return loader_summary
    names = ", ".join(str(loader.scope.loader) for loader in summary.loaders)
    raise LotusError(f"there is no loader {number} in this run; there are: {names}")


def silicon(run: Any) -> MapSummary:
    """Return counters and functions of a run. Raises LotusError if samples cannot be read."""
    _is_run(run)
    return cached_results.measured(run)


def _is_run(run: object) -> None:
    if not hasattr(run, "loaders"):
        raise LotusError(
            f"this figure is drawn of a Run, and this is a {type(run).__name__}: "
            'give lotus.load("RUN"), or one of sweep.loaded(setting)'
        )
