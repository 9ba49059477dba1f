"""The decision for or against a planned cache, from its times in training."""

from dataclasses import replace

from lotus.advise.caches.cache_plan import LEAST_SAVED, CachePlanning
from lotus.advise.caches.cache_timing import CacheTiming, Ratio
from lotus.common.text.formatting import duration, plural

# Share of a loop's time in waits for data, below which the step sets the pace.
_STEP_BINDS = 0.05


def with_timing(planning: CachePlanning, timing: CacheTiming) -> CachePlanning:
    """Return the choice with what was timed of it; none where it shows that it does not pay."""
    planning, epochs = replace(planning, timing=timing), planning.epochs
    what = planning.reason.removeprefix("Cache ")
    saving, plain, later = timing.saving(epochs), timing.plain_s, timing.later_s
    if saving is None or plain is None or later is None:
        reason = f"It is not known whether it pays to cache {what}: {timing.why_unknown()}"
        return replace(planning, reason=reason, is_unknown=True)
    measured = f"measured in {plural(len(timing.rounds), 'block')} each"
    saves = (
        f"it saves {_between(saving)} of the time of {plural(epochs, 'epoch')}, {measured}"
        if saving.mean >= 0
        else f"it adds {_between(Ratio(-saving.mean, -saving.high, -saving.low))} to the time "
        f"of {plural(epochs, 'epoch')}, {measured}"
    )
    if saving.low > 0 and saving.mean >= LEAST_SAVED:
        reason = (
            f"Cache {what}: an epoch takes {duration(later.mean * 1e9)} "
            f"({duration(max(later.low, 0.0) * 1e9)} to {duration(later.high * 1e9)}) instead of "
            f"{duration(plain.mean * 1e9)} from the second on, {measured}"
        )
        even = timing.break_even(epochs)
        if even is not None:
            reason += f"; it pays after {plural(even, 'epoch')}"
        return replace(planning, reason=reason)
    if saving.high >= LEAST_SAVED:
        reason = f"It is not known whether it pays to cache {what}: {saves}"
        more = "a larger --budget tells more"
        return replace(planning, reason=f"{reason}; {more}", is_unknown=True)
    why = f"caching {what} does not pay: "
    if timing.waiting < _STEP_BINDS:
        why = (
            f"the step binds, the program waits for data in {timing.waiting:.1%} of its time; "
            f"with {what}, "
        )
    return replace(planning, chosen=None, reason=f"Do not cache samples: {why}{saves}")


def _between(ratio: Ratio) -> str:
    return f"{ratio.mean:.1%} ({ratio.low:.1%} to {ratio.high:.1%})"
