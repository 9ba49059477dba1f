"""Unusual samples, batches and workers that are few."""

import math
import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import OWN
from lotus.analysis.common.columns import batch_rows, float_column, int_column, ratio, total
from lotus.analysis.observations.looks import SHARED_LOCK
from lotus.analysis.observations.own_code import of_program
from lotus.analysis.samples.outlier_samples import costliest
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import CODE_NOT_WORKERS, NOTHING, Remedy, set_prefetch
from lotus.analysis.verdict.causes.cause_row import OF_LOST_STEPS, CauseRow, Charge, Evidence
from lotus.analysis.verdict.causes.making.component_looks import looks_within
from lotus.analysis.verdict.causes.making.prefetch import PREFETCH
from lotus.analysis.verdict.causes.making.waiting import (
    WAITING_FACTS,
    blocked_reason,
    look_evidence,
    mostly_blocked,
)
from lotus.analysis.verdict.loop_time.batch_making import ALONE, BY_CHANCE
from lotus.analysis.verdict.loop_time.ledger import Excess, Ledger
from lotus.common.numbers.array_types import Bools
from lotus.common.text.formatting import amount, duration, operation_name

_SPARE = 0.1  # of the workers' time: with less, no order of the batches makes them in time
_SAMPLE_FACTS = {
    "samples": "Number of slow samples.",
    "times_fetched": "Number of times that they were fetched.",
    "slowest_sample": "Index of the slowest sample; null: of a stream, whose samples have none.",
    "slowest_ns": "Its time, nanoseconds.",
    "typical_ns": "A usual sample's time, nanoseconds.",
    "blocked_share": (
        "Share of the time that fetches with them take beyond usual ones, 0 to 1, in which their "
        "process neither computed nor was ready to."
    ),
}
_TEMPORARY = re.compile(r"^(/var)?/tmp/|/tmp[a-z0-9_]{8}/")  # as Python's tempfile names them
# If at least so many samples, each fetched once, wait for something, and for times as unequal as
# this, the samples themselves are not slow.
_LEAST_UNEVEN, _UNEVEN = 8, 2.0
# Waits that last as long as somebody else holds something, whichever sample asks; and what helps.
_AWAITED = {
    "sleep": (
        "Its code sleeps now and then, as a retry loop does while a database or a file is locked, "
        "or a server refuses. Find out who holds it, and for how long: shorten that (small "
        "transactions), allow concurrent readers (SQLite: journal_mode=WAL), or read from a copy."
    ),
    SHARED_LOCK: (
        "Now and then its code waits for a lock that processes share: find out who holds it that "
        "long, and hold it for less time, or give each worker its own file or connection."
    ),
    "lock": "Now and then its code waits for another thread of its process: see what that thread "
    "does.",
}
_LEAST_BLOCKED = 0.6  # blocked_share: the slow samples wait, and do not compute
_COMPUTES = 0.2  # blocked_share: with less, they compute


def outlier_charge(row: CauseRow, excess: Excess, evidence: dict[str, float]) -> Charge:
    """Return the charge of a cause for its outliers."""
    return Charge(
        row.kind,
        row.title,
        excess.ns,
        evidence,
        excess.within,
        delay_ns=excess.without_core,
    )


def _sample_facts(ledger: Ledger, slow: Bools) -> dict[str, float]:
    samples = ledger.batch_making.outliers.samples
    duration_ns, typical = float_column(samples, "duration_ns"), float_column(samples, "typical_ns")
    worst = int(np.argmax(np.where(slow, duration_ns, -1.0)))
    index = int_column(samples, "sample")[costliest(ledger.batch_making.outliers, slow)]
    distinct = len(set(index.tolist())) if (index != -1).all() else len(index)
    slowest = int_column(samples, "sample")[worst]
    return {
        "samples": float(distinct),
        "times_fetched": float(len(index)),
        "slowest_sample": float(slowest) if slowest != -1 else math.nan,
        "slowest_ns": float(duration_ns[worst]),
        "typical_ns": float(typical[worst]),
        "blocked_share": _blocked_share(ledger, samples[slow]),
    }


