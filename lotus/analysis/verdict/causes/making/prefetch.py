"""Batches or training steps of unequal length, and too few batches made ahead."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import MORE_PREFETCH, set_prefetch
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import plural, share, size
from lotus.common.torch_defaults import TORCH_PREFETCH


def comes_first(ledger: Ledger) -> bool:
    """Return True if the prefetch factor is to blame, and not the few batches that cost more.

    It is if it is lower than torch's default, or if steps are long, or samples are slow at regular
    intervals.
    """
    better = ledger.better_prefetch
    low = ledger.scope.prefetch_factor < TORCH_PREFETCH
    return better.hides and (low or better.long_steps > 0 or ledger.batch_making.slow_every > 0)


def _charges(ledger: Ledger) -> Iterable[Charge]:
    if comes_first(ledger):
        yield _charge(ledger)


def _charges_of_rest(ledger: Ledger) -> Iterable[Charge]:
    """Charge it what slow samples and slow batches have left."""
    if ledger.better_prefetch.hides and not comes_first(ledger):
        yield _charge(ledger)


def _charge(ledger: Ledger) -> Charge:
    better = ledger.better_prefetch
    # It saves waits for slow samples as well, which are charged to them.
    making_ns = ledger.all_making_ns  # 0.0 where batches were waited for only as they were sent
    part = min(better.saved_ns / making_ns, 1.0) if making_ns > 0 else 0.0
    evidence = {
        "prefetch_factor": float(better.prefetch_factor),
        "saved_share": better.saved_share,
        "slow_every": float(ledger.batch_making.slow_every or math.nan),
        "long_steps": float(better.long_steps or math.nan),
    }
    return Charge(PREFETCH.kind, PREFETCH.title, ledger.take_share_with_core(part), evidence)


def _is_sampled(evidence: Mapping[str, float]) -> bool:
    """Return True for a sampled program, of which batches and the factor are not known."""
    return "all_making_share" in evidence


def _title(charge: Charge, circumstances: Circumstances) -> str:
    if _is_sampled(charge.evidence):
        return "some training steps are long, and too few batches are made ahead meanwhile"
    what = "costly batches come in bursts"
    if charge.evidence["long_steps"] > 0:
        count = charge.evidence["long_steps"]
        what = f"{count:,.0f} training steps are far longer than the others"
    if charge.evidence["slow_every"] > 0:
        what = f"one in {charge.evidence['slow_every']:,.0f} samples is slow, at regular intervals"
    return f"{what}: a prefetch factor of {circumstances.prefetch} is too small"


def _reason(evidence: Evidence) -> str:
    if evidence.has("all_making_share"):
        return (
            f"The workers have nothing to do for {share(evidence['idle_share'])} of their time, "
            "nearly all of it during training steps, and yet batches are waited for, while all "
            f"workers make some ({share(evidence['all_making_share'])} of these waits)."
        )
    idle = "during the long steps" if evidence["long_steps"] > 0 else "between the bursts"
    return f"The workers are idle {idle}. {saved_words(evidence)}"


def saved_words(evidence: Evidence) -> str:
    """Return a sentence on what the prefetch factor that was found saves."""
    return (
        "In a replay with the measured times of each batch, a prefetch factor of "
        f"{evidence['prefetch_factor']:.0f} would save {share(evidence['saved_share'])} of the "
        "waits."
    )


def _advice(charge: Charge, circumstances: Circumstances) -> Advice:
    if _is_sampled(charge.evidence):
        return Advice(
            "Try a higher prefetch_factor (2, if it was not set), such as 8: more batches are then "
            "ready after a long step, and take memory. lotus trace measures which is enough. Or "
            "spread what makes these steps long.",
            MORE_PREFETCH.or_code(),  # no number is known
        )
    text = raised(charge, circumstances)
    if circumstances.batch_bytes > 0:
        held = int(charge.evidence["prefetch_factor"]) * max(circumstances.workers, 1)
        queued_bytes = held * circumstances.batch_bytes
        text += f": up to {plural(held, 'batch')} are then queued ({size(queued_bytes)})"
    regular = charge.evidence["slow_every"] > 0
    if circumstances.in_sequence and not regular:
        text += ". Or spread the slow samples over the epoch, as with shuffle=True"
    if regular:
        text += ". Or do the extra work of that sample, such as opening a file, ahead in a thread"
    if circumstances.use.rivals:
        text += ". The gain is smaller, or none, while other programs use the cores"
    factor = set_prefetch(circumstances, int(charge.evidence["prefetch_factor"]))
    return Advice(f"{text}.", factor.or_code() if circumstances.in_sequence or regular else factor)


def raised(charge: Charge, circumstances: Circumstances) -> str:
    """Return the words that advise the prefetch factor that was found."""
    tried = "Try to raise" if circumstances.use.rivals else "Raise"
    return (
        f"{tried} prefetch_factor from {circumstances.prefetch} to "
        f"{charge.evidence['prefetch_factor']:.0f}"
    )


PREFETCH = CauseRow(
    kind="prefetch",
    title="a prefetch factor too small for batches or steps of unequal length",
    full_title=_title,
    charges=_charges,
    facts={
        "prefetch_factor": "The prefetch factor that saves most of what more of it can.",
        "saved_share": "Share of the waits after the first batch that it would save, 0 to 1.",
        "long_steps": "Training steps that are far longer than the mean, where steps are uneven.",
        "slow_every": "Samples of a worker from one slow one to the next, where that is regular.",
        "idle_share": "Share of the workers' time in which they had nothing to do, 0 to 1.",
        "all_making_share": "Share of the waits in which all workers made batches, 0 to 1.",
    },
    reason=_reason,
    advice=_advice,
)
PREFETCH_OF_REST = replace(PREFETCH, charges=_charges_of_rest)
