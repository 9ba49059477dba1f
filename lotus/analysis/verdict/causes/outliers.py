"""What is out of the ordinary: a few samples, a few batches, one worker."""

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import Bools, integer, number
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence, fixed
from lotus.analysis.verdict.causes.circumstances import Circumstances
from lotus.analysis.verdict.causes.ledger import Ledger
from lotus.common.formatting import duration

# The slow samples that are counted are those that make up this share of what all outliers cost.
_MOST_OF_EXCESS = 0.9
_SAMPLE_FACTS = {
    "samples": "How many samples are slow.",
    "times_fetched": "How often they were fetched.",
    "slowest_sample": "Index of the slowest sample.",
    "slowest_ns": "Its time, nanoseconds.",
    "typical_ns": "A usual sample's time, nanoseconds.",
}


def _sample_facts(ledger: Ledger, slow: Bools) -> dict[str, float]:
    samples, typical = ledger.scope.samples, ledger.outliers.typical_ns
    duration_ns = number(samples, "duration_ns")
    worst = int(np.argmax(np.where(slow, duration_ns, -1.0)))
    excess = np.where(slow, duration_ns - typical, 0.0)
    by_excess = np.argsort(-excess, kind="stable")
    most = np.searchsorted(np.cumsum(excess[by_excess]), _MOST_OF_EXCESS * excess.sum())
    index = integer(samples, "sample")[by_excess[: most + 1]]
    distinct = len(set(index.tolist())) if (index != -1).all() else len(index)
    return {
        "samples": float(distinct),
        "times_fetched": float(len(index)),
        "slowest_sample": float(integer(samples, "sample")[worst]),
        "slowest_ns": float(duration_ns[worst]),
        "typical_ns": float(typical[worst]),
    }


def _slow_samples(ledger: Ledger) -> Iterable[Charge]:
    slow = ledger.outliers.alone
    if slow.any():
        evidence = _sample_facts(ledger, slow)
        evidence["most_fetches"] = float(ledger.outliers.fetches[slow].max())
        yield Charge(SLOW_SAMPLES.kind, SLOW_SAMPLES.title, ledger.take_excess(slow), evidence)


def _slow_samples_title(charge: Charge, around: Circumstances) -> str:
    count, slowest = (int(charge.evidence[name]) for name in ("samples", "slowest_sample"))
    if count == 1:
        return f"one slow sample: index {slowest}"
    return f"{count} slow samples, the slowest at index {slowest}"


def _slow_samples_reason(evidence: Evidence) -> str:
    text = (
        f"The slowest took {duration(evidence['slowest_ns'])}, a typical one of its worker "
        f"{duration(evidence['typical_ns'])}; the batches after it wait their turn."
    )
    if evidence["most_fetches"] <= 1:
        text += (
            " Each was fetched once: one epoch cannot tell a slow sample from a chance stall, a "
            "second one can."
        )
    return text


def _against_slow_samples(charge: Charge, around: Circumstances) -> str:
    where = around.paths.get(int(charge.evidence.get("slowest_sample", -1)))
    text = f"Look at {where}. " if where else "Look at these samples. "
    text += "Reduce or re-encode them ahead of time"
    if around.workers > 1 and around.in_order:
        text += (
            "; in-order batches wait behind them: in_order=False (torch >= 2.6) or a larger "
            "prefetch_factor hides them"
        )
    return text + "."


SLOW_SAMPLES = CauseRow(
    kind="slow-samples",
    title="a few slow samples",
    full_title=_slow_samples_title,
    charges=_slow_samples,
    facts=_SAMPLE_FACTS
    | {"most_fetches": "How often the most fetched of them was fetched; 1: none twice."},
    reason=_slow_samples_reason,
    advice=_against_slow_samples,
)


def _stalls(ledger: Ledger) -> Iterable[Charge]:
    slow = ledger.outliers.by_chance
    if slow.any():
        ns = ledger.take_excess(slow)
        yield Charge(STALLS.kind, STALLS.title, ns, _sample_facts(ledger, slow))


def _stalls_title(charge: Charge, around: Circumstances) -> str:
    count = int(charge.evidence["times_fetched"])
    if count == 1:
        return "a stall: one sample was slow in one epoch, not in others"
    return f"stalls: {count} samples were slow in one epoch, not in others"


def _stalls_reason(evidence: Evidence) -> str:
    return (
        f"The slowest took {duration(evidence['slowest_ns'])}, a typical one of its worker "
        f"{duration(evidence['typical_ns'])}; fetched again they were not slow."
    )


