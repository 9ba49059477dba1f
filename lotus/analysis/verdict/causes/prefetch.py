"""Batches of unequal cost, and too few of them made ahead."""

from collections.abc import Iterable

from lotus.analysis.common.columns import ratio, total
from lotus.analysis.replay.prefetch_replay import enough_prefetch
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence
from lotus.analysis.verdict.causes.circumstances import Circumstances
from lotus.analysis.verdict.causes.ledger import Ledger
from lotus.analysis.verdict.causes.remedy import set_prefetch
from lotus.common.formatting import plural, share, size

_LEAST_SAVED = 0.5  # of the waits
_LEAST_SHARE = 0.05  # of the loop


def _charges(ledger: Ledger) -> Iterable[Charge]:
    if ledger.use.full:  # what is made ahead would need a core that there is not
        return
    better = enough_prefetch(ledger.scope)
    worth = better.saved_ns >= _LEAST_SHARE * ledger.loop_ns
    if worth and better.saved_share >= _LEAST_SAVED:
        left = ledger.making.sum()
        part = min(ratio(better.saved_ns, total(left)), 1.0)
        evidence = {
            "prefetch_factor": float(better.prefetch_factor),
            "saved_share": better.saved_share,
        }
        yield Charge(PREFETCH.kind, PREFETCH.title, ledger.take(ledger.making * part), evidence)


def _title(charge: Charge, around: Circumstances) -> str:
    return f"costly batches come in bursts: a prefetch factor of {around.prefetch} is too small"


def _reason(evidence: Evidence) -> str:
    return (
        "The workers are idle between the bursts. Replayed with the measured times of each batch, "
        f"a prefetch factor of {evidence['prefetch_factor']:.0f} would save "
        f"{share(evidence['saved_share'])} of the waits."
    )


def _advice(charge: Charge, around: Circumstances) -> str:
    factor = int(charge.evidence["prefetch_factor"])
    held = factor * max(around.workers, 1)
    text = f"Raise prefetch_factor from {around.prefetch} to {factor}"
    if around.batch_bytes > 0:
        text += f": up to {plural(held, 'batch')} are held ({size(held * around.batch_bytes)})"
    if around.in_sequence:
        text += ". Or order the data so that costly samples do not come together: shuffle=True"
    return f"{text}."


PREFETCH = CauseRow(
    kind="prefetch",
    title="a prefetch factor too small for bursts of costly batches",
    full_title=_title,
    charges=_charges,
    facts={
        "prefetch_factor": "The prefetch factor that saves most of what more of it can.",
        "saved_share": "Share of the waits after the first batch that it would save, 0 to 1.",
    },
    reason=_reason,
    advice=_advice,
    remedy=lambda charge, around: set_prefetch(around, int(charge.evidence["prefetch_factor"])),
)