def _blocked_share(ledger: Ledger, samples: pd.DataFrame) -> float:
    """Return the blocked share of what fetches with these samples took beyond usual ones.

    NaN: not measured.
    """
    batches = ledger.scope.batches
    rows = batch_rows(batches, samples, ("rank", "epoch", "batch"))
    slow = np.isin(np.arange(len(batches)), rows)
    fetch, delay = float_column(batches, "fetch_ns"), float_column(batches, "run_delay_ns")
    busy = np.fmax(float_column(batches, "cpu_ns"), float_column(batches, "process_cpu_ns"))
    blocked = np.maximum(fetch - busy - delay, 0.0)
    known = np.isfinite(blocked)
    slow, usual = slow & known, ~slow & known
    of_usual = [float(np.median(each[usual])) if usual.any() else 0.0 for each in (blocked, fetch)]
    beyond = [
        total(each[slow] - median) for each, median in zip((blocked, fetch), of_usual, strict=True)
    ]
    return min(max(ratio(*beyond), 0.0), 1.0)


def _is_waiting(charge: Charge) -> bool:
    return charge.evidence.get("blocked_share", math.nan) >= _LEAST_BLOCKED


def _waiting_words(charge: Charge) -> str:
    """Return what they do instead of computing; "" if they compute."""
    return (mostly_blocked(charge) or "waits") if _is_waiting(charge) else ""


def where_most(charge: Charge, circumstances: Circumstances) -> str:
    """Return the function or operation that most of it was in; "" if none is known."""
    if charge.within == OWN:
        return str(of_program(circumstances.hot)) if circumstances.hot else ""
    return operation_name(charge.within) if charge.within else ""


def _times_uneven(ledger: Ledger, slow: Bools) -> float:
    """Return the long times of these samples (0.9 quantile) over the short (0.1); NaN: few."""
    took = float_column(ledger.batch_making.outliers.samples, "duration_ns")[
        costliest(ledger.batch_making.outliers, slow)
    ]
    return float(ratio(*np.quantile(took, [0.9, 0.1]))) if len(took) >= _LEAST_UNEVEN else math.nan


def _slow_samples(ledger: Ledger) -> Iterable[Charge]:
    slow = ledger.batch_making.outliers.alone
    if not slow.any() or (ledger.batch_making.slow_every and ledger.better_prefetch.hides):
        return
    evidence = _sample_facts(ledger, slow)
    evidence["most_fetches"] = float(ledger.batch_making.outliers.fetches[slow].max())
    if ledger.better_prefetch.hides:
        evidence["prefetch_factor"] = float(ledger.better_prefetch.prefetch_factor)
        evidence["saved_share"] = ledger.better_prefetch.saved_share
    excess = ledger.take_excess(ALONE)
    looks = looks_within(ledger, excess.within)
    evidence |= look_evidence(looks)
    charge = outlier_charge(SLOW_SAMPLES, excess, evidence)
    uneven = _times_uneven(ledger, slow)
    awaits = _is_waiting(charge) and looks.reason in _AWAITED and evidence["most_fetches"] <= 1
    if awaits and uneven >= _UNEVEN:
        charge.evidence["uneven_times"] = uneven
        charge = replace(charge, kind=STALLS.kind, name=STALLS.title)
    yield charge


def _slow_samples_title(charge: Charge, circumstances: Circumstances) -> str:
    count, slowest = int(charge.evidence["samples"]), charge.evidence["slowest_sample"]
    text = f"{count} slow samples" if count > 1 else "one slow sample"
    if math.isfinite(slowest):  # samples of a stream have no index
        text += f", the slowest at index {slowest:.0f}" if count > 1 else f": index {slowest:.0f}"
    where, words = where_most(charge, circumstances), _waiting_words(charge)
    text += f", in {where}" if where else ""
    if words:
        text += f", which {words}, not computing" if where else ": waiting, not computing"
    return text


