"""The rank for which the others wait, as a cause beside those of its time."""

from dataclasses import replace

from lotus.analysis.ranks.awaited_rank import HeldUp
from lotus.analysis.ranks.rank_verdict import RankSummary
from lotus.analysis.verdict.causes.run.slow_rank import AGAINST_SLOW_RANK, SLOW_RANK
from lotus.analysis.verdict.verdict import Cause, Verdict


def with_awaited_rank(judged: Verdict, last: HeldUp) -> Verdict:
    """Return the verdict with the rank for whose data the others wait."""
    evidence = {
        "own_wait_share": last.wait_share,
        "other_rank": float(last.other),
        "other_wait_share": last.other_wait_share,
        "other_blocked_share": last.other_blocked_share,
    }
    return _with(judged, last.rank, "for which the others most likely wait", evidence)


def with_straggler(judged: Verdict, ranks: RankSummary | None) -> Verdict:
    """Return the verdict with the rank that comes last most often, if one does and none is there.

    Not where all ranks of a host come last, as no single one does, nor without another cause: what
    makes the rank late is one of those.
    """
    single = [each for each in ranks.stragglers if len(each.ranks) == 1] if ranks else []
    known = {cause.kind for cause in judged.causes}
    if not single or not known or SLOW_RANK.kind in known:
        return judged
    last = single[0]
    evidence = {"last_share": last.last.share, "behind_ns": last.behind_ns}
    return _with(judged, last.ranks[0], "which comes last most often", evidence)


def _with(judged: Verdict, rank: int, words: str, evidence: dict[str, float]) -> Verdict:
    cause = Cause(
        kind=SLOW_RANK.kind,
        title=f"rank {rank}, {words}",
        share=0.0,
        wait_share=0.0,
        ns=0.0,
        evidence={"late_rank": float(rank), **evidence},
        advice=AGAINST_SLOW_RANK.text,
        remedy=AGAINST_SLOW_RANK.remedy,
    )
    return replace(judged, causes=[*judged.causes, cause])