STALLS = CauseRow(
    kind="stalls",
    title="stalls of single samples",
    full_title=_stalls_title,
    charges=_stalls,
    facts=_SAMPLE_FACTS,
    reason=_stalls_reason,
    advice=fixed(
        "The same samples were quick in other epochs: no sample is to blame. See what else the "
        "machine, its storage or its network did then."
    ),
)


def _slow_batches(ledger: Ledger) -> Iterable[Charge]:
    together = ledger.outliers.together
    if not together.any():
        return
    samples = ledger.scope.samples
    keys = {name: integer(samples, name)[together] for name in ("rank", "epoch", "batch")}
    took = {
        "took": number(samples, "duration_ns")[together],
        "usual": ledger.outliers.typical_ns[together],
    }
    each = pd.DataFrame(keys | took).groupby(list(keys), as_index=False).median()
    worst = each.iloc[int((each["took"] / each["usual"]).to_numpy().argmax())]
    evidence = {
        "batches": float(len(each)),
        "slowest_epoch": float(worst["epoch"]),
        "slowest_batch": float(worst["batch"]),
        "slowest_sample_ns": float(worst["took"]),
        "typical_ns": float(worst["usual"]),
    }
    yield Charge(SLOW_BATCHES.kind, SLOW_BATCHES.title, ledger.take_excess(together), evidence)


def _slow_batches_title(charge: Charge, around: Circumstances) -> str:
    evidence = charge.evidence
    count = int(evidence["batches"])
    where = f"{int(evidence['slowest_epoch'])}/{int(evidence['slowest_batch'])}"
    if count == 1:
        return f"one batch that was slow as a whole: {where} (epoch/batch)"
    return f"{count} batches that were slow as a whole, the slowest {where} (epoch/batch)"


def _slow_batches_reason(evidence: Evidence) -> str:
    return (
        f"A typical sample of the slowest took {duration(evidence['slowest_sample_ns'])}, one "
        f"of its worker otherwise {duration(evidence['typical_ns'])}."
    )


SLOW_BATCHES = CauseRow(
    kind="slow-batches",
    title="batches that were slow as a whole",
    full_title=_slow_batches_title,
    charges=_slow_batches,
    facts={
        "batches": "How many batches were slow as a whole.",
        "slowest_epoch": "Epoch of the slowest batch.",
        "slowest_batch": "Number of the slowest batch.",
        "slowest_sample_ns": "A typical sample's time in it, nanoseconds.",
        "typical_ns": _SAMPLE_FACTS["typical_ns"],
    },
    reason=_slow_batches_reason,
    advice=fixed(
        "All their samples were slow at once: no sample is to blame. See what else the machine "
        "or its storage did then, and record again: what comes back is worth a search."
    ),
)


def _slow_worker(ledger: Ledger) -> Iterable[Charge]:
    slow = ledger.workers[ledger.workers["slow"]].sort_values("times")
    if len(slow):
        facts = ("rank", "worker", "own_ns", "others_ns", "times")
        evidence = {name: float(slow.iloc[-1][name]) for name in facts}
        ns = ledger.take((ledger.making - ledger.storage) * ledger.lag()[:, None])
        yield Charge(SLOW_WORKER.kind, SLOW_WORKER.title, ns, evidence)


def _slow_worker_title(charge: Charge, around: Circumstances) -> str:
    evidence = charge.evidence
    rank = f" of rank {int(evidence['rank'])}" if evidence["rank"] > 0 else ""
    return f"one slow worker: worker {int(evidence['worker'])}{rank}"


def _slow_worker_reason(evidence: Evidence) -> str:
    return (
        f"A typical sample takes {duration(evidence['own_ns'])} in worker "
        f"{evidence['worker']:.0f} and {duration(evidence['others_ns'])} in the others."
    )


def _against_slow_worker(charge: Charge, around: Circumstances) -> str:
    return (
        f"Its samples take {charge.evidence.get('times', math.nan):.1f} times the others'. See "
        "what only this worker does: its shard or files, worker_init_fn, CPU affinity, a neighbour "
        "on its core. Batches come back in order, so all wait for it."
    )


SLOW_WORKER = CauseRow(
    kind="slow-worker",
    title="one slow worker",
    full_title=_slow_worker_title,
    charges=_slow_worker,
    facts={
        "rank": "Rank of the slowest worker.",
        "worker": "Number of the slowest worker.",
        "own_ns": "Its typical time a sample, nanoseconds.",
        "others_ns": "The other workers' typical time a sample, nanoseconds.",
        "times": "The one over the other.",
    },
    reason=_slow_worker_reason,
    advice=_against_slow_worker,
)
