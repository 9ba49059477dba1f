"""Snapshots of a loader's state, which torchdata's StatefulDataLoader takes while it goes on."""

from collections.abc import Iterable

import numpy as np

from lotus.analysis.common.columns import float_column, mean, ratio, total
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import duration, share


def _snapshots(ledger: Ledger) -> Iterable[Charge]:
    in_workers = float_column(ledger.scope.batches, "snapshot_ns")
    in_main = float_column(ledger.scope.waits, "snapshot_ns")
    if not (total(in_workers) > 0 or total(in_main) > 0):
        return
    ns = ledger.take_handover(total(in_main))
    ns += ledger.take_component(ledger.batch_making.components.snapshot)
    evidence = {
        "mean_worker_snapshot_ns": mean(np.where(in_workers > 0, in_workers, np.nan)),
        "mean_main_snapshot_ns": mean(np.where(in_main > 0, in_main, np.nan)),
        "snapshot_making_share": ratio(
            total(in_workers), total(ledger.batch_making.components.making)
        ),
    }
    yield Charge(SNAPSHOTS.kind, SNAPSHOTS.title, ns, evidence)


def _reason(evidence: Evidence) -> str:
    parts = (("mean_worker_snapshot_ns", "in a worker"), ("mean_main_snapshot_ns", "in next"))
    took = [f"{duration(evidence[name])} {where}" for name, where in parts if evidence.has(name)]
    sentences = [f"A snapshot takes {' and '.join(took)}."] if took else []
    if evidence["snapshot_making_share"] > 0:
        part = share(evidence["snapshot_making_share"])
        sentences.append(f"Snapshots take {part} of the time in which batches are made.")
    return " ".join(sentences)


def _advice(charge: Charge, circumstances: Circumstances) -> Advice:
    return Advice(
        "Take snapshots less often: raise snapshot_every_n_steps of the StatefulDataLoader. A "
        "loader that resumes from a state then fetches up to that many batches again. Or leave "
        "what does not change out of the data set's state_dict()."
    )


SNAPSHOTS = CauseRow(
    kind="snapshots",
    title="snapshots of the loader's state (StatefulDataLoader)",
    charges=_snapshots,
    facts={
        "mean_worker_snapshot_ns": "The worker's part of a snapshot, nanoseconds.",
        "mean_main_snapshot_ns": "Of snapshots in the main process, of a next, nanoseconds.",
        "snapshot_making_share": "Share of the workers' making of batches, 0 to 1.",
    },
    reason=_reason,
    advice=_advice,
)
