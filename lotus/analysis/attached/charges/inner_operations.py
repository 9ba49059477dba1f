"""Finds the operation inside another one that takes most of its time, from frames."""

from collections import Counter

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.evidence.transform_classes import BASES, CONTAINERS
from lotus.analysis.attached.shares.loop_shares import LoopShares, Sampled
from lotus.format.stack_frames import bare_name, class_of

_MOST = 0.5  # of the stacks of the one around
_CALLS = ("__call__", "forward")


def inner_operations(seen: Sampled, shares: LoopShares) -> dict[str, str]:
    """Return for each operation the innermost one inside it that has most of its stacks.

    An inner operation is a call of another object: `__call__` or `forward` of another class.
    """
    samples = seen.samples
    mine = samples[(samples["phase"] == phases.OPERATION) & samples["loop"].isin((shares.loop, -1))]
    counts = mine.groupby("label").size().to_dict()
    names = dict(zip(mine["label"].tolist(), mine["name"].tolist(), strict=True))
    chains = seen.evidence.chains
    chains = chains[chains["label"].isin(counts)].sort_values(["label", "depth"])
    within: dict[str, Counter[str]] = {}
    depths: dict[tuple[str, str], int] = {}
    calls: dict[tuple[int, str], int] = {}  # the depth of each within
    rows = zip(chains["label"].tolist(), chains["depth"].tolist(), chains["function"], strict=True)
    for label, depth, function in rows:
        owner = _called_class(str(function))
        own = names[label].partition(" (")[0]  # without the class in which it was mostly seen
        if owner and owner != own and owner not in CONTAINERS | BASES:
            calls[int(label), owner] = int(depth)
    for (label, owner), depth in calls.items():
        name = names[label]
        within.setdefault(name, Counter())[owner] += counts[label]
        depths[name, owner] = max(depths.get((name, owner), 0), depth)
    wholes: Counter[str] = Counter()
    for label, count in counts.items():
        wholes[names[label]] += count
    result = {}
    for name, found in within.items():
        most = [owner for owner, count in found.items() if count > _MOST * wholes[name]]
        if most:
            result[name] = max(most, key=lambda owner: depths[name, owner])
    return result


def _called_class(function: str) -> str:
    """Return the class of an object that is called; "" for other functions."""
    return class_of(function) if bare_name(function) in _CALLS else ""
