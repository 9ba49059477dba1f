"""Full collections of Python's garbage collector in the making of batches, and what helps."""

from lotus.analysis.batches.collection_cost import collection_cost
from lotus.analysis.common.scope import Scope
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.causes.cause_row import Evidence
from lotus.common.text.formatting import duration, share

_SHARE, _WITH, _WITHOUT = "collected_share", "collected_fetch_ns", "uncollected_fetch_ns"
_MUCH = 0.1  # of the time of fetches: less is not told
GARBAGE_FACTS = {
    _SHARE: (
        "Share of the fetches' time that full collections of garbage take, 0 to 1: what fetches "
        "with one take beyond others."
    ),
    _WITH: (
        "Median time of a fetch with a full collection, less its time without a core, nanoseconds."
    ),
    _WITHOUT: "The same of a fetch without one, nanoseconds.",
}


def of_collections(scope: Scope) -> dict[str, float]:
    """Return evidence on full collections; none if their cost does not show."""
    cost = collection_cost(scope)
    if cost is None:
        return {}
    return {_SHARE: cost.share, _WITH: cost.with_ns, _WITHOUT: cost.without_ns}


def collections_reason(evidence: Evidence) -> str:
    """Return a sentence on full collections; "" if they take little."""
    if not evidence[_SHARE] >= _MUCH:
        return ""
    return (
        f"Where Python's garbage collector looked at all objects, making a batch took "
        f"{duration(evidence[_WITH])}, else {duration(evidence[_WITHOUT])}."
    )


def against_collections(evidence: Evidence, circumstances: Circumstances) -> str:
    """Return advice against full collections, with a space after it; "" if they take little."""
    if not evidence[_SHARE] >= _MUCH:
        return ""
    where = "in worker_init_fn" if circumstances.workers else "before the loop"
    return (
        "Python's garbage collector, which looks at every object of the process, takes about "
        f"{share(evidence[_SHARE])} of the time in which batches are made: call gc.disable() "
        f"{where}, and gc.collect() once an epoch if memory grows, or make fewer Python objects. "
    )
