"""Results that notebooks request repeatedly, computed once per object."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from lotus.analysis.counters.function_profile import MapSummary, summarise_map
from lotus.analysis.summary import Summary, summarise

if TYPE_CHECKING:
    from lotus.sweep.sweep_record import Sweep
    from lotus.sweep.sweep_summary import SweepSummary

Made = TypeVar("Made")
_made: "WeakKeyDictionary[object, dict[str, Any]]" = WeakKeyDictionary()


def _once(of: object, name: str, make: Callable[[], Made]) -> Made:
    try:
        results = _made.setdefault(of, {})
    except TypeError:  # what is no Run, only like one
        return make()
    if name not in results:
        results[name] = make()
    result: Made = results[name]
    return result


def summary(run: Any) -> Summary:
    """Return `lotus.analysis.summary.summarise` of a run."""
    return _once(run, "summary", lambda: summarise(run))


def measured(run: Any) -> MapSummary:
    """Return `lotus.analysis.counters.function_profile.summarise_map`. Raises LotusError if samples
    cannot be read.
    """

    def make() -> MapSummary:
        from lotus.joining import sample_join

        return summarise_map(run, sample_join.map_if_sampled(run))

    return _once(run, "measured", make)


def swept(sweep: "Sweep") -> "SweepSummary":
    """Return `lotus.sweep.sweep_summary.summarise` of a sweep."""
    from lotus.sweep import sweep_summary as analysis

    return _once(sweep, "swept", lambda: analysis.summarise(sweep))
