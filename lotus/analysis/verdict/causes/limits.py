"""Limits of a process or a container that are nearly reached: nothing waits for them yet."""

from collections.abc import Iterable

from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.resources import Resources, resources
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence
from lotus.analysis.verdict.loop_time.ledger import Ledger

_NEAR = 0.8  # of a limit
_DESCRIPTORS, _SHM = "file descriptors are nearly used up", "/dev/shm is nearly full"
_MORE_DESCRIPTORS = (
    "raise the limit (ulimit -n), or send tensors with "
    "torch.multiprocessing.set_sharing_strategy('file_system')."
)
_MORE_SHM = "enlarge it (docker run --shm-size), or prefetch fewer batches."


def _charges(ledger: Ledger) -> Iterable[Charge]:
    yield from charges_of(resources(ledger.scope))


def charges_of(used: Resources) -> Iterable[Charge]:
    """Yield a charge, of no time, for each limit that is near."""
    if used.descriptor_limit >= used.descriptors >= _NEAR * used.descriptor_limit:
        evidence = {"descriptors": used.descriptors, "descriptor_limit": used.descriptor_limit}
        yield Charge(LIMITS.kind, _DESCRIPTORS, 0.0, evidence)
    if used.shm_share >= _NEAR:
        yield Charge(LIMITS.kind, _SHM, 0.0, {"shm_share": used.shm_share})


def _reason(evidence: Evidence) -> str:
    if evidence.has("shm_share"):
        return (
            f"/dev/shm, through which batches are sent, was {evidence['shm_share']:.0%} full: "
            f"{_MORE_SHM}"
        )
    return (
        f"A process had {evidence['descriptors']:,.0f} file descriptors open, of at most "
        f"{evidence['descriptor_limit']:,.0f}: {_MORE_DESCRIPTORS}"
    )


def _advice(charge: Charge, circumstances: Circumstances) -> Advice:
    text = _MORE_SHM.replace("it", "/dev/shm", 1) if charge.name == _SHM else _MORE_DESCRIPTORS
    return Advice(text[0].upper() + text[1:])


LIMITS = CauseRow(
    kind="limits",
    title="a limit that is nearly reached",
    charges=_charges,
    facts={
        "descriptors": "File descriptors open in a process, at most.",
        "descriptor_limit": "The highest limit of a process.",
        "shm_share": "Share of /dev/shm that was filled, at most, 0 to 1.",
    },
    reason=_reason,
    advice=_advice,
    silent=True,
)
