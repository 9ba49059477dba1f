"""Batches that are slow as a whole, or that cost more than the prefetch factor can hide."""

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import flag, float_column, int_column, total
from lotus.analysis.replay.prefetch_replay import COSTLY_TIMES, LEAST_SAVED, costly_batches
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import CODE, MORE_PREFETCH
from lotus.analysis.verdict.causes.cause_row import OF_LOST_STEPS, CauseRow, Charge, Evidence
from lotus.analysis.verdict.causes.making.outliers import (
    SLOW_SAMPLES,
    hidden_by_prefetch,
    outlier_charge,
    where_most,
)
from lotus.analysis.verdict.causes.making.prefetch import PREFETCH, comes_first, raised, saved_words
from lotus.analysis.verdict.loop_time.batch_making import TOGETHER
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.numbers.array_types import Bools
from lotus.common.text.formatting import duration, plural, share

_IDLE = 0.4  # of the workers' time: more batches ahead would hide some waits
# Of batches, and of their making: few that take most of it.
_FEW, _LEAST_FEW, _MOST_OF_MAKING = 0.25, 3, 0.5
_MOST_AGAIN = 0.5  # again_share: the samples are slow, not the moment


def _slow_batches(ledger: Ledger) -> Iterable[Charge]:
    together = ledger.batch_making.outliers.together
    if ledger.batch_making.stalls_held:
        return
    costly = _costly(ledger)
    if costly.any():
        fetch = ledger.batch_making.components.fetch
        worst = int(np.argmax(np.where(costly, fetch, -1.0)))
        batches = ledger.scope.batches
        evidence = {
            "batches": float(costly.sum()),
            "slowest_epoch": float(int_column(batches, "epoch")[worst]),
            "slowest_batch": float(int_column(batches, "batch")[worst]),
            "slowest_batch_ns": float(fetch[worst]),
            "usual_batch_ns": float(np.median(fetch[ledger.batch_making.known])),
            **_hiding(ledger, ledger.better_prefetch.helps),
        }
        yield outlier_charge(SLOW_BATCHES, ledger.take_beyond_usual(costly), evidence)
    elif together.any():
        evidence = _together(ledger, together) | _hiding(ledger, ledger.better_prefetch.hides)
        yield outlier_charge(SLOW_BATCHES, ledger.take_excess(TOGETHER), evidence)


def _hiding(ledger: Ledger, worth: bool) -> dict[str, float]:
    """Return the prefetch factor that hides them, as evidence; empty if that is not `worth` it."""
    better = ledger.better_prefetch
    if not worth:
        return {}
    return {
        "prefetch_factor": float(better.prefetch_factor),
        "saved_share": better.saved_share,
    }


def _costly(ledger: Ledger) -> Bools:
    """Return which batches (n,) cost more than others, if a higher prefetch factor hides that.

    Also if few of them take most of the making, where samples have no times of their own. None of
    them, if single samples or the prefetch factor are to blame.
    """
    none = np.zeros(len(ledger.scope.batches), np.bool_)
    if comes_first(ledger) or ledger.batch_making.outliers.alone.any():
        return none
    fetch, known = ledger.batch_making.components.fetch, ledger.batch_making.known
    usual = float(np.median(fetch[known])) if known.any() else math.inf
    # A batch may also be late because its worker could not send it.
    costly = costly_batches(ledger.scope.batches) & known & (fetch > COSTLY_TIMES * usual)
    return costly if ledger.better_prefetch.hides or _take_most(ledger, costly) else none


def _take_most(ledger: Ledger, costly: Bools) -> bool:
    """Return True if these batches (n,), made all at once, are few and take most of the making."""
    fetch, known = ledger.batch_making.components.fetch, ledger.batch_making.known
    few = _LEAST_FEW <= costly.sum() <= _FEW * known.sum()
    if not few or not all(flag(each, "many").all() for each in ledger.scope.fetched.times()):
        return False
    own = fetch * ledger.batch_making.own_part
    beyond = own[costly] - float(np.median(own[known]))
    return total(beyond) >= _MOST_OF_MAKING * total(own[known])


def _together(ledger: Ledger, together: Bools) -> dict[str, float]:
    samples = ledger.batch_making.outliers.samples
    keys = {name: int_column(samples, name)[together] for name in ("rank", "epoch", "batch")}
    took = {
        "took": float_column(samples, "duration_ns")[together],
        "usual": float_column(samples, "typical_ns")[together],
    }
    each = pd.DataFrame(keys | took).groupby(list(keys), as_index=False).median()
    worst = each.iloc[int((each["took"] / each["usual"]).to_numpy().argmax())]
    return {
        "batches": float(len(each)),
        "slowest_epoch": float(worst["epoch"]),
        "slowest_batch": float(worst["batch"]),
        "slowest_sample_ns": float(worst["took"]),
        "typical_ns": float(worst["usual"]),
        "again_share": _again_share(samples[together], ledger.scope.epoch_count),
    }


def _again_share(samples: pd.DataFrame, epochs: int) -> float:
    """Return the share of these samples, by index, that are slow in most epochs, at least two."""
    known = pd.DataFrame({name: int_column(samples, name) for name in ("sample", "epoch")})
    known = known[known["sample"] >= 0].drop_duplicates()
    if not len(known):
        return 0.0
    counts = known["sample"].value_counts().to_numpy()
    return float(((counts > 1) & (counts > epochs / 2)).mean())


def _come_again(charge: Charge) -> bool:
    """Return True if the samples themselves are to blame: they are slow each time."""
    return charge.evidence.get("again_share", 0.0) >= _MOST_AGAIN