def _slow_samples_reason(evidence: Evidence) -> str:
    text = (
        f"The slowest took {duration(evidence['slowest_ns'])}, a typical sample of the same worker "
        f"{duration(evidence['typical_ns'])}; later batches wait for it."
    )
    if evidence["most_fetches"] <= 1:
        text += (
            " Each was fetched only once: a second epoch would tell slow samples from random "
            "stalls."
        )
    return text


def _against_slow_samples(charge: Charge, circumstances: Circumstances) -> Advice:
    slowest = charge.evidence.get("slowest_sample", math.nan)
    where = circumstances.paths.get(int(slowest)) if math.isfinite(slowest) else None
    text = f"Look at {where}{_kept(where)}. " if where else "Look at these samples. "
    if _is_waiting(charge):
        words = mostly_blocked(charge)
        done = f"Their code {words}" if words else "Their code waits"
        text += (
            f"{done}: find out for what (a lock, a server, a retry, storage), and give up sooner, "
            "or fetch it ahead of time"
        )
    else:
        text += "Reduce or re-encode them ahead of time"
    spare = circumstances.idle_share >= _SPARE
    if circumstances.workers > 1 and circumstances.in_order and spare:
        text += "; later batches wait behind them, which in_order=False (torch >= 2.6) avoids"
    if "prefetch_factor" in charge.evidence:
        text += (
            f"; or raise prefetch_factor from {circumstances.prefetch} to "
            f"{charge.evidence['prefetch_factor']:.0f}, which hides them"
        )
    hidden = hidden_by_prefetch(charge, circumstances)
    changed = hidden.or_code() if _is_waiting(charge) else hidden.with_changes({"data": "other"})
    return Advice(text + ".", changed)


def _kept(path: str) -> str:
    """Return a remark on a file in a temporary folder; "" for other files."""
    return " (in a temporary folder, which may be gone)" if _TEMPORARY.search(path) else ""


def hidden_by_prefetch(charge: Charge, circumstances: Circumstances) -> Remedy:
    """Return the remedy of the prefetch factor that hides them, if the evidence has one."""
    if "prefetch_factor" not in charge.evidence:
        return NOTHING
    return set_prefetch(circumstances, int(charge.evidence["prefetch_factor"]))


SLOW_SAMPLES = CauseRow(
    kind="slow-samples",
    title="a few slow samples",
    full_title=_slow_samples_title,
    charges=_slow_samples,
    facts=_SAMPLE_FACTS
    | {"most_fetches": "Number of fetches of the most fetched of them; 1: none twice."}
    | WAITING_FACTS
    | OF_LOST_STEPS
    | dict(PREFETCH.facts),
    reason=_slow_samples_reason,
    advice=_against_slow_samples,
)


def _stalls(ledger: Ledger) -> Iterable[Charge]:
    slow = ledger.batch_making.outliers.by_chance
    if not slow.any() or ledger.batch_making.stalls_held:
        return
    facts = _sample_facts(ledger, slow)
    if facts["blocked_share"] < _COMPUTES:
        return  # no storage, lock or network is to blame, but what computes
    excess = ledger.take_excess(BY_CHANCE)
    yield outlier_charge(STALLS, excess, facts | look_evidence(looks_within(ledger, excess.within)))


def _stalls_title(charge: Charge, circumstances: Circumstances) -> str:
    count = int(charge.evidence["times_fetched"])
    where, words = where_most(charge, circumstances), _waiting_words(charge)
    text = f"stalls: {count} samples were slow in one epoch, not in others"
    if count == 1:
        text = "a stall: one sample was slow in one epoch, not in others"
    if "uneven_times" in charge.evidence:
        text = f"stalls: {count} samples waited, some for far longer than others"
    return f"{text}, in {where}, which {words}, not computing" if where and words else text


def _stalls_reason(evidence: Evidence) -> str:
    return (
        f"The slowest took {duration(evidence['slowest_ns'])}, a typical one of its worker "
        f"{duration(evidence['typical_ns'])}; "
        + (
            "each was fetched only once, but waits this uneven point to what is waited for."
            if evidence.has("uneven_times")
            else "when fetched again, they were not slow."
        )
    )


