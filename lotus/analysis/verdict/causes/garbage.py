"""Full collections of Python's garbage collector in a part of a loop, and what ends them."""

from dataclasses import dataclass

from lotus.analysis.batches.collection_cost import CollectionCost
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.causes.cause_row import Evidence
from lotus.common.text.formatting import amount, duration, share

_SHARE, _EACH, _COUNT = "collected_share", "collection_ns", "collections"
_MUCH, _MOST = 0.1, 0.5  # of the time of the work: less is not told; more is in a title
_LONGEST_NS = 5e8  # of a full collection, some 200 ms where torch is imported
GARBAGE_FACTS = {
    _SHARE: (
        "Share of the time that full collections of garbage take, 0 to 1, estimated: of fetches, "
        "of training steps, or of the main process's CPU time in `next`."
    ),
    _EACH: (
        "Time of one, by how much longer fetches, steps or `next` with more of them take, less "
        "their time without a core, nanoseconds."
    ),
    _COUNT: "Number of full collections in a fetch, step or `next`, on average.",
}


@dataclass(frozen=True)
class Part:
    """The part of a loop that has collections, as words: its `unit`, and `when` they take time."""

    unit: str
    when: str
    of_workers: bool = False


MAKING = Part("batch", "in which batches are made", of_workers=True)
RECEIVING = Part("batch", "that the main process computes in next()")
STEPS = Part("step", "of training steps")


def of_collections(cost: CollectionCost | None) -> dict[str, float]:
    """Return evidence on full collections; none if their cost does not show."""
    return {_SHARE: cost.share, _EACH: cost.each_ns, _COUNT: cost.count} if cost else {}


def collections_reason(evidence: Evidence, part: Part) -> str:
    """Return a sentence on full collections; "" if they take little."""
    if not evidence[_SHARE] >= _MUCH:
        return ""
    return (
        f"Python's garbage collector looked at all objects {amount(evidence[_COUNT])} times a "
        f"{part.unit}, for about {duration(evidence[_EACH])} each time."
    )


def are_most(evidence: Evidence) -> bool:
    """Return True if full collections take most of the time."""
    return evidence[_SHARE] >= _MOST and are_usual(evidence)


def are_usual(evidence: Evidence) -> bool:
    """Return True if a full collection takes no longer than one does.

    Else something else is done along with them.
    """
    return evidence[_EACH] <= _LONGEST_NS


def against_collections(evidence: Evidence, part: Part, circumstances: Circumstances) -> str:
    """Return advice against full collections, with a space after it; "" if they take little."""
    if not evidence[_SHARE] >= _MUCH:
        return ""
    in_workers = part.of_workers and circumstances.workers
    where = "in worker_init_fn" if in_workers else "before the loop"
    return (
        "Python's garbage collector, which looks at every object of the process, takes about "
        f"{share(evidence[_SHARE])} of the time {part.when}: call gc.disable() {where}, and "
        "gc.collect() once an epoch if memory grows, or make fewer Python objects. "
    )