def _slow_batches_title(charge: Charge, circumstances: Circumstances) -> str:
    evidence = charge.evidence
    if "lone_share" in evidence:  # sampled: single batches are not known
        return "batches of unequal cost: some take far longer than the others"
    count = int(evidence["batches"])
    where = f"{int(evidence['slowest_epoch'])}/{int(evidence['slowest_batch'])}"
    if "usual_batch_ns" in evidence:
        within = where_most(charge, circumstances)
        text = f"{plural(count, 'batch')} that cost far more than the others"
        return f"{text}, in {within}" if within else f"{text}, such as {where} (epoch/batch)"
    if count == 1:
        return f"one batch that was slow as a whole: {where} (epoch/batch)"
    if _come_again(charge):
        return f"{count} batches of samples that are slow each time, such as {where} (epoch/batch)"
    return f"{count} batches that were slow as a whole, the slowest {where} (epoch/batch)"


def _ahead(charge: Charge) -> str:
    idle = charge.evidence["idle_share"]
    if idle < _IDLE:
        return ""
    return (
        f" The workers have nothing to do for {share(idle)} of their time: a higher "
        "prefetch_factor (2, if it was not set), such as 8, lets the others go on, but takes "
        "memory."
    )


def _in_own_code(circumstances: Circumstances) -> str:
    hot = circumstances.hot
    return f" {hot[-1].share:.0%} of the data set's samples were in {hot[-1]}." if hot else ""


def _slow_batches_reason(evidence: Evidence) -> str:
    if evidence.has("lone_share"):
        return (
            f"In {share(evidence['lone_share'])} of the waits one worker made a batch, each in its "
            "turn, while others had nothing to do: batches are delivered in order, so all wait for "
            "a slow one."
        )
    if evidence.has("usual_batch_ns"):
        slowest = f"{evidence['slowest_epoch']:.0f}/{evidence['slowest_batch']:.0f}"
        text = (
            f"The slowest, {slowest} (epoch/batch), took {duration(evidence['slowest_batch_ns'])}, "
            f"a usual one {duration(evidence['usual_batch_ns'])}."
        )
        return f"{text} {saved_words(evidence)}" if evidence.has("prefetch_factor") else text
    return (
        f"In the slowest, a typical sample took {duration(evidence['slowest_sample_ns'])}; "
        f"otherwise that worker takes {duration(evidence['typical_ns'])}."
    )


def _against_slow_batches(charge: Charge, circumstances: Circumstances) -> Advice:
    if "lone_share" in charge.evidence:
        ahead = _ahead(charge)
        return Advice(
            "Find the slow samples with lotus trace: it tells which they are, and whether they are "
            "slow each time. Reduce or re-encode them ahead of time, or give each batch its part "
            f"of them.{ahead}{_in_own_code(circumstances)}",
            MORE_PREFETCH.or_code() if ahead else CODE,
        )
    hidden = ""
    if "prefetch_factor" in charge.evidence:
        what = "hides" if charge.evidence["saved_share"] >= LEAST_SAVED else "hides a part of"
        hidden = f"{raised(charge, circumstances)}, which {what} them. "
    return Advice(
        f"{hidden}{_against_their_cost(charge, circumstances)}{_in_own_code(circumstances)}",
        hidden_by_prefetch(charge, circumstances).or_code(
            circumstances.hot[-1] if circumstances.hot else ""
        ),
    )


def _against_their_cost(charge: Charge, circumstances: Circumstances) -> str:
    if charge.evidence.keys() & {"prefetch_factor", "usual_batch_ns"}:
        start = "Or make" if "prefetch_factor" in charge.evidence else "Make"
        return (
            f"{start} them cheaper: see what they have in common, and do it once, ahead of time, "
            "or spread it over the other batches."
        )
    if _come_again(charge):
        return (
            "The same samples were slow in each epoch, so it is they: see what they have in common "
            "(length, size, file). Reduce or re-encode them ahead of time, or mix them with others "
            "in a batch."
        )
    if circumstances.epochs < 2:
        return (
            "All their samples were slow at once: either the machine or its storage was doing "
            "something else then, or these batches hold what takes long. Record a second epoch: "
            "samples that are slow again are themselves the cause."
        )
    return (
        "All their samples were slow at once, so no sample is to blame. Check what else the "
        "machine or its storage was doing, and record again: investigate only what recurs."
    )


SLOW_BATCHES = CauseRow(
    kind="slow-batches",
    title="batches that were slow as a whole",
    full_title=_slow_batches_title,
    charges=_slow_batches,
    facts={
        "batches": "Number of batches that were slow as a whole.",
        "slowest_epoch": "Epoch of the slowest batch.",
        "slowest_batch": "Number of the slowest batch.",
        "slowest_sample_ns": "A typical sample's time in it, nanoseconds.",
        "typical_ns": SLOW_SAMPLES.facts["typical_ns"],
        "idle_share": "Share of the workers' time in which they had nothing to do, 0 to 1.",
        "lone_share": "Share of the waits in which one of several workers made a batch, 0 to 1.",
        "again_share": "Share of their samples that are slow in most epochs, at least two, 0 to 1.",
        "slowest_batch_ns": "Making of the slowest batch, nanoseconds.",
        "usual_batch_ns": "The same of a usual batch, nanoseconds.",
    }
    | {name: PREFETCH.facts[name] for name in ("prefetch_factor", "saved_share")}
    | OF_LOST_STEPS,
    reason=_slow_batches_reason,
    advice=_against_slow_batches,
)
