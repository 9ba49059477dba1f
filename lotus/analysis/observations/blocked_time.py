"""What each operation, `next` and the training step were blocked in, and for how long."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import ratio
from lotus.analysis.common.scope import RunLike, Scope
from lotus.analysis.observations.looked_parts import MAKING, LookedPart, loop, making
from lotus.analysis.observations.looks import COMPUTING, NEXT, takes_others
from lotus.analysis.observations.places import BlockedPlace, most_frequent
from lotus.common.numbers.statistics import wilson

FEW, ELSEWHERE, MIXED = "few", "elsewhere", "mixed"  # why states, or their times, are not known
LEAST_LOOKS = 20
LEAST_SHARE = 0.05  # less is not worth a line
_WORTH = 0.5  # of a look, in looks that are independent of each other
_LARGE = 0.2  # of the time: what is not known of it is worth a line
COLUMNS = (
    *("part", "operation", "loaders", "looks", "missing", "reason", "awaits"),
    *("share", "low", "high", "time_share", "total_ns", "ns", "low_ns", "high_ns"),
    *("clock_share", "contradicted"),
    *("place", "file_system", "place_share"),
)
_TIMES = ("total_ns", "ns", "low_ns", "high_ns")


def blocked_time(run: RunLike, scope: Scope) -> pd.DataFrame:
    """Return what threads were found in, a row per operation and state; empty without looks.

    part               "making": of batches; "loop": that uses them
    operation          as in `Run.blocking`
    loaders            for so many loaders the threads worked; their time is taken together
    looks              observations of the operation
    missing            FEW: too few looks for `reason` and shares; ELSEWHERE: no looks at all, which
                       are at main threads, as other threads did it; MIXED: looks are of other code,
                       which ran after the operation, too, so `ns` is not known; "": nothing
    reason             as in `Run.blocking`; "": not known
    awaits             whether `next` waits in this state for workers, as it should
    share, low, high   of the looks, with its 95 % interval; NaN: not known
    time_share         of the operation in the time of its part, 0 to 1; NaN: not known
    total_ns           of the operation, all threads together; NaN: not known, as where only some
                       batches were recorded. That of `next` includes its end of the workers.
    ns, low_ns, high_ns   shares of that
    clock_share        for so much of its time it was blocked by CPU clocks (of the making: of all
                       its operations together), 0 to 1; NaN: not known
    contradicted       whether looks found another share, beyond chance and LEAST_SHARE
    place, file_system, place_share   where most of the looks that found this state found it, and
                       their share, as `BlockedPlace`; "", "" and NaN: not known

    The interval is Wilson's, of half as many looks. All of them would make it too narrow, as looks
    that follow each other often find the same call, and a run does not tell which did. Half of them
    is what fits where CPU clocks tell the share as well (tools/bench/results/accuracy.md). Where
    all cores are busy, looks find threads blocked too often (docs/limits.md): then clocks
    contradict them.
    """
    if not len(scope.blocking):
        return pd.DataFrame(columns=list(COLUMNS))
    rows = [row for part in (making(run, scope), loop(run, scope)) for row in _rows(part)]
    result = pd.DataFrame(rows, columns=list(COLUMNS))
    return result.assign(**dict.fromkeys(_TIMES, np.nan)) if scope.partial else result


def noticeable(blocked: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of states that are worth a line: blocked in LEAST_SHARE of the looks."""
    blocks = ~blocked["reason"].isin([COMPUTING, ""]) & ~blocked["awaits"].astype(bool)
    rows: pd.DataFrame = blocked[blocks & (blocked["share"] >= LEAST_SHARE)]
    return rows


def not_known(blocked: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of operations with much of the time whose states are not known."""
    took = blocked["total_ns"].fillna(np.inf)  # then by the shares alone
    large = (blocked["time_share"] >= _LARGE) & (took >= _LARGE * blocked["total_ns"].max())
    rows: pd.DataFrame = blocked[blocked["missing"].isin([FEW, ELSEWHERE]) & large]
    return rows


def _rows(part: LookedPart) -> Iterator[dict[str, object]]:
    everything = sum(sum(each.values()) for each in part.counts.values())
    for operation in _in_order(part):
        states, took = part.counts.get(operation, {}), part.times.get(operation, np.nan)
        looks, time_share = sum(states.values()), ratio(took, part.whole_ns)
        mixed = part.name == MAKING and takes_others(looks, everything, time_share)
        unknown = ELSEWHERE if part.elsewhere else FEW if looks < LEAST_LOOKS else ""
        row = {
            "part": part.name,
            "operation": operation,
            "loaders": part.loaders,
            "looks": 0 if part.elsewhere else looks,
            "missing": unknown or (MIXED if mixed else ""),
            "time_share": time_share,
            "total_ns": took,
            "clock_share": part.clocks.get(operation, np.nan),
            "contradicted": _is_contradicted(part, operation),
        }
        if unknown:
            yield row | {"reason": "", "awaits": False} | _at(None)
            continue
        known = np.nan if mixed else took
        for reason in sorted(states, key=lambda reason: -states[reason]):
            share = states[reason] / looks
            low, high = wilson(share, looks * _WORTH)
            yield (
                row
                | {
                    "reason": reason,
                    "awaits": operation == NEXT and reason in part.awaits,
                    "share": share,
                    "low": low,
                    "high": high,
                    "ns": share * known,
                    "low_ns": low * known,
                    "high_ns": high * known,
                }
                | _at(most_frequent(part.places, operation, reason, states[reason]))
            )


def _at(place: BlockedPlace | None) -> dict[str, object]:
    found = place or BlockedPlace("", "", "", np.nan)
    return {"place": found.name, "file_system": found.file_system, "place_share": found.share}


def _in_order(part: LookedPart) -> list[str]:
    """Return the operations that took time or were found, the longest first."""
    took = [name for name, ns in part.times.items() if ns > 0]
    return sorted(dict.fromkeys([*took, *part.counts]), key=lambda name: -part.times.get(name, 0.0))


def _is_contradicted(part: LookedPart, operation: str) -> bool:
    clock = part.clocks.get(operation, np.nan)
    found = list(part.counts.values()) if part.name == MAKING else [part.counts.get(operation, {})]
    looks = sum(sum(states.values()) for states in found)
    if part.elsewhere or looks < LEAST_LOOKS or np.isnan(clock):
        return False
    share = 1.0 - sum(states.get(COMPUTING, 0) for states in found) / looks
    low, high = wilson(share, looks * _WORTH)
    return not low <= clock <= high and abs(share - clock) >= LEAST_SHARE
