"""Full collections of Python's garbage collector in the making of batches, and what helps."""

from lotus.analysis.batches.collection_cost import collection_cost
from lotus.analysis.common.scope import Scope
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.causes.cause_row import Evidence
from lotus.common.text.formatting import amount, duration, share

_SHARE, _EACH, _COUNT = "collected_share", "collection_ns", "collections"
_MUCH = 0.1  # of the time of fetches: less is not told
GARBAGE_FACTS = {
    _SHARE: "Share of the fetches' time that full collections of garbage take, 0 to 1, estimated.",
    _EACH: (
        "Time of one, by how much longer fetches with more of them take, less their time without a "
        "core, nanoseconds."
    ),
    _COUNT: "Number of full collections in a fetch, on average.",
}


def of_collections(scope: Scope) -> dict[str, float]:
    """Return evidence on full collections; none if their cost does not show."""
    cost = collection_cost(scope)
    if cost is None:
        return {}
    return {_SHARE: cost.share, _EACH: cost.each_ns, _COUNT: cost.a_fetch}


def collections_reason(evidence: Evidence) -> str:
    """Return a sentence on full collections; "" if they take little."""
    if not evidence[_SHARE] >= _MUCH:
        return ""
    return (
        f"Python's garbage collector looked at all objects {amount(evidence[_COUNT])} times a "
        f"batch, for about {duration(evidence[_EACH])} each time."
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
