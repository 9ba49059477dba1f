"""The shares of a loop that its parts take, and how much of each other programs took."""

from dataclasses import dataclass

from lotus.analysis.common.columns import ratio
from lotus.analysis.verdict.account import Account
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.causes import BY_KIND
from lotus.analysis.verdict.causes.cause_row import SHUTDOWN, STARTUP, STEP, WAITS
from lotus.analysis.verdict.causes.cores.other_programs import OTHERS

# Waits of less than the first are no finding; of more than the second, they are a large one.
MODERATE, HIGH = 0.05, 0.20
_LEAST_FREE = 0.01  # of a loop: less of it is not judged by itself


@dataclass(frozen=True)
class PartsOfLoop:
    """Shares of the loop's time: `inputs` (waits beyond the start-up), `startup`, `step`,
    `shutdown`; together 1.

    `low`, `high`: the 95 % interval of `inputs`. `others`, `step_taken`, `edges_taken`: what other
    programs took of the waits, of the step where the loop makes its batches itself, and of the
    start-up and shut-down.
    """

    inputs: float
    startup: float
    step: float
    shutdown: float
    low: float
    high: float
    others: float
    step_taken: float
    edges_taken: float

    @property
    def edges(self) -> float:
        """Start-up and shut-down."""
        return self.startup + self.shutdown

    @property
    def free(self) -> float:
        """The share that other programs left: only this part of the loop is judged."""
        return max(1.0 - self.others - self.edges_taken - self.step_taken, _LEAST_FREE)


def parts_of_loop(loop_account: Account, circumstances: Circumstances) -> PartsOfLoop:
    """Return the shares of a loop whose time is accounted for."""
    loop, owed = loop_account.loop_ns, _owed_ns(loop_account)
    step, startup, shutdown = (ratio(ns, loop) for ns in owed.values())
    inputs = ratio(max(loop - sum(owed.values()), 0.0), loop)
    low, high = (min(inputs * factor, 1.0) for factor in circumstances.wait_spread)
    return PartsOfLoop(
        inputs,
        startup,
        step,
        shutdown,
        low,
        high,
        others=share_of(loop_account, OTHERS.kind) + ratio(taken_ns(loop_account, WAITS), loop),
        step_taken=ratio(taken_ns(loop_account, STEP), loop) if not circumstances.workers else 0.0,
        edges_taken=ratio(taken_ns(loop_account, STARTUP, SHUTDOWN), loop),
    )


def _owed_ns(loop_account: Account) -> dict[str, float]:
    """Return how much is charged to training steps, start-ups and shut-downs, ns by part."""
    owed = dict.fromkeys((STEP, STARTUP, SHUTDOWN), 0.0)
    for charge in loop_account.charges:
        part = BY_KIND[charge.kind].part
        if part in owed:
            owed[part] += charge.ns
        owed[STEP] += charge.step_ns
    return owed


def steady_wait_share(loop_account: Account) -> float:
    """Return the share of waits in the loop between its start-ups and its shut-downs."""
    owed = _owed_ns(loop_account)
    steady = loop_account.loop_ns - owed[STARTUP] - owed[SHUTDOWN]
    return ratio(steady - owed[STEP], steady)


def share_of(loop_account: Account, kind: str) -> float:
    """Return the share of the loop that causes of this kind take together."""
    return ratio(
        sum(charge.ns for charge in loop_account.charges if charge.kind == kind),
        loop_account.loop_ns,
    )


def taken_ns(loop_account: Account, *parts: str) -> float:
    """Return how long other programs had the cores during these parts of the loop, ns."""
    return sum(
        charge.taken_ns for charge in loop_account.charges if BY_KIND[charge.kind].part in parts
    )
