"""Workers that draw the same random numbers: nothing waits, but the data are not as meant."""

from collections.abc import Iterable

from lotus.analysis.data.repeated_samples import shared_generators
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence, always
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import plain


def _charges(ledger: Ledger) -> Iterable[Charge]:
    for name, workers in shared_generators(ledger.scope).items():
        yield Charge(SAME_RANDOM.kind, name, 0.0, {"alike_workers": float(workers)})


def _title(charge: Charge, circumstances: Circumstances) -> str:
    workers = charge.evidence["alike_workers"]
    return f"{workers:.0f} workers draw the same random numbers (from {plain(charge.name)})"


def _reason(evidence: Evidence) -> str:
    return (
        f"{evidence['alike_workers']:.0f} workers started with the same random numbers: "
        "what one of them draws for a sample, the others draw again."
    )


SAME_RANDOM = CauseRow(
    kind="same-random",
    title="workers that draw the same random numbers",
    full_title=_title,
    charges=_charges,
    facts={"alike_workers": "Workers that began with the same state of a random generator."},
    reason=_reason,
    advice=always(
        "Seed the generator differently in each worker: with "
        "torch.utils.data.get_worker_info().seed, in worker_init_fn or where the data set first "
        "uses the generator."
    ),
    silent=True,
    is_grave=lambda charge: True,
)