def _against_stalls(charge: Charge, circumstances: Circumstances) -> Advice:
    # Workers that wait for what another one holds also hold it in turn: more workers wait longer.
    reason = blocked_reason(charge) if _is_waiting(charge) else ""
    if reason in _AWAITED:
        return Advice(f"No sample is to blame. {_AWAITED[reason]}", CODE_NOT_WORKERS)
    text = "The same samples were fast in other epochs, so no sample is to blame. "
    words = f" (their code {mostly_blocked(charge)})" if reason else ""
    text += f"Check what else the machine, its storage or its network was doing{words}."
    return Advice(text, CODE_NOT_WORKERS)


STALLS = CauseRow(
    kind="stalls",
    title="stalls of single samples",
    full_title=_stalls_title,
    charges=_stalls,
    facts=_SAMPLE_FACTS
    | {"uneven_times": "Time of the long ones over that of the short ones."}
    | WAITING_FACTS
    | OF_LOST_STEPS,
    reason=_stalls_reason,
    advice=_against_stalls,
)


def _slow_worker(ledger: Ledger) -> Iterable[Charge]:
    slow = ledger.batch_making.workers[ledger.batch_making.workers["slow"]].sort_values("times")
    if len(slow):
        facts = ("rank", "worker", "own_ns", "others_ns", "times")
        evidence = {name: float(slow.iloc[-1][name]) for name in facts}
        lag = ledger.batch_making.lag()
        ns = ledger.take(
            lambda rows: (ledger.making_waits[rows] - ledger.storage(rows)) * lag[rows, None]
        )
        yield Charge(SLOW_WORKER.kind, SLOW_WORKER.title, ns, evidence)


def _slow_worker_title(charge: Charge, circumstances: Circumstances) -> str:
    evidence = charge.evidence
    rank = f" of rank {int(evidence['rank'])}" if evidence["rank"] > 0 else ""
    which = f"worker {int(evidence['worker'])}{rank}"
    if _dealt_in_order(circumstances):
        return f"one worker's batches are slow, because of their order or of the worker: {which}"
    return f"one slow worker: {which}"


def _dealt_in_order(circumstances: Circumstances) -> bool:
    """Return True if a worker has the same samples in each epoch: these or it may be slow."""
    return circumstances.in_sequence and not circumstances.iterable


def _slow_worker_reason(evidence: Evidence) -> str:
    if evidence.has("own_making_ns"):  # sampled: single samples are not known
        return (
            f"Worker {evidence['worker']:.0f} made batches for "
            f"{duration(evidence['own_making_ns'])}, a usual one of the others for "
            f"{duration(evidence['others_making_ns'])}; in order, all make as many."
        )
    return (
        f"A typical sample takes {duration(evidence['own_ns'])} in worker "
        f"{evidence['worker']:.0f} and {duration(evidence['others_ns'])} in the others."
    )


def _against_slow_worker(charge: Charge, circumstances: Circumstances) -> Advice:
    times = amount(charge.evidence.get("times", math.nan))
    text = f"Its samples take {times} times as long as others. "
    if _dealt_in_order(circumstances):
        text += (
            "Without shuffling it gets the same batches in each epoch, one in "
            f"{circumstances.workers}: spread the slow samples over the workers, with "
            "shuffle=True or another order of the data. "
        )
    see = "If that changes nothing, check" if _dealt_in_order(circumstances) else "Check"
    return Advice(
        f"{text}{see} what only this worker does: its shard or files, worker_init_fn, CPU "
        "affinity, another process on its core. Batches are delivered in order, so all wait for it."
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
        "own_making_ns": "Its time in making batches while it was watched, nanoseconds.",
        "others_making_ns": "That of a usual one of the others, nanoseconds.",
    }
    | OF_LOST_STEPS,
    reason=_slow_worker_reason,
    advice=_against_slow_worker,
)
