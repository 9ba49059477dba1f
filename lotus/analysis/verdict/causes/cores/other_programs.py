"""Other programs, or a hypervisor, that have the cores."""

import math
from collections.abc import Iterable

from lotus.analysis.common.columns import ratio
from lotus.analysis.machine.core_use import LEAST_DELAY
from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.remedy import NOTHING
from lotus.analysis.verdict.causes.cause_row import CauseRow, Charge, Evidence
from lotus.analysis.verdict.causes.cores.crowding import CROWD_FACTS, OTHERS_SHARE
from lotus.analysis.verdict.loop_time.ledger import Ledger
from lotus.common.text.formatting import share

_MOSTLY = 0.5  # of what others had of the cores


def _of_others(ledger: Ledger) -> Iterable[Charge]:
    """Charge waits in which the maker or taker of the batch was ready, and others had the cores."""
    use, ns = ledger.use, ledger.waits_without_core
    if use.rivals:
        # Threads that wait for each other do so because one of them has no core: charged once.
        beyond = max(use.fetch.delay_share - ledger.lost_to_threads, 0.0)
        left = ratio(beyond, 1.0 - ledger.lost_to_threads) if ledger.lost_to_threads < 1 else 0.0
        ledger.delay_share = min(left, 1.0)
        ns += ledger.take_excess_without_core()
        ns += ledger.take_share(ledger.delay_share)
    if use.rivals or ns > 0:
        evidence = {
            "run_delay_share": use.fetch.delay_share,
            "others_share": use.others_share,
            "stolen_share": use.stolen_share if use.much_stolen else math.nan,
        }
        yield Charge(OTHERS.kind, OTHERS.title, ns, evidence)


def _is_stolen(charge: Charge) -> bool:
    """Return True if it was mostly the hypervisor that kept the program from the cores."""
    stolen, others = (charge.evidence.get(f"{who}_share", math.nan) for who in ("stolen", "others"))
    return stolen >= _MOSTLY * others


def _others_title(charge: Charge, circumstances: Circumstances) -> str:
    return "the hypervisor withholds cores (steal time)" if _is_stolen(charge) else OTHERS.title


def _against_others(charge: Charge, circumstances: Circumstances) -> Advice:
    if _is_stolen(charge):
        text = "Measure again when the host has free cores, or on a machine that does not share its"
        return Advice(f"{text} cores; no loader setting helps.", NOTHING)
    return Advice(
        "Measure again when the cores are free, or give the program its own cores; no loader "
        "setting helps.",
        NOTHING,
    )


def _others_reason(evidence: Evidence) -> str:
    text = (
        "The making of batches was ready to run but had no core for "
        f"{share(evidence['run_delay_share'])} of its time, and the program did not keep the cores "
        "busy itself"
    )
    if evidence["run_delay_share"] < LEAST_DELAY:
        text = (
            "Batches that were ready arrived later than their bytes and the CPU time of receiving "
            "them account for"
        )
    if evidence.has("others_share"):
        stolen = evidence["stolen_share"] if evidence.has("stolen_share") else 0.0
        programs = max(evidence["others_share"] - stolen, 0.0)
        text += f": other programs used {share(programs)} of them"
        text += f", and the hypervisor withheld {share(stolen)}" if stolen else ""
    return text + "."


OTHERS = CauseRow(
    kind="other-programs",
    title="other programs use the cores",
    full_title=_others_title,
    charges=_of_others,
    facts={
        "run_delay_share": CROWD_FACTS["run_delay_share"],
        "others_share": OTHERS_SHARE,
        "stolen_share": "Part of it that the hypervisor withheld (steal), 0 to 1.",
    },
    reason=_others_reason,
    advice=_against_others,
)
