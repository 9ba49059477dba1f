"""One rank for which the others wait: what they wait for is charged to what makes it late."""

from lotus.analysis.verdict.advice.advice import Advice
from lotus.analysis.verdict.causes.cause_row import CauseRow, Evidence
from lotus.common.text.formatting import duration, share


def _reason(evidence: Evidence) -> str:
    if evidence.has("last_share"):
        return (
            f"It came last in {share(evidence['last_share'])} of the steps, "
            f"{duration(evidence['behind_ns'])} behind on average."
        )
    return (
        f"It waits for data {share(evidence['own_wait_share'])} of its loop, rank "
        f"{evidence['other_rank']:.0f} waits {share(evidence['other_wait_share'])} and is blocked "
        f"for {share(evidence['other_blocked_share'])} of its step."
    )


AGAINST_SLOW_RANK = Advice(
    "What makes it late is among the other causes: a change there helps all ranks. `lotus balance` "
    "divides a batch among ranks of unequal speed."
)
SLOW_RANK = CauseRow(
    kind="slow-rank",
    title="one rank for which the others wait",
    charges=lambda ledger: (),
    facts={
        "late_rank": "The rank for which others wait.",
        "own_wait_share": "Share of that rank's loop in which it waits for data, 0 to 1.",
        "other_rank": "The rank that waits least for data.",
        "other_wait_share": "The same share of that one, 0 to 1.",
        "other_blocked_share": "Share of its step in which it is blocked, 0 to 1.",
        "last_share": "Share of the steps in which the rank came last, 0 to 1.",
        "behind_ns": "Its mean lateness, nanoseconds.",
    },
    reason=_reason,
    advice=lambda charge, circumstances: AGAINST_SLOW_RANK,
    silent=True,
)
