"""Workers that read the same data, and workers that have none."""

from collections.abc import Iterable
from dataclasses import replace

from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import CODE_NOT_WORKERS, DATA
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import amount, plural


def _repeated(ledger: Ledger) -> Iterable[Charge]:
    """Charge the waits and training steps that are spent on samples that came before."""
    times = ledger.batch_making.shares.times_read
    if times > 1:
        again = 1.0 - 1.0 / times
        step = ledger.step_left_ns * again
        ledger.step_left_ns -= step
        ns = ledger.take_share(again) + step
        evidence = {"times_read": times}
        if ledger.batch_making.shares.whole_passes:
            evidence["whole_passes"] = float(ledger.scope.num_workers)
        yield Charge(SAMPLES_TWICE.kind, SAMPLES_TWICE.title, ns, evidence, step_ns=step)


def how_often(times: float, workers: int) -> str:
    """Return how often samples come, and what that says about how workers divide the data."""
    if times < workers:
        what = "workers read what others read as well"
        return f"about {times:.1f} times per epoch on average: {what}"
    return f"{amount(times)} times per epoch: each worker reads all of the data"


def _repeated_title(charge: Charge, circumstances: Circumstances) -> str:
    if "whole_passes" in charge.evidence:
        workers = plural(circumstances.workers, "worker")
        return f"each of the {workers} passes over all of the data: none asks which one it is"
    return f"samples come {how_often(charge.evidence['times_read'], circumstances.workers)}"


def _repeated_reason(evidence: Evidence) -> str:
    if evidence.has("whole_passes"):
        return (
            "All workers made the same number of samples, which are drawn at random, in each "
            f"epoch. So an epoch has {amount(evidence['whole_passes'])} times as many as with one "
            "worker. Nothing in them read torch.utils.data.get_worker_info().id, num_workers or "
            "seed."
        )
    return (
        "The workers' first batches are identical, or one had nearly only samples (where they are "
        "changed at random: labels in a row) that another one had, or an epoch has several times "
        "the data set's number of samples."
    )


def _against_repeated(charge: Charge, circumstances: Circumstances) -> Advice:
    again = "some of it" if circumstances.times_read < circumstances.workers else "everything"
    of_random = ", or make one n-th of the samples" if circumstances.shares.whole_passes else ""
    return Advice(
        "Divide the data among the workers: in __iter__, torch.utils.data.get_worker_info() gives "
        "each worker its id and how many there are. With n workers, each should read every n-th "
        f"sample or shard, starting at its id{of_random}. Until then, another worker would only "
        f"read {again} once more.",
        CODE_NOT_WORKERS,
    )


SAMPLES_TWICE = CauseRow(
    kind="samples-twice",
    title="samples that come several times an epoch",
    full_title=_repeated_title,
    charges=_repeated,
    facts={
        "times_read": "Number of times that an epoch has each sample, on average.",
        "whole_passes": (
            "Number of workers that each pass over all of the data, as their equal numbers of "
            "samples suggest."
        ),
    },
    reason=_repeated_reason,
    advice=_against_repeated,
)


def _starved(ledger: Ledger) -> Iterable[Charge]:
    if ledger.batch_making.shares.empty:
        yield from _unequal(ledger)


def _uneven(ledger: Ledger) -> Iterable[Charge]:
    if not ledger.batch_making.shares.empty:
        yield from _unequal(ledger)


def _unequal(ledger: Ledger) -> Iterable[Charge]:
    """Charge what would have been saved of the making if all workers had made equal parts."""
    shares = ledger.batch_making.shares
    if shares.lost:
        ns = ledger.take_share(shares.lost)
        evidence = {
            "workers_without_data": float(shares.empty),
            "workers": float(ledger.scope.num_workers),
            "largest_share": shares.largest,
        }
        yield Charge(STARVED.kind, STARVED.title, ns, evidence)


def _starved_title(charge: Charge, circumstances: Circumstances) -> str:
    empty = charge.evidence["workers_without_data"]
    workers = plural(circumstances.workers, "worker")
    if "largest_making_share" in charge.evidence:
        largest = charge.evidence["largest_making_share"]
        return (
            f"uneven data: one of the {workers} has more than the others, and makes batches for "
            f"{largest:.0%} of the time in which any are made"
        )
    if not empty:
        largest = charge.evidence["largest_share"]
        return f"uneven data: one of the {workers} makes {largest:.0%} of an epoch's samples"
    have = "has" if empty == 1 else "have"
    return f"{empty:.0f} of the {workers} {have} no data"


def _starved_reason(evidence: Evidence) -> str:
    if not evidence["workers_without_data"]:
        return "When the others have reached the end of their data, one worker makes batches alone."
    made = evidence["workers"] - evidence["workers_without_data"]
    return f"All batches came from {plural(made, 'worker')}; the others made none in the whole run."


def _against_starved(charge: Charge, circumstances: Circumstances) -> Advice:
    if not charge.evidence["workers_without_data"]:
        return Advice(
            "Divide the data evenly: use shards of equal size, or let each worker read every "
            "num_workers-th sample of each shard.",
            DATA.or_code(),
        )
    return Advice(
        "Split the data into at least as many shards as there are workers, or divide the samples "
        "of a shard among them. More workers will not help.",
        CODE_NOT_WORKERS.with_changes({"data": "other"}),
    )


STARVED = CauseRow(
    kind="starved-workers",
    title="workers without data, or with little",
    full_title=_starved_title,
    charges=_starved,
    facts={
        "workers_without_data": "Workers that made no batch while others made several.",
        "workers": "Workers of the loader.",
        "largest_share": "Share of the samples that one worker made, 0 to 1.",
        "largest_making_share": "Share of the making of batches that is one worker's, 0 to 1.",
    },
    reason=_starved_reason,
    advice=_against_starved,
)
# Of workers that all have data, slow samples or a slow worker may be why one makes fewer.
UNEVEN = replace(STARVED, charges=_uneven)
