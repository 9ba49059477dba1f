"""The causes that were measured and take next to nothing, which a verdict names as ruled out."""

import math
from collections.abc import Collection, Iterator

from lotus.analysis.common.columns import ratio
from lotus.analysis.verdict.account import Account
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.causes import CAUSES
from lotus.analysis.verdict.causes.making.prefetch import PREFETCH as PREFETCH_TOO_SMALL

LITTLE = 0.02  # of the loop: a cause of less is ruled out
# Causes that every recording measures; of workers only where there are any.
_OF_WORKERS = ("send", "start-up", "shut-down")
RULED_OUT = {
    "start-up": "start-up",
    "shut-down": "shut-down",
    "send": "sending batches",
    "main-process": "the sampler",
    "slow-samples": "slow samples",
    "cold-files": "cold files",
    "collate": "collate",
}


def ruled_out(
    loop_account: Account, circumstances: Circumstances, listed: Collection[str]
) -> Iterator[str]:
    """Yield causes that were measured and take next to nothing, except those in `listed`."""
    charged: dict[str, float] = {}
    for charge in loop_account.charges:
        charged[charge.kind] = charged.get(charge.kind, 0.0) + charge.ns
    unknown = set(listed)
    if circumstances.level == "batch" or circumstances.partial:
        unknown.add("slow-samples")
    if PREFETCH_TOO_SMALL.kind in charged:
        unknown.add("slow-samples")  # it may be they that come in bursts
    if circumstances.use.full or not math.isfinite(circumstances.use.own_share):
        unknown.add("cold-files")  # threads off their cores may wait for storage, or for a core
    if not circumstances.workers:
        unknown |= set(_OF_WORKERS)
    for kind in dict.fromkeys(row.kind for row in CAUSES):
        words = "" if kind in unknown else RULED_OUT.get(kind)
        share = ratio(charged.get(kind, 0.0), loop_account.loop_ns)
        if words and share < LITTLE:
            yield words
    use = circumstances.use
    enough = use.fetch.delay_share < LITTLE and not use.step.delay_share >= LITTLE
    if math.isfinite(use.own_share) and enough:
        yield "too few cores"
