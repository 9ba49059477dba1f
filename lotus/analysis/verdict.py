"""The verdict on a loader's loop and its causes, ranked, each with its evidence and advice.

Thresholds are those of tf.data's input-pipeline analysis: a wait of less than 5 % of the loop is
not input-bound, up to 20 % moderately, more than 20 % highly.
"""

from dataclasses import dataclass

from lotus.analysis.advice import Circumstances, advise, circumstances, title
from lotus.analysis.causes import CONSUMER, SHUTDOWN, STARTUP, UNSEEN, Account, Charge, account
from lotus.analysis.columns import ratio
from lotus.analysis.scope import Scope

MODERATE, HIGH = 0.05, 0.20
# Causes of less than this share of the loop are not worth a line.
LEAST_SHARE = 0.002


@dataclass(frozen=True)
class Cause:
    """`share` is of the loop's time, `wait_share` of what the loop waited (NaN for the consumer).

    `evidence`: numbers, their units in their names (_ns, _share, _bytes).
    """

    kind: str
    title: str
    share: float
    wait_share: float
    ns: float
    evidence: dict[str, float]
    advice: str


@dataclass(frozen=True)
class Verdict:
    """`kind`: input-bound, consumer-bound, start-up-bound or unknown; causes: first comes first.

    Shares are of the loop's time: input_share (waits beyond the start-up), startup_share
    (`iter()` to the first batch), step_share, shutdown_share; they add up to 1.
    """

    kind: str
    degree: str  # "highly", "moderately", "not" (input-bound); "" for unknown
    summary: str
    input_share: float
    startup_share: float
    step_share: float
    shutdown_share: float
    causes: list[Cause]


def verdict(scope: Scope) -> Verdict:
    """Judge one loader's loop."""
    return judge(account(scope), circumstances(scope))


def judge(books: Account, around: Circumstances) -> Verdict:
    """Judge a loop whose time is accounted for."""
    loop = books.loop_ns
    owed = dict.fromkeys((CONSUMER, STARTUP, SHUTDOWN), 0.0)
    for charge in books.charges:
        if charge.kind in owed:
            owed[charge.kind] += charge.ns
    step, startup, shutdown = (ratio(owed[kind], loop) for kind in (CONSUMER, STARTUP, SHUTDOWN))
    inputs = ratio(max(loop - sum(owed.values()), 0.0), loop)
    if not loop > 0:
        nothing = "No batch was taken from this loader."
        return Verdict("unknown", "", nothing, inputs, startup, step, shutdown, [])
    kind, degree = _kind(inputs, startup + shutdown)
    causes = [_cause(charge, books, around) for charge in _ranked(books.charges, kind)]
    causes = [one for one in causes if one.share >= LEAST_SHARE] or causes[:1]
    summary = _summary(kind, degree, inputs, startup + shutdown, step)
    return Verdict(kind, degree, summary, inputs, startup, step, shutdown, causes)


def _kind(inputs: float, edges: float) -> tuple[str, str]:
    degree = "highly" if inputs > HIGH else "moderately" if inputs >= MODERATE else "not"
    if edges > HIGH and edges > inputs:
        return "start-up-bound", degree
    return ("consumer-bound" if degree == "not" else "input-bound"), degree


def _ranked(charges: list[Charge], kind: str) -> list[Charge]:
    """Largest first; the consumer's step first where it sets the pace and last where it does not.

    What was not seen explains nothing and comes last, unless most of the waiting was broken off:
    then nothing else is the cause.
    """
    waited = sum(charge.ns for charge in charges if charge.kind != CONSUMER)

    def place(charge: Charge) -> tuple[int, float]:
        group = 1
        if kind == "start-up-bound":
            group = 0 if charge.kind in (STARTUP, SHUTDOWN) else 1
        if charge.kind == CONSUMER:
            group = 0 if kind == "consumer-bound" else 2
        if charge.kind == UNSEEN and charge.evidence.get("broken_off_ns", 0.0) <= waited / 2:
            group = 3
        return (group, -charge.ns)

    return sorted(charges, key=place)


def _cause(charge: Charge, books: Account, around: Circumstances) -> Cause:
    waited = books.loop_ns - books.step_ns
    return Cause(
        kind=charge.kind,
        title=title(charge, around),
        share=ratio(charge.ns, books.loop_ns),
        wait_share=float("nan") if charge.kind == CONSUMER else ratio(charge.ns, waited),
        ns=charge.ns,
        evidence=charge.evidence,
        advice=advise(charge, around),
    )


def _summary(kind: str, degree: str, inputs: float, edges: float, step: float) -> str:
    """One sentence with the numbers that say so."""
    if kind == "start-up-bound":
        return (
            f"{edges:.0%} of the loop passes before the first batch or after the last one, "
            f"{inputs:.0%} in other waits."
        )
    if kind == "consumer-bound":
        return (
            f"The loop waits for data {inputs:.1%} of its time; the consumer's own step "
            f"takes {step:.0%}."
        )
    limit = HIGH if degree == "highly" else MODERATE
    part = f"{inputs:.0%}" if inputs >= 0.0995 else f"{inputs:.1%}"  # 5.3 %, not 5, is more than 5
    return (
        f"The loop waits for data {part} of its time; more than {limit:.0%} is "
        f"{degree} input-bound."
    )
